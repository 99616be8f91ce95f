"""What a bag says: the replay's verdict and one row per episode. Behind `replay` and `demo`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from monitor.aggregate import EpisodeSummary
from monitor.config import MonitorConfig
from monitor.engine import Monitor
from monitor.export.terminal import EpisodeRow
from monitor.messages import EpisodeEvent, EpisodeRecord
from monitor.recording.reader import BagReader
from monitor.recording.replay import ReplayResult, compare
from monitor.steps import MetricInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class BagReport:
    """A bag, replayed. `other_config`: settings were changed on purpose, so nothing was compared."""

    result: ReplayResult
    rows: tuple[EpisodeRow, ...]
    infos: tuple[MetricInfo, ...]
    other_config: bool

    @property
    def good(self) -> bool:
        """True when the bag is whole and every number came out again."""
        whole = not self.result.cut and not self.result.damage
        return whole and (self.other_config or self.result.identical)

    @property
    def verdict(self) -> str:
        """One sentence for the user."""
        result = self.result
        if self.other_config:
            text = f"{result.steps} steps replayed with another configuration; not compared with the recording"
        elif result.identical:
            text = f"replay: {result.compared} reports and {result.alarms_compared} alarm changes are the same as live, bit for bit"
        elif result.compared == 0:
            text = f"replay: {result.steps} steps, but no report that could be compared"
        else:
            text = (
                f"replay: {result.different} of {result.compared} reports and {result.alarms_different} alarm changes DIFFER; first: {result.first}"
            )
        missing = f"; {result.missing_steps} steps were not recorded" if result.missing_steps else ""
        damage = "".join(f"\n{damage.text}" for damage in result.damage)
        return text + missing + ("; the recording was cut, its last episode is unfinished" if result.cut else "") + damage

    def fields(self) -> dict[str, Any]:
        """The same for machines."""
        result = self.result
        counts = (
            "steps",
            "reports",
            "compared",
            "different",
            "not_compared",
            "alarms_compared",
            "alarms_different",
            "missing_steps",
            "missing_reports",
        )
        first = result.first
        return {
            "bag": str(result.path),
            "good": self.good,
            "identical": result.identical,
            "cut": result.cut,
            "other_config": self.other_config,
            **{name: getattr(result, name) for name in counts},
            "first_difference": None if first is None else {**first._asdict(), "recorded": str(first.recorded), "recomputed": str(first.recomputed)},
            "damage": [damage.text for damage in result.damage],
            "notices": list(result.notices),
            "episodes": [_episode_fields(row) for row in self.rows],
        }


def bag_report(path: Path, config: MonitorConfig | None = None) -> BagReport:
    """Replay a bag. Raises BagError or ConfigError as `monitor.recording.replay.compare`."""
    result = compare(path, config=config)
    reader = BagReader(path)
    facts = reader.facts()
    monitor = Monitor(facts.spec, config or facts.config)
    summaries = list(_summaries(monitor, reader))
    records = {record.episode_id: record for record in reader.episodes()}  # an end, where there is one, stands last and tells all
    rows = tuple(EpisodeRow(records.get(summary.episode_id) or _unknown(summary), summary) for summary in summaries)
    return BagReport(result=result, rows=rows, infos=monitor.infos, other_config=config is not None and config != facts.config)


def _summaries(monitor: Monitor, reader: BagReader) -> Iterator[EpisodeSummary]:
    episode: str | None = None
    for step in reader.steps():
        monitor.update(step)
        if episode is not None and step.episode_id != episode and monitor.finished is not None:
            yield monitor.finished
        episode = step.episode_id
    if episode is not None:
        yield monitor.summary()


def _unknown(summary: EpisodeSummary) -> EpisodeRecord:
    return EpisodeRecord(event=EpisodeEvent.STARTED, time=math.nan, episode_id=summary.episode_id, instruction=summary.instruction)


def _episode_fields(row: EpisodeRow) -> dict[str, Any]:
    record, summary = row
    return {
        "episode_id": summary.episode_id,
        "task": record.task or None,
        "instruction": summary.instruction,
        "perturbation": record.perturbation or None,
        "seed": record.seed,
        "outcome": record.outcome.name.lower(),
        "ended": record.event is EpisodeEvent.ENDED,
        "steps": summary.steps,
        "metrics": {metric.key: {name: value for name, value in asdict(metric).items() if name != "key"} for metric in summary.metrics},
        "alarms": [asdict(span) for span in summary.alarms],
        "counters": summary.counters,
    }

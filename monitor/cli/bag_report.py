"""A replayed bag as a table's rows and as JSON. Behind `replay` and `demo`; what is good, and why, is said by `monitor.recording.replay`."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from monitor.aggregate import EpisodeSummary
from monitor.config import MonitorConfig
from monitor.export.terminal import EpisodeRow
from monitor.messages import EpisodeEvent, EpisodeRecord
from monitor.policy import PolicySpec
from monitor.recording.replay import ReplayResult, compare

_COUNTS = (
    "steps",
    "reports",
    "compared",
    "different",
    "not_compared",
    "alarms_compared",
    "alarms_different",
    "alarms_not_compared",
    "missing_steps",
    "missing_reports",
    "missing_alarms",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BagReport:
    """A bag, replayed, and one row per episode."""

    result: ReplayResult
    rows: tuple[EpisodeRow, ...]

    def fields(self) -> dict[str, Any]:
        """The same for machines."""
        result = self.result
        first = result.first
        return {
            "bag": str(result.path),
            "good": result.good,
            "identical": result.identical,
            "complete": result.complete,
            "verdict": result.verdict,
            "cut": result.cut,
            "stopped": result.stopped or None,
            "other_config": result.other_settings,
            **{name: getattr(result, name) for name in _COUNTS},
            "first_difference": None if first is None else {**first._asdict(), "recorded": str(first.recorded), "recomputed": str(first.recomputed)},
            "damage": [damage.text for damage in result.damage],
            "notices": list(result.notices),
            "episodes": [_episode_fields(row) for row in self.rows],
        }


def bag_report(path: Path, config: MonitorConfig | None = None, spec: PolicySpec | None = None) -> BagReport:
    """Replay a bag. Arguments and errors as `monitor.recording.replay.compare`."""
    result = compare(path, config=config, spec=spec)
    rows = tuple(EpisodeRow(result.records.get(summary.episode_id) or _unknown(summary), summary) for summary in result.summaries)
    return BagReport(result=result, rows=rows)


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

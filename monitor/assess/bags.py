"""From the records of a bag to EpisodeSeries: reports give the series, episode records the task, the outcome and the scene."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from monitor.assess.series import EpisodeSeries, Origin, SeriesSet
from monitor.messages import EpisodeRecord, Outcome, ReportRecord
from monitor.steps import MetricInfo, Status

MAX_STEPS = 1_000_000  # a step number beyond it is a fault of the recording, not a long episode

_SUCCESS = {Outcome.SUCCESS: True, Outcome.FAILURE: False, Outcome.UNKNOWN: None}


class RecordSource(Protocol):
    """What can be read of a bag; `monitor.recording.BagReader` is one."""

    path: Path

    def reports(self) -> Iterable[ReportRecord]:
        """Recorded reports, in order."""
        ...

    def episodes(self) -> Iterable[EpisodeRecord]:
        """Beginnings and ends of episodes."""
        ...


def series_from_bag(source: RecordSource, origin: Origin, dt: float, infos: Sequence[MetricInfo]) -> SeriesSet:
    """All episodes of a bag.

    `origin` and `infos` belong to the monitor that made the reports, `dt` is its control period in s. Reports of steps that the monitor did not
    accept say nothing; a step that is missing in between has no statement. Recorded metrics that `infos` does not name are left out. Where all
    seeds are 0, nobody gave any.
    """
    known = {info.key: info for info in infos}
    ends: dict[str, EpisodeRecord] = {}
    for record in source.episodes():
        ends[record.episode_id] = record  # the end, where there is one, comes last and tells all
    rows: dict[str, dict[int, ReportRecord]] = {}
    notices: Counter[str] = Counter()
    for report in source.reports():
        if report.verdict != "accepted":
            continue
        if not 0 <= report.step < MAX_STEPS:
            notices[f"episode {report.episode_id}: reports with an impossible step number"] += 1
            continue
        rows.setdefault(report.episode_id, {})[report.step] = report
    for episode_id in ends.keys() - rows.keys():
        notices[f"episode {episode_id}: no reports"] += 1
    foreign = {key for episode in rows.values() for report in episode.values() for key in report.metrics} - known.keys()
    if foreign:
        notices[f"metrics that this version does not know: {', '.join(sorted(foreign))}"] += 1
    seeded = any(record.seed for record in ends.values())
    episodes = tuple(_episode(source.path, origin, dt, known, name, steps, ends.get(name), seeded) for name, steps in rows.items())
    return SeriesSet(episodes=episodes, infos=known, notices=tuple(f"{source.path}: {text} ({count})" for text, count in notices.items()))


def _episode(
    path: Path,
    origin: Origin,
    dt: float,
    known: dict[str, MetricInfo],
    episode_id: str,
    reports: dict[int, ReportRecord],
    record: EpisodeRecord | None,
    seeded: bool,
) -> EpisodeSeries:
    length = max(reports) + 1
    keys = list(dict.fromkeys(key for report in reports.values() for key in report.metrics if key in known))
    values = {key: np.full(length, np.nan) for key in keys}
    statuses = {key: np.full(length, int(Status.UNAVAILABLE), np.uint8) for key in keys}
    for step, report in reports.items():
        for key, value, status in zip(report.metrics, report.values.tolist(), report.statuses.tolist(), strict=True):
            if key in values:
                values[key][step], statuses[key][step] = value, status
    return EpisodeSeries(
        origin=origin,
        task="" if record is None else record.task or record.instruction,
        episode_id=episode_id,
        success=None if record is None else _SUCCESS[record.outcome],
        length=length,
        dt=dt,
        values=values,
        statuses=statuses,
        source=path.resolve().name,  # the same recording keeps its name wherever it is read from
        perturbation="" if record is None else record.perturbation,
        seed=record.seed if record is not None and seeded else None,
    )

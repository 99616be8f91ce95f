"""What an evaluation judges, made from a thresholds file: each metric, compositions of metrics, and the votes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from monitor.alarms.offline import OfflineVote, excess, metric_alarm
from monitor.alarms.thresholds import MetricThreshold, Thresholds
from monitor.assess.evaluation import Detector
from monitor.assess.series import EpisodeSeries, SeriesSet
from monitor.config import VoteConfig
from monitor.steps import Float

VOTES = ("any", "two_families", "weighted")


def metric_detectors(series: SeriesSet) -> list[Detector]:
    """Every metric as a bare score, large is suspicious: for a look without thresholds."""
    return [Detector(name=key, score=lambda episode, key=key: episode.statements(key)) for key in series.keys]  # type: ignore[misc]


def threshold_detectors(thresholds: Thresholds, vote: VoteConfig) -> list[Detector]:
    """Metrics with their own thresholds, compositions of the excess over thresholds, and the votes.

    A vote of one voice promises alpha when the thresholds are joint; the other votes promise nothing and are measured.
    """
    promised = None if thresholds.form == "interpolated" else thresholds.alpha
    found = [_metric(metric, promised) for metric in thresholds.metrics]
    if len(thresholds.metrics) == 1:
        return found
    found.append(Detector(name="composition: largest excess", score=lambda episode: composed(thresholds.metrics, episode, largest=True)))
    found.append(Detector(name="composition: weighted mean excess", score=lambda episode: composed(thresholds.metrics, episode, largest=False)))
    joint = all(metric.joint is not None for metric in thresholds.metrics)
    families = {metric.family for metric in thresholds.metrics}
    for mode in VOTES:
        if mode == "two_families" and len(families) < 2:
            continue
        settings = VoteConfig.model_validate({**vote.model_dump(), "mode": mode})
        bound = promised if mode == "any" and joint else None
        found.append(_vote(f"vote: {mode}", OfflineVote(thresholds, settings), bound, min(metric.runs for metric in thresholds.metrics)))
    return found


def unseen_by(files: Sequence[Thresholds], episodes: Sequence[EpisodeSeries]) -> dict[str, int]:
    """Episode name -> number of the thresholds to judge it by: first of those that have not seen it, one that has not seen its task before others.

    Episodes that all of them have seen are not in it.
    """
    chosen = {}
    for episode in episodes:
        fresh = [number for number, file in enumerate(files) if episode.name not in file.seen]
        if fresh:
            chosen[episode.name] = min(fresh, key=lambda number: episode.task in files[number].identity.tasks)
    return chosen


def cross_detectors(files: Sequence[Thresholds], vote: VoteConfig, chosen: Mapping[str, int]) -> list[Detector]:
    """Detectors that judge each episode by its own thresholds (see `unseen_by`): cross-validation over tasks or episodes.

    Those that only some of the files have are left out.
    """
    made = [{detector.name: detector for detector in threshold_detectors(file, vote)} for file in files]
    return [_crossed([one[name] for one in made], chosen) for name in made[0] if all(name in one for one in made)]


def _crossed(parts: Sequence[Detector], chosen: Mapping[str, int]) -> Detector:
    scores, alarms = [part.score for part in parts], [part.alarm for part in parts]

    def score(episode: EpisodeSeries) -> Float:
        own = scores[chosen[episode.name]]
        assert own is not None
        return own(episode)

    def alarm(episode: EpisodeSeries) -> tuple[float | None, int]:
        own = alarms[chosen[episode.name]]
        assert own is not None
        return own(episode)

    bounds = {part.alpha for part in parts}
    return Detector(
        name=parts[0].name,
        score=score if all(scores) else None,
        alarm=alarm if all(alarms) else None,
        alpha=parts[0].alpha if len(bounds) == 1 else None,
        calibrated_on=min(part.calibrated_on for part in parts),
    )


def composed(metrics: Sequence[MetricThreshold], episode: EpisodeSeries, *, largest: bool) -> Float:
    """(T,) one score out of several: the largest excess, or their weighted mean over the metrics that make a statement. NaN where none does."""
    table = np.stack([excess(metric, episode) for metric in metrics])
    if largest:
        top: Float = np.fmax.reduce(table, axis=0)
        return top
    weights = np.where(np.isnan(table), 0.0, np.array([metric.weight for metric in metrics])[:, None])
    total = weights.sum(axis=0)
    mean = (np.where(np.isnan(table), 0.0, table) * weights).sum(axis=0) / np.where(total > 0, total, 1.0)
    return np.where(total > 0, mean, np.nan)


def _metric(metric: MetricThreshold, promised: float | None) -> Detector:
    sign = 1.0 if metric.direction == "above" else -1.0

    def alarm(episode: EpisodeSeries) -> tuple[float | None, int]:
        heard = metric_alarm(metric, episode)
        return heard.first, len(heard.steps)

    return Detector(
        name=metric.metric if sign > 0 else f"{metric.metric} (below)",
        score=lambda episode: sign * episode.statements(metric.metric),
        alarm=alarm,
        alpha=promised,
        calibrated_on=metric.runs,
    )


def _vote(name: str, vote: OfflineVote, promised: float | None, runs: int) -> Detector:
    def alarm(episode: EpisodeSeries) -> tuple[float | None, int]:
        heard = vote.run(episode)
        return heard.first, len(heard.steps)

    return Detector(name=name, alarm=alarm, alpha=promised, calibrated_on=runs)

"""From series to scores, and from first alarms to figures of detection.

The length leak: failures run to the time limit, so anything that grows with time separates them. Scores are therefore compared at a common time
(each task's shortest run, or a quarter of the time limit) and beside baselines that know nothing: run length, a constant, noise.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from monitor.assess.series import EpisodeSeries
from monitor.assess.statistics import Interval, wilson_interval
from monitor.steps import Float

Cut = Literal["common", "quarter", "whole"]
Baseline = Literal["run length", "constant", "noise"]
BASELINES: tuple[Baseline, ...] = ("run length", "constant", "noise")


def max_so_far(series: ArrayLike) -> Float:
    """Running maximum of (T,), passing over NaN; NaN before the first number."""
    values = np.asarray(series, dtype=np.float64)
    return np.fmax.accumulate(values) if values.size else values


def score_at(series: ArrayLike, steps: int | None) -> float | None:
    """Maximum over the first `steps` steps (None: all); None when there is no number among them."""
    values = np.asarray(series, dtype=np.float64)[:steps]
    values = values[~np.isnan(values)]
    return float(values.max()) if values.size else None


def first_alarm(scores: ArrayLike, upper: ArrayLike) -> int | None:
    """First step at which a score lies above its threshold; None if there is none.

    scores (T,), NaN where there is no statement; upper: a number or (U,). Beyond its end a band keeps its last value. There is no alarm after
    step T - 1: a run that has ended is not padded. A score equal to the threshold is no alarm, so that a constant score never alarms on itself.
    """
    values = np.asarray(scores, dtype=np.float64)
    limit = stretched(upper, values.size)
    beyond = np.flatnonzero(values > limit)
    return int(beyond[0]) if beyond.size else None


def stretched(band: ArrayLike, length: int) -> Float:
    """A number or a series as a series of `length` steps, cut, or continued with its last value."""
    values = np.asarray(band, dtype=np.float64).reshape(-1)
    return values[np.minimum(np.arange(length), values.size - 1)]


def time_limit(episodes: Sequence[EpisodeSeries]) -> tuple[int, bool]:
    """(steps, True if it is declared). Undeclared: the longest run, which is the limit as soon as one failure ran to it."""
    declared = [episode.time_limit for episode in episodes if episode.time_limit is not None]
    return (max(declared), True) if declared else (max(episode.length for episode in episodes), False)


def cut_steps(episodes: Sequence[EpisodeSeries], cut: Cut) -> dict[str, int | None]:
    """Task -> steps after which scores are read; None for whole runs."""
    if not episodes:
        return {}
    tasks: dict[str, list[EpisodeSeries]] = {}
    for episode in episodes:
        tasks.setdefault(episode.task, []).append(episode)
    if cut == "whole":
        return dict.fromkeys(tasks)
    if cut == "common":
        return {task: min(episode.length for episode in group) for task, group in tasks.items()}
    return {task: max(1, round(time_limit(group)[0] / 4)) for task, group in tasks.items()}


def baseline_score(baseline: Baseline, episode: EpisodeSeries, steps: int | None, seed: int = 0) -> float:
    """Score of a baseline. Run length is the whole length at every cut: it tells how much of the answer the length holds. Noise is per step."""
    if baseline == "run length":
        return float(episode.length)
    if baseline == "constant":
        return 0.0
    rng = np.random.default_rng((seed, zlib.crc32(episode.name.encode())))
    return float(rng.normal(size=episode.length)[:steps].max())


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionFigures:
    """How good a set of alarms was over labelled runs. None where a class is missing.

    Attributes:
        tpr: share of failures with an alarm. tnr: share of successes without one. balanced_accuracy: their mean.
        twa: time-weighted accuracy (FIPER, arXiv 2510.09459): mean of tnr and the time that was left at the alarms, a miss counting 0.
        detection_time: mean time of the first alarm over all failures, as share of the run, a miss counting 1 (SAFE, arXiv 2506.09937).
        lead_share: mean share of the run that was left at the alarm, over detected failures; lead_s: the same in s.
        false_alarm_rate: share of successes with an alarm, and its Wilson interval at 95 %.
        false_alarms_per_episode: activations over successes, one run may count several.
    """

    n_success: int
    n_failure: int
    tpr: float | None
    tnr: float | None
    balanced_accuracy: float | None
    twa: float | None
    detection_time: float | None
    lead_share: float | None
    lead_s: float | None
    false_alarm_rate: float | None
    false_alarm_interval: Interval
    false_alarms_per_episode: float | None


def detection_figures(
    first_alarms: Sequence[float | None],
    failed: Sequence[bool],
    *,
    durations_s: Sequence[float] | None = None,
    activations: Sequence[int] | None = None,
) -> DetectionFigures:
    """Figures from the first alarm of each run, as share of its length (None: no alarm).

    `durations_s`: length of each run in s, for `lead_s`; `activations`: alarms in each run, for `false_alarms_per_episode` (default: one at most).

    Raises:
        ValueError: the lists differ in length.
    """
    seconds = [float("nan")] * len(failed) if durations_s is None else durations_s
    counts = [int(first is not None) for first in first_alarms] if activations is None else activations
    runs = list(zip(first_alarms, failed, seconds, counts, strict=True))
    failures = [(first, duration) for first, bad, duration, _ in runs if bad]
    successes = [(first, count) for first, bad, _, count in runs if not bad]
    detected = [(1.0 - first, (1.0 - first) * duration) for first, duration in failures if first is not None]
    false = sum(first is not None for first, _ in successes)
    tpr = _ratio(len(detected), len(failures))
    tnr = _ratio(len(successes) - false, len(successes))
    left = _ratio(sum(share for share, _ in detected), len(failures))
    return DetectionFigures(
        n_success=len(successes),
        n_failure=len(failures),
        tpr=tpr,
        tnr=tnr,
        balanced_accuracy=_mean_of(tpr, tnr),
        twa=_mean_of(left, tnr),
        detection_time=None if left is None else 1.0 - left,
        lead_share=_ratio(sum(share for share, _ in detected), len(detected)),
        lead_s=None if durations_s is None else _ratio(sum(time for _, time in detected), len(detected)),
        false_alarm_rate=_ratio(false, len(successes)),
        false_alarm_interval=wilson_interval(false, len(successes)),
        false_alarms_per_episode=_ratio(sum(count for _, count in successes), len(successes)),
    )


def by_class(scores: Iterable[float | None], failed: Iterable[bool]) -> tuple[list[float], list[float]]:
    """(scores of successes, scores of failures), without runs that have none."""
    stated = [(score, bad) for score, bad in zip(scores, failed, strict=True) if score is not None]
    return [score for score, bad in stated if not bad], [score for score, bad in stated if bad]


def _ratio(part: float, whole: int) -> float | None:
    return part / whole if whole else None


def _mean_of(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else (one + other) / 2

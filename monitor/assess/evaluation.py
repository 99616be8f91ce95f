"""How well alarms and scores tell failures from successes: one table row per detector, task and cut, beside baselines that know nothing.

Scores are made elsewhere (metrics, excess over thresholds) and come as series: larger is more suspicious.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from monitor.assess.detection import (
    BASELINES,
    Baseline,
    Cut,
    DetectionFigures,
    baseline_score,
    by_class,
    cut_steps,
    detection_figures,
    score_at,
    time_limit,
)
from monitor.assess.labels import QUALITIES, RANK, Labels, Quality
from monitor.assess.series import EpisodeSeries
from monitor.assess.statistics import (
    Agreement,
    Auroc,
    Interval,
    auroc_interval,
    auroc_mean_interval,
    binomial_range,
    conformal_range,
    mann_whitney,
    shapiro_wilk,
    spearman,
)
from monitor.assess.statistics import a12 as effect_size
from monitor.steps import Float

CUTS: tuple[Cut, ...] = ("common", "quarter", "whole")
POOLED, MEAN = "all tasks, pooled", "all tasks, mean"

Scorer = Callable[[EpisodeSeries], Float]
Alarmer = Callable[[EpisodeSeries], tuple[float | None, int]]
"""First alarm as share of the episode (None: none), and how many there were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """AUROC of one score, for one task (or all), read at one cut."""

    detector: str
    task: str
    cut: Cut
    auroc: Auroc


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRow:
    """Figures of one alarm, for one task (or all).

    `alpha`: bound on false alarms that was promised (None: no promise); `expected_range`: shares of the successes that alarm, in 95 % of such
    tests, if the rate is alpha (binomial); `conformal_range`: the same with the chance that went into the threshold.
    """

    detector: str
    task: str
    figures: DetectionFigures
    alpha: float | None
    expected_range: Interval
    conformal_range: Interval

    @property
    def inside(self) -> bool | None:
        """True if the realised false-alarm rate is not above the range of alpha. None without a promise or successes."""
        rate, high = self.figures.false_alarm_rate, self.expected_range.high
        return None if rate is None or high is None else rate <= high


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRow:
    """One metric against quality labels: one scalar per run, the mean over its statements, as in Valle et al.

    `rho`: against the rank high 1, medium 2, low 3 of successes. Then each group of successes against failures; `normal_p`: Shapiro-Wilk of it.
    """

    metric: str
    group: str
    n: int
    n_failure: int
    rho: float | None = None
    rho_p: float | None = None
    strength: str | None = None
    a12: float | None = None
    magnitude: str | None = None
    u: float | None = None
    p: float | None = None
    normal_p: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRow:
    """One detector on one episode: scores at the three cuts, first alarm as share of the episode, and number of alarms."""

    detector: str
    task: str
    episode: str
    failed: bool
    length: int
    common: float | None
    quarter: float | None
    whole: float | None
    first_alarm: float | None
    alarms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """All tables. `notes` says what a reader must know before quoting a number."""

    episodes: int
    successes: int
    failures: int
    unknown: int
    scores: tuple[ScoreRow, ...]
    alarms: tuple[AlarmRow, ...]
    per_episode: tuple[EpisodeRow, ...] = ()
    quality: tuple[QualityRow, ...] = ()
    agreement: Agreement | None = None
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """Something to judge: a score, an alarm, or both."""

    name: str
    score: Scorer | None = None
    alarm: Alarmer | None = None
    alpha: float | None = None
    calibrated_on: int = 0


def evaluate(
    episodes: Sequence[EpisodeSeries], detectors: Sequence[Detector], *, labels: Labels | None = None, draws: int = 1000, seed: int = 0
) -> Evaluation:
    """Judge detectors on episodes that none of them has seen. Episodes of unknown outcome are counted and left out."""
    labelled = [episode for episode in episodes if episode.success is not None]
    tasks = sorted({episode.task for episode in labelled})
    scores = [row for detector in detectors if detector.score for row in _score_rows(detector.name, detector.score, labelled, draws, seed)]
    for baseline in BASELINES:
        scores += _baseline_rows(baseline, labelled, draws, seed)
    alarms = [row for detector in detectors if detector.alarm for row in _alarm_rows(detector, detector.alarm, labelled, tasks)]
    keys = sorted({key for episode in labelled for key in episode.values})
    return Evaluation(
        episodes=len(episodes),
        successes=sum(episode.success is True for episode in labelled),
        failures=sum(episode.success is False for episode in labelled),
        unknown=len(episodes) - len(labelled),
        scores=tuple(scores),
        alarms=tuple(alarms),
        per_episode=tuple(row for detector in detectors for row in _episode_rows(detector, labelled)),
        quality=() if labels is None else tuple(quality_rows(labelled, labels.qualities(), keys)),
        agreement=None if labels is None else labels.agreement(),
        notes=tuple(_notes(labelled, tasks)),
    )


def task_scores(score: Scorer, episodes: Sequence[EpisodeSeries], cut: Cut) -> dict[str, tuple[list[float], list[float]]]:
    """Task -> (scores of successes, scores of failures): maxima up to the cut."""
    steps = cut_steps(episodes, cut)
    return _by_task(episodes, {episode.name: score_at(score(episode), steps[episode.task]) for episode in episodes})


def quality_rows(episodes: Sequence[EpisodeSeries], qualities: Mapping[str, Quality], keys: Sequence[str]) -> list[QualityRow]:
    """Correlation with the labels, and each quality (and all successes) against failures."""
    rows = []
    for key in keys:
        means = {episode.name: _mean(episode.statements(key)) for episode in episodes}
        failed = [value for episode in episodes if episode.success is False and (value := means[episode.name]) is not None]
        rated = [(RANK[quality], value) for name, quality in qualities.items() if (value := means.get(name)) is not None]
        found = spearman([rank for rank, _ in rated], [value for _, value in rated])
        row = QualityRow(metric=key, group="rank", n=found.n, n_failure=len(failed), rho=found.rho, rho_p=found.p, strength=found.strength)
        rows.append(row)
        rows += [_group_row(key, quality, [value for rank, value in rated if rank == RANK[quality]], failed) for quality in QUALITIES]
        good = [value for episode in episodes if episode.success and (value := means[episode.name]) is not None]
        rows.append(_group_row(key, "success", good, failed))
    return rows


def _group_row(key: str, group: str, values: list[float], failed: list[float]) -> QualityRow:
    if len(values) < 3 or len(failed) < 3:  # the study's least size of a group
        return QualityRow(metric=key, group=group, n=len(values), n_failure=len(failed))
    effect, test = effect_size(values, failed), mann_whitney(values, failed)
    return QualityRow(
        metric=key,
        group=group,
        n=len(values),
        n_failure=len(failed),
        a12=effect.a12,
        magnitude=effect.magnitude,
        u=test.u,
        p=test.p,
        normal_p=shapiro_wilk(values).p,
    )


def _score_rows(name: str, score: Scorer, episodes: Sequence[EpisodeSeries], draws: int, seed: int) -> list[ScoreRow]:
    rows = []
    for cut in CUTS:
        rows += _rows(name, cut, task_scores(score, episodes, cut), draws, seed)
    return rows


def _baseline_rows(baseline: Baseline, episodes: Sequence[EpisodeSeries], draws: int, seed: int) -> list[ScoreRow]:
    rows = []
    for cut in CUTS:
        steps = cut_steps(episodes, cut)
        scores = {episode.name: baseline_score(baseline, episode, steps[episode.task], seed) for episode in episodes}
        rows += _rows(f"baseline: {baseline}", cut, _by_task(episodes, scores), draws, seed)
    return rows


def _rows(name: str, cut: Cut, groups: Mapping[str, tuple[list[float], list[float]]], draws: int, seed: int) -> list[ScoreRow]:
    """Each task, all runs pooled, and the mean over tasks that have both classes."""
    found = {task: auroc_interval(*pair, draws=draws, seed=seed) for task, pair in groups.items()}
    pooled = ([s for good, _ in groups.values() for s in good], [s for _, bad in groups.values() for s in bad])
    found[POOLED] = auroc_interval(*pooled, draws=draws, seed=seed)
    found[MEAN] = auroc_mean_interval(list(groups.values()), draws=draws, seed=seed)
    return [ScoreRow(detector=name, task=task, cut=cut, auroc=value) for task, value in found.items()]


def _alarm_rows(detector: Detector, alarm: Alarmer, episodes: Sequence[EpisodeSeries], tasks: Sequence[str]) -> list[AlarmRow]:
    heard = {episode.name: alarm(episode) for episode in episodes}
    rows = []
    for task in [*tasks, POOLED]:
        group = [episode for episode in episodes if task in (episode.task, POOLED)]
        figures = detection_figures(
            [heard[episode.name][0] for episode in group],
            [episode.success is False for episode in group],
            durations_s=[episode.length * episode.dt for episode in group],
            activations=[heard[episode.name][1] for episode in group],
        )
        promised = detector.alpha is not None
        rows.append(
            AlarmRow(
                detector=detector.name,
                task=task,
                figures=figures,
                alpha=detector.alpha,
                expected_range=binomial_range(figures.n_success, detector.alpha or 0.0) if promised else Interval(None, None),
                conformal_range=conformal_range(figures.n_success, detector.calibrated_on, detector.alpha or 0.0)
                if promised
                else Interval(None, None),
            )
        )
    return rows


def _episode_rows(detector: Detector, episodes: Sequence[EpisodeSeries]) -> list[EpisodeRow]:
    steps = {cut: cut_steps(episodes, cut) for cut in CUTS}
    rows = []
    for episode in episodes:
        series = detector.score(episode) if detector.score else None
        read = {cut: None if series is None else score_at(series, steps[cut][episode.task]) for cut in CUTS}
        first, count = detector.alarm(episode) if detector.alarm else (None, None)
        rows.append(
            EpisodeRow(
                detector=detector.name,
                task=episode.task,
                episode=episode.name,
                failed=episode.success is False,
                length=episode.length,
                common=read["common"],
                quarter=read["quarter"],
                whole=read["whole"],
                first_alarm=first,
                alarms=count,
            )
        )
    return rows


def _by_task(episodes: Sequence[EpisodeSeries], scores: Mapping[str, float | None]) -> dict[str, tuple[list[float], list[float]]]:
    tasks: dict[str, list[EpisodeSeries]] = {}
    for episode in episodes:
        tasks.setdefault(episode.task, []).append(episode)
    return {task: by_class([scores[e.name] for e in group], [e.success is False for e in group]) for task, group in sorted(tasks.items())}


def _notes(episodes: Sequence[EpisodeSeries], tasks: Sequence[str]) -> list[str]:
    notes = []
    for task in tasks:
        group = [episode for episode in episodes if episode.task == task]
        failures = sum(episode.success is False for episode in group)
        if failures in (0, len(group)):
            notes.append(f"{task}: {len(group)} runs, {failures} failures: one class only, so no AUROC and no part in the mean over tasks")
        limit, declared = time_limit(group)
        source = "declared" if declared else "the longest run, as none is declared"
        notes.append(
            f"{task}: common time {min(e.length for e in group)} steps; quarter of the time limit {max(1, round(limit / 4))} steps ({source})"
        )
    return notes


def _mean(values: Float) -> float | None:
    stated = values[values == values]
    return float(stated.mean()) if stated.size else None

"""Fit thresholds from labelled episodes: conformal bounds from the successes, directions and weights (if wanted) from both classes."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from monitor.alarms.conformal import SIGMA_FLOOR, Band, functional_band, needed, padded, split_threshold
from monitor.alarms.thresholds import Counts, Direction, Identity, Level, Method, MetricThreshold, Thresholds
from monitor.assess.detection import by_class, cut_steps, max_so_far, score_at
from monitor.assess.series import EpisodeSeries, SeriesSet
from monitor.assess.statistics import auroc_interval
from monitor.errors import ConfigError
from monitor.steps import Float

# What to calibrate when nothing is named: metrics that are worth an alarm in some kind of policy; those that a policy cannot give drop out.
RECOMMENDED = ("tb_entropy/sw_max", "stac_single/full", "reversal_rate/full", "a_ai/o", "tcp_vi/p", "frozen/steps", "blocked/flag")

FLOOR_SHARE = 0.1  # least width of a band at any step, as a share of the spread of the metric


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """How to fit.

    Attributes:
        alpha: bound on the share of successes that raise a false alarm.
        method: one number for the whole episode, or one per step.
        interpolated: published quantile instead of the finite-sample rank; no guarantee.
        metrics: patterns of id/variant; empty takes the recommended ones, or all where none of those is there.
        below: metrics (patterns) for which a small value is suspicious.
        learn: take directions and weights from the labelled runs, failures included.
        mean_share: share of the successes that give centre and width of bands and of the joint thresholds. seed: of that draw.
    """

    alpha: float = 0.1
    method: Method = "constant"
    interpolated: bool = False
    metrics: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    learn: bool = False
    mean_share: float = 0.3
    seed: int = 0


class Fit(NamedTuple):
    """Thresholds, and remarks on metrics that were left out or cannot alarm."""

    thresholds: Thresholds
    notices: tuple[str, ...]


@dataclass(slots=True)
class _Metric:
    """One metric while it is fitted. `rows` are signed: large is suspicious."""

    key: str
    sign: float
    weight: float
    names: list[str] = field(default_factory=list)
    rows: list[Float] = field(default_factory=list)


def fit(series: SeriesSet, options: FitOptions, *, date: str = "", tool_version: str = "") -> Fit:
    """Fit thresholds for every wanted metric.

    Raises:
        ConfigError: there are too few successful runs (the message says how many are needed), or no metric is left.
        StepError: the episodes come from several policies or configurations.
    """
    origin = series.origin()
    successes = [episode for episode in series.episodes if episode.success is True]
    failures = [episode for episode in series.episodes if episode.success is False]
    least = _needed_runs(options)
    if len(successes) < least:
        raise ConfigError(
            f"{len(successes)} successful runs among {len(series.episodes)} episodes: alpha {options.alpha:g} ({options.method}) needs {least}; "
            "record more, label those whose outcome is unknown, or raise alpha"
        )
    rng = np.random.default_rng(options.seed)
    in_mean = {episode.name for episode, drawn in zip(successes, _draw(rng, len(successes), options.mean_share), strict=True) if drawn}
    notices: list[str] = []
    metrics: list[tuple[_Metric, MetricThreshold]] = []
    for key in _wanted(series, options.metrics):
        metric = _collect(key, successes, _signed(key, series, options))
        found = _threshold(metric, series, options, in_mean, least, notices)
        if found is not None:
            metrics.append((metric, found))
    if not metrics:
        raise ConfigError("no metric can be calibrated:\n" + "\n".join(notices))
    joint = _joint([metric for metric, _ in metrics], successes, options, in_mean)
    if len(metrics) > 1 and not joint:
        notices.append(
            f"joint thresholds: {len(successes)} successful runs, {_with_mean_set(options)} are needed; "
            f"a vote in which one voice is enough may raise false alarms in up to {len(metrics)} x {options.alpha:g} of the successes"
        )
    counts = Counts(
        episodes=len(series.episodes),
        successes=len(successes),
        failures=len(failures),
        unknown=len(series.episodes) - len(successes) - len(failures),
    )
    thresholds = Thresholds(
        identity=Identity(
            policy=origin.policy,
            version=origin.version,
            config=origin.config,
            logits_source=origin.logits_source,
            support=origin.support,
            classes=origin.classes,
            tasks=tuple(series.tasks),
        ),
        alpha=options.alpha,
        method=options.method,
        form="interpolated" if options.interpolated else "finite_sample",
        date=date,
        tool_version=tool_version,
        counts=counts,
        metrics=tuple(found.model_copy(update={"joint": joint.get(found.metric)}) for _, found in metrics),
        seen=tuple(episode.name for episode in series.episodes),
    )
    return Fit(thresholds, tuple(notices))


def learned_direction(key: str, episodes: Iterable[EpisodeSeries]) -> tuple[float, float]:
    """(sign, weight) of a metric from labelled runs, each at its task's common time: +1 where failures score higher.

    The weight is how far the AUROC is from chance, 0 to 1, and 0 when its interval holds chance: then the runs do not tell.
    """
    labelled = [episode for episode in episodes if episode.success is not None]
    cuts = cut_steps(labelled, "common")
    best = (1.0, 0.0)
    for sign in (1.0, -1.0):
        scores = [score_at(sign * episode.statements(key), cuts[episode.task]) for episode in labelled]
        found = auroc_interval(*by_class(scores, [not episode.success for episode in labelled]), draws=500)
        if found.value is not None and found.low is not None and found.low > 0.5 and 2 * found.value - 1 > best[1]:
            best = (sign, 2 * found.value - 1)
    return best


def _needed_runs(options: FitOptions) -> int:
    return needed(options.alpha) if options.method == "constant" else _with_mean_set(options)


def _with_mean_set(options: FitOptions) -> int:
    """Successes that are needed where a share of them goes into the centre."""
    total = least = needed(options.alpha)
    while total - _mean_count(total, options.mean_share) < least:
        total += 1
    return total


def _mean_count(n: int, share: float) -> int:
    return max(1, round(share * n))


def _draw(rng: np.random.Generator, n: int, share: float) -> list[bool]:
    drawn = np.zeros(n, bool)
    drawn[rng.permutation(n)[: _mean_count(n, share)]] = True
    return [bool(one) for one in drawn]


def _wanted(series: SeriesSet, patterns: Sequence[str]) -> list[str]:
    keys = series.keys
    if patterns:
        for pattern in patterns:
            if not fnmatch.filter(keys, pattern):
                raise ConfigError(f"--metric {pattern}: no metric with statements is called so; there are: {', '.join(keys) or 'none'}")
    chosen = [key for key in keys if any(fnmatch.fnmatchcase(key, pattern) for pattern in (patterns or RECOMMENDED))]
    return chosen or keys


def _signed(key: str, series: SeriesSet, options: FitOptions) -> tuple[float, float]:
    if any(fnmatch.fnmatchcase(key, pattern) for pattern in options.below):
        return -1.0, 1.0
    return learned_direction(key, series.episodes) if options.learn else (1.0, 1.0)


def _collect(key: str, successes: Sequence[EpisodeSeries], direction: tuple[float, float]) -> _Metric:
    metric = _Metric(key, *direction)
    for episode in successes:
        row = metric.sign * episode.statements(key)
        if np.isfinite(row).any():
            metric.names.append(episode.name)
            metric.rows.append(row)
    return metric


def _threshold(metric: _Metric, series: SeriesSet, options: FitOptions, in_mean: set[str], least: int, notices: list[str]) -> MetricThreshold | None:
    """Threshold of one metric alone; None, with a notice, when it cannot have one."""
    key = metric.key
    if options.learn and metric.weight == 0.0:
        notices.append(f"{key}: left out: the labelled runs do not tell its direction")
        return None
    if len(metric.rows) < least:
        notices.append(f"{key}: left out: statements in {len(metric.rows)} successful runs, {least} are needed")
        return None
    level: Level
    centre: Level
    if options.method == "functional":
        mean_set = [row for name, row in zip(metric.names, metric.rows, strict=True) if name in in_mean]
        rest = [row for name, row in zip(metric.names, metric.rows, strict=True) if name not in in_mean]
        band = _band(mean_set, rest, options)
        if band is None or band.upper is None:
            notices.append(f"{key}: left out: statements in {len(mean_set)} and {len(rest)} runs of the two sets; {needed(options.alpha)} are needed")
            return None
        level, centre, runs = _signed_level(metric.sign, band.upper), _signed_level(metric.sign, band.mu), len(metric.rows)
    else:
        scores = [float(np.nanmax(row)) for row in metric.rows]
        upper = float(np.quantile(scores, 1 - options.alpha)) if options.interpolated else split_threshold(scores, options.alpha)
        if upper is None or not np.isfinite(upper):
            notices.append(f"{key}: left out: no finite threshold from {len(scores)} successful runs (infinite values?)")
            return None
        level, centre, runs = metric.sign * upper + 0.0, metric.sign * float(np.median(scores)) + 0.0, len(scores)
        if min(scores) == max(scores):
            notices.append(f"{key}: {level:g} in all {len(scores)} successful runs; any value beyond it will alarm")
    info = series.infos[key]
    direction: Direction = "above" if metric.sign > 0 else "below"
    if level == (info.high if metric.sign > 0 else info.low):
        notices.append(f"{key}: left out: successes reach the end of its range ({level:g}), so it could never alarm")
        return None
    return MetricThreshold(
        metric=key,
        label=info.label,
        family=info.family,
        unit=info.unit,
        direction=direction,
        threshold=level,
        centre=centre,
        weight=metric.weight,
        runs=runs,
    )


def _band(mean_set: Sequence[Float], rest: Sequence[Float], options: FitOptions) -> Band | None:
    if not mean_set or not rest:
        return None
    length = max(row.size for row in (*mean_set, *rest))
    first = padded(mean_set, length)
    floor = max(SIGMA_FLOOR, FLOOR_SHARE * float(np.std(first)))
    return functional_band(first, padded(rest, length), options.alpha, interpolated=options.interpolated, floor=floor)


def _signed_level(sign: float, values: Float) -> tuple[float, ...]:
    return tuple(float(value) for value in sign * values)


def _joint(metrics: Sequence[_Metric], successes: Sequence[EpisodeSeries], options: FitOptions, in_mean: set[str]) -> Mapping[str, Level]:
    """Thresholds under which all metrics together keep alpha: one band over metrics (and steps), each metric scaled by its spread in the mean set.

    A run without statements of a metric cannot alarm on it: it counts as calm there. Empty when the sets are too small, and for a single
    constant threshold, which needs none.
    """
    if len(metrics) == 1 and options.method == "constant":
        return {}
    length = max(episode.length for episode in successes)
    steps = length if options.method == "functional" else 1
    tables, spreads = {}, {}
    for metric in metrics:
        rows = {name: max_so_far(row)[-1:] if steps == 1 else row for name, row in zip(metric.names, metric.rows, strict=True)}
        filled = dict(zip(rows, padded(list(rows.values()), steps), strict=True))
        centre = [filled[name] for name in filled if name in in_mean]
        if not centre:
            return {}
        calm = np.mean(centre, axis=0)
        spreads[metric.key] = float(np.std(centre)) or 1.0
        tables[metric.key] = np.array([filled.get(episode.name, calm) for episode in successes]) / spreads[metric.key]
    everything = np.concatenate([tables[metric.key] for metric in metrics], axis=1)
    if not np.isfinite(everything).all():
        return {}
    chosen = np.array([episode.name in in_mean for episode in successes])
    band = functional_band(everything[chosen], everything[~chosen], options.alpha, interpolated=options.interpolated, floor=FLOOR_SHARE)
    if band.upper is None:
        return {}
    levels: dict[str, Level] = {}
    for number, metric in enumerate(metrics):
        upper = band.upper[number * steps : (number + 1) * steps] * spreads[metric.key] * metric.sign
        levels[metric.key] = float(upper[0]) if steps == 1 else tuple(float(value) for value in upper)
    return levels

"""The statistics of detection studies, as pure functions over scores of runs.

What is undefined is None, never 0, and the counts beside it tell why. NaN scores are left out and not counted; +-inf can be ranked and stays.
Formulas: Valle et al. (arXiv 2507.17049) for effect sizes and correlation; Pietrobon et al. (arXiv 2507.17383) for calibration errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Magnitude = Literal["negligible", "small", "medium", "large"]
Strength = Literal["none", "weak", "moderate", "strong"]
CONFIDENCE = 0.95


class Effect(NamedTuple):
    """Vargha-Delaney: `a12` = P(x > y) + P(x = y) / 2; `d` = 2 |a12 - 0.5|."""

    a12: float | None
    d: float | None
    magnitude: Magnitude | None
    n_x: int
    n_y: int


class Correlation(NamedTuple):
    """Spearman's `rho` over `n` pairs, two-sided `p` (t approximation)."""

    rho: float | None
    p: float | None
    strength: Strength | None
    n: int


class RankTest(NamedTuple):
    """Mann-Whitney: `u` of x, two-sided `p` (normal approximation with ties and continuity correction)."""

    u: float | None
    p: float | None
    n_x: int
    n_y: int


class Normality(NamedTuple):
    """Shapiro-Wilk: `w` and `p`; small p: not normal."""

    w: float | None
    p: float | None
    n: int


class Interval(NamedTuple):
    """Both ends; None when there is nothing to estimate from."""

    low: float | None
    high: float | None


class Auroc(NamedTuple):
    """Area under the ROC curve of "failure", with a bootstrap interval."""

    value: float | None
    low: float | None
    high: float | None
    n_success: int
    n_failure: int


class CalibrationError(NamedTuple):
    """How well a confidence tells the chance of success: `ece1`, `ece2` (order 1 and 2), Brier score, negative log-likelihood (nat)."""

    ece1: float | None
    ece2: float | None
    brier: float | None
    nll: float | None
    n: int


class Agreement(NamedTuple):
    """Two raters: share of equal labels, and Cohen's `kappa`, which takes off what chance would give."""

    kappa: float | None
    share: float | None
    n: int


def a12_magnitude(a12: float) -> Magnitude:
    """Name of an effect size: negligible below d = 0.147, small below 0.33, medium below 0.474, else large."""
    d = 2.0 * abs(a12 - 0.5)
    return "negligible" if d < 0.147 else "small" if d < 0.33 else "medium" if d < 0.474 else "large"


def rho_strength(rho: float) -> Strength:
    """Name of a correlation: none below 0.10, weak to 0.29, moderate to 0.49, else strong."""
    size = abs(rho)
    return "none" if size < 0.10 else "weak" if size <= 0.29 else "moderate" if size <= 0.49 else "strong"


def a12(x: ArrayLike, y: ArrayLike) -> Effect:
    """Effect size between two groups, each (n,). In our tables x are successes and y failures, so below 0.5 is wanted."""
    first, second = _numbers(x), _numbers(y)
    n, m = first.size, second.size
    if n == 0 or m == 0:
        return Effect(None, None, None, n, m)
    ranks = stats.rankdata(np.concatenate([first, second]))
    value = float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))
    return Effect(value, 2.0 * abs(value - 0.5), a12_magnitude(value), n, m)


def spearman(x: ArrayLike, y: ArrayLike) -> Correlation:
    """Rank correlation of pairs, both (n,); pairs with NaN are left out. Undefined below 3 pairs and when a side is constant.

    Raises:
        ValueError: x and y differ in length.
    """
    first, second = _pairs(x, y)
    n = first.size
    if n < 3 or _constant(first) or _constant(second):
        return Correlation(None, None, None, n)
    found = stats.spearmanr(stats.rankdata(first), stats.rankdata(second))
    rho = float(found.statistic)
    return Correlation(rho, float(found.pvalue), rho_strength(rho), n)


def mann_whitney(x: ArrayLike, y: ArrayLike) -> RankTest:
    """Two-sided test that both groups, each (n,), have the same distribution. `p` is undefined when all values are equal."""
    first, second = _numbers(x), _numbers(y)
    n, m = first.size, second.size
    if n == 0 or m == 0:
        return RankTest(None, None, n, m)
    both = stats.rankdata(np.concatenate([first, second]))
    if _constant(both):
        return RankTest(n * m / 2.0, None, n, m)
    found = stats.mannwhitneyu(both[:n], both[n:], alternative="two-sided", method="asymptotic", use_continuity=True)
    return RankTest(float(found.statistic), float(found.pvalue), n, m)


def shapiro_wilk(x: ArrayLike) -> Normality:
    """Test of normality of (n,). Undefined below 3 values, for a constant and for infinite values."""
    values = _numbers(x)
    if values.size < 3 or _constant(values) or not np.all(np.isfinite(values)):
        return Normality(None, None, values.size)
    found = stats.shapiro(values)
    return Normality(float(found.statistic), float(found.pvalue), values.size)


def auroc(success: ArrayLike, failure: ArrayLike) -> float | None:
    """P(score of a failure > score of a success), ties counted half; None when a class is empty."""
    return a12(failure, success).a12


def auroc_interval(success: ArrayLike, failure: ArrayLike, *, draws: int = 1000, seed: int = 0, confidence: float = CONFIDENCE) -> Auroc:
    """AUROC with a percentile bootstrap over runs, drawn within each class. Same seed, same interval."""
    return auroc_mean_interval([(success, failure)], draws=draws, seed=seed, confidence=confidence)


def auroc_mean_interval(groups: Sequence[tuple[ArrayLike, ArrayLike]], *, draws: int = 1000, seed: int = 0, confidence: float = CONFIDENCE) -> Auroc:
    """Mean of the AUROCs of several groups (tasks) of (success scores, failure scores); runs are drawn within group and class.

    Groups with one class only have no AUROC and are left out, of the counts too; None when that leaves none.
    """
    tables = [_wins(_numbers(success), _numbers(failure)) for success, failure in groups]
    tables = [table for table in tables if table.size]
    if not tables:
        pairs = [(_numbers(success).size, _numbers(failure).size) for success, failure in groups]
        return Auroc(None, None, None, sum(n for n, _ in pairs), sum(m for _, m in pairs))
    rng = np.random.default_rng(seed)
    means = np.zeros(draws)
    for table in tables:
        m, n = table.shape
        failures = rng.multinomial(m, np.full(m, 1.0 / m), draws)
        successes = rng.multinomial(n, np.full(n, 1.0 / n), draws)
        means += np.einsum("bi,ij,bj->b", failures, table, successes, optimize=True) / (m * n)
    low, high = np.quantile(means / len(tables), [(1 - confidence) / 2, (1 + confidence) / 2])
    value = float(np.mean([table.mean() for table in tables]))
    return Auroc(value, float(low), float(high), sum(t.shape[1] for t in tables), sum(t.shape[0] for t in tables))


def roc_curve(success: ArrayLike, failure: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points of the ROC curve (false-alarm share, detected share), both (k,), from (0, 0) to (1, 1). Empty when a class is empty."""
    first, second = np.sort(_numbers(success)), np.sort(_numbers(failure))
    if first.size == 0 or second.size == 0:
        return np.zeros(0), np.zeros(0)
    cuts = np.unique(np.concatenate([first, second]))[::-1]
    above = [1.0 - np.searchsorted(group, cuts, side="left") / group.size for group in (first, second)]
    return np.concatenate([[0.0], above[0]]), np.concatenate([[0.0], above[1]])


def calibration_error(confidence: ArrayLike, success: ArrayLike, bins: int = 12) -> CalibrationError:
    """Calibration of a confidence in [0, 1] against success 0 or 1, both (n,), in bins of equal count.

    ece_p = (sum_b n_b / n |mean confidence_b - mean success_b|^p)^(1/p), without debiasing. With fewer runs than bins each run is a bin.

    Raises:
        ValueError: lengths differ, or a confidence lies outside [0, 1].
    """
    sure, good = _pairs(confidence, success)
    n = sure.size
    if n == 0:
        return CalibrationError(None, None, None, None, 0)
    if sure.min() < 0 or sure.max() > 1:
        raise ValueError(f"confidence {sure.min():g} to {sure.max():g}: expected numbers in [0, 1]")
    order = np.argsort(sure, kind="stable")
    parts = [part for part in np.array_split(order, bins) if part.size]
    share = np.array([part.size / n for part in parts])
    gap = np.array([abs(sure[part].mean() - good[part].mean()) for part in parts])
    clipped = np.clip(np.where(good > 0.5, sure, 1.0 - sure), 1e-12, None)
    return CalibrationError(
        float(share @ gap), math.sqrt(float(share @ gap**2)), float(np.mean((sure - good) ** 2)), float(-np.mean(np.log(clipped))), n
    )


def cohen_kappa(first: Sequence[str | None], second: Sequence[str | None]) -> Agreement:
    """Agreement of two raters over the same runs; runs that one of them left out (None) do not count. Undefined when both always say the same word.

    Raises:
        ValueError: the raters have lists of different lengths.
    """
    both = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    n = len(both)
    if n == 0:
        return Agreement(None, None, 0)
    share = sum(a == b for a, b in both) / n
    chance = sum(sum(a == word for a, _ in both) * sum(b == word for _, b in both) for word in {a for a, _ in both}) / n**2
    return Agreement(None if chance == 1.0 else (share - chance) / (1.0 - chance), share, n)


def wilson_interval(count: int, n: int, confidence: float = CONFIDENCE) -> Interval:
    """Interval for a share that was seen `count` times in `n`."""
    if n == 0:
        return Interval(None, None)
    found = stats.binomtest(count, n).proportion_ci(confidence, method="wilson")
    return Interval(float(found.low), float(found.high))


def binomial_range(n: int, rate: float, confidence: float = CONFIDENCE) -> Interval:
    """Shares of `n` runs between which a true `rate` falls with this confidence."""
    if n == 0:
        return Interval(None, None)
    low, high = stats.binom.interval(confidence, n, rate)
    return Interval(float(low) / n, float(high) / n)


def conformal_range(n: int, calibrated_on: int, alpha: float, confidence: float = CONFIDENCE) -> Interval:
    """Shares of `n` new successes between which alarms of a finite-sample conformal threshold fall.

    Wider than `binomial_range`: the threshold itself came from `calibrated_on` runs, so the count of alarms is beta-binomial.
    """
    rank = math.ceil((calibrated_on + 1) * (1 - alpha) - 1e-9)
    if n == 0 or rank > calibrated_on:
        return Interval(None, None)
    low, high = stats.betabinom.interval(confidence, n, calibrated_on + 1 - rank, rank)
    return Interval(float(low) / n, float(high) / n)


def _numbers(given: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(given, dtype=np.float64).reshape(-1)
    return values[~np.isnan(values)]


def _pairs(x: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    first, second = np.asarray(x, dtype=np.float64).reshape(-1), np.asarray(y, dtype=np.float64).reshape(-1)
    if first.size != second.size:
        raise ValueError(f"pairs: {first.size} values beside {second.size}; give one for each run")
    both = ~np.isnan(first) & ~np.isnan(second)
    return first[both], second[both]


def _constant(values: NDArray[np.float64]) -> bool:
    return bool(np.all(values == values[0]))


def _wins(success: NDArray[np.float64], failure: NDArray[np.float64]) -> NDArray[np.float64]:
    """(failures, successes): 1 where the failure scores higher, 0.5 where both are equal."""
    return np.where(failure[:, None] > success, 1.0, np.where(failure[:, None] == success, 0.5, 0.0))

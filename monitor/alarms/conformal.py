"""Thresholds from successful runs only, with a bound on false alarms that holds for exchangeable new successes.

Constant: split conformal prediction over the runs' maxima. Functional: the one-sided band of Diquigiovanni et al., as used for failure detection by
FAIL-Detect and SAFE (arXiv 2506.09937). Both bound false alarms only, never misses, and neither survives a change of task, scene or policy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from monitor.errors import ConfigError
from monitor.steps import Float

SIGMA_FLOOR = 1e-8  # of the published code: a step at which all runs agree still gives a finite D


def conformal_rank(n: int, alpha: float) -> int | None:
    """Rank k = ceil((n + 1)(1 - alpha)): the k-th smallest of n scores is the threshold. None when k > n: too few.

    Raises:
        ConfigError: alpha is not between 0 and 1.
    """
    if not 0.0 < alpha < 1.0:
        raise ConfigError(f"alpha {alpha}: expected a number between 0 and 1, for example 0.1")
    rank = math.ceil((n + 1) * (1.0 - alpha) - 1e-9)  # (n + 1)(1 - alpha) may be a whole number that floats miss
    return rank if rank <= n else None


def needed(alpha: float) -> int:
    """Smallest number of successful runs that gives a finite threshold: 9 for 0.1, 19 for 0.05."""
    return max(1, math.ceil((1.0 - alpha) / alpha - 1e-9))


def split_threshold(scores: ArrayLike, alpha: float) -> float | None:
    """Threshold above which a new success falls with probability alpha at most. scores: (n,), maxima of successful runs.

    None when there are too few (see `needed`). Raises ConfigError for NaN among the scores and for alpha outside (0, 1).
    """
    values = np.sort(np.asarray(scores, dtype=np.float64).reshape(-1))
    if np.isnan(values).any():
        raise ConfigError("scores: NaN among them; leave out runs without a statement and count them")
    rank = conformal_rank(values.size, alpha)
    return None if rank is None else float(values[rank - 1])


@dataclass(frozen=True, slots=True)
class Band:
    """A functional band over T steps; its alarm is s_t > upper_t.

    Attributes:
        mu, sigma: (T,) centre and width. distances: (m,) D of the calibration series.
        h: how many widths the band reaches; None, and `upper` too, when there are too few calibration series.
        upper: (T,) mu + h sigma. n_mean, n_calibration: number of series in either set.
    """

    mu: Float
    sigma: Float
    distances: Float
    h: float | None
    upper: Float | None
    n_mean: int
    n_calibration: int


def functional_band(mean_set: ArrayLike, calibration_set: ArrayLike, alpha: float, *, interpolated: bool = False, floor: float = SIGMA_FLOOR) -> Band:
    """Band from two disjoint sets of successful series, (n, T) and (m, T).

    The finite-sample rank by default; `interpolated` takes the (1 - alpha) quantile as published code does, without its guarantee. `floor` is added
    to the width: steps at which the mean set happens to agree would else make the band wide everywhere. The guarantee holds for any floor.

    Raises:
        ConfigError: a set is empty or holds NaN, lengths differ, or alpha is outside (0, 1).
    """
    first, second = _series(mean_set, "mean set"), _series(calibration_set, "calibration set")
    if first.shape[1] != second.shape[1]:
        raise ConfigError(f"series of {first.shape[1]} and of {second.shape[1]} steps: pad them to one length (padded)")
    mu = first.mean(axis=0)
    deviations = np.abs(first - mu)
    largest = deviations.max(axis=1)
    rank = conformal_rank(len(first), alpha)
    kept = deviations if rank is None else deviations[largest <= np.sort(largest)[rank - 1]]
    sigma = kept.max(axis=0) + floor
    distances = ((second - mu) / sigma).max(axis=1)
    h = float(np.quantile(distances, 1.0 - alpha)) if interpolated else split_threshold(distances, alpha)
    return Band(mu, sigma, distances, h, None if h is None else mu + h * sigma, len(first), len(second))


def padded(series: Sequence[ArrayLike], length: int | None = None) -> Float:
    """Series of different lengths as (n, T): a step without a number holds the last one before it (the first one after it, at the beginning).

    T is the longest unless `length` is given. Raises ConfigError for a series without any number.
    """
    rows = [np.asarray(one, dtype=np.float64).reshape(-1) for one in series]
    if not rows:
        return np.zeros((0, length or 0))
    total = max(row.size for row in rows) if length is None else length
    return np.array([_filled(row, total, number) for number, row in enumerate(rows)])


def _filled(row: Float, length: int, number: int) -> Float:
    known = np.flatnonzero(~np.isnan(row))
    if known.size == 0:
        raise ConfigError(f"series {number}: no number in {row.size} steps; leave it out")
    last = np.searchsorted(known, np.arange(length), side="right") - 1
    return row[known[np.maximum(last, 0)]]


def _series(given: ArrayLike, name: str) -> Float:
    values = np.asarray(given, dtype=np.float64)
    if values.ndim != 2 or values.size == 0:
        raise ConfigError(f"{name}: shape {values.shape}, expected (series, steps) with at least one of each")
    if np.isnan(values).any():
        raise ConfigError(f"{name}: NaN among the numbers; fill them (padded)")
    return values

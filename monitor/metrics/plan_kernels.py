"""Compiled arithmetic on plans and samples: overlapping chunks, seams, distance of two sets of samples, spread of samples.

A plan is (H, D): H future actions. Nothing here keeps state.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from monitor.metrics.jit import kernel
from monitor.metrics.window_kernels import normalise


@kernel
def overlap(previous: NDArray[np.float64], current: NDArray[np.float64], shift: int, out: NDArray[np.float64]) -> int:
    """How two plans differ about the same future steps; `current` begins `shift` steps after `previous`, both (H, D).

    Writes into `out` (2,) the mean Euclidean distance and the mean squared difference; NaN without a common step. Returns their number.
    """
    rows = min(previous.shape[0] - shift, current.shape[0])
    out[0], out[1] = np.nan, np.nan
    if rows < 1 or shift < 0:
        return 0
    distance, squared = 0.0, 0.0
    for i in range(rows):
        square = 0.0
        for d in range(current.shape[1]):
            square += (previous[shift + i, d] - current[i, d]) ** 2
        distance += math.sqrt(square)
        squared += square
    out[0], out[1] = distance / rows, squared / (rows * current.shape[1])
    return int(rows)


@kernel
def length(plan: NDArray[np.float64]) -> float:
    """Euclidean norm of all numbers of a plan (H, D)."""
    square = 0.0
    for i in range(plan.shape[0]):
        for d in range(plan.shape[1]):
            square += plan[i, d] * plan[i, d]
    return math.sqrt(square)


@kernel
def _squared(points: NDArray[np.float64], i: int, j: int) -> float:
    square = 0.0
    for f in range(points.shape[1]):
        square += (points[i, f] - points[j, f]) ** 2
    return square


@kernel
def squared_mmd(points: NDArray[np.float64], first: int, gamma: float) -> float:
    """Biased squared maximum mean discrepancy between rows 0..first and first..N of `points` (N, F); kernel exp(-gamma |x - y|^2).

    A gamma of 0 or less stands for 1 / (2 x median of the non-zero squared distances of all rows); 1 when all rows are equal.
    """
    count = points.shape[0]
    second = count - first
    table, nonzero, found = np.zeros((count, count)), np.empty(count * count), 0
    for i in range(count):
        for j in range(i):
            square = _squared(points, i, j)
            table[i, j] = square
            if square > 0.0:
                nonzero[found] = square
                found += 1
    if gamma <= 0.0:
        gamma = 1.0 / (2.0 * np.median(nonzero[:found])) if found > 0 else 1.0
    xx, yy, xy = float(first), float(second), 0.0
    for i in range(count):
        for j in range(i):
            k = math.exp(-gamma * table[i, j])
            if i < first:
                xx += 2.0 * k
            elif j >= first:
                yy += 2.0 * k
            else:
                xy += k
    return float(max(0.0, xx / (first * first) + yy / (second * second) - 2.0 * xy / (first * second)))


@kernel
def flatten(samples: NDArray[np.floating], count: int, start: int, rows: int, used: NDArray[np.bool_], points: NDArray[np.float64], at: int) -> None:
    """Write rows start..start + rows and the used dimensions of the first `count` samples (B, H, D) into points[at:], one sample a row."""
    for b in range(count):
        f = 0
        for i in range(start, start + rows):
            for d in range(samples.shape[2]):
                if used[d]:
                    points[at + b, f] = samples[b, i, d]
                    f += 1


@kernel
def all_finite(samples: NDArray[np.floating]) -> bool:
    """Whether every number of (B, H, D) is finite."""
    for b in range(samples.shape[0]):
        for i in range(samples.shape[1]):
            for d in range(samples.shape[2]):
                if not math.isfinite(samples[b, i, d]):
                    return False
    return True


@kernel
def spread(samples: NDArray[np.floating], row: int, low: NDArray[np.float64], high: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Population standard deviation of row `row` of the samples (B, H, D), scaled to the range and clipped, into `out` (D,); NaN without a range."""
    count, dims = samples.shape[0], samples.shape[2]
    action, scaled = np.empty(dims), np.empty((count, dims))
    for b in range(count):
        for d in range(dims):
            action[d] = samples[b, row, d]
        normalise(action, low, high, scaled[b])
    for d in range(dims):
        mean, square = 0.0, 0.0
        for b in range(count):
            mean += scaled[b, d] / count
        for b in range(count):
            square += (scaled[b, d] - mean) ** 2
        out[d] = math.sqrt(square / count)


@kernel
def cell_entropy(positions: NDArray[np.float64], cell: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Entropy in bits of positions (B, 3) on a joint grid of `cell` (3,), anchored at the smallest coordinates. labels: (B, 3), room."""
    count = positions.shape[0]
    for d in range(3):
        lowest = positions[0, d]
        for b in range(count):
            lowest = min(lowest, positions[b, d])
        for b in range(count):
            labels[b, d] = math.floor((positions[b, d] - lowest) / cell[d])
    total = 0.0
    for b in range(count):
        same = 0
        for c in range(count):
            same += labels[b, 0] == labels[c, 0] and labels[b, 1] == labels[c, 1] and labels[b, 2] == labels[c, 2]
        total -= math.log2(same / count) / count
    return max(total, 0.0)


@kernel
def mean_cell_entropy(samples: NDArray[np.floating], dims: NDArray[np.int64], cumulate: bool, cell: NDArray[np.float64]) -> float:
    """Mean over the H steps of `cell_entropy` of the sampled positions; samples (B, H, D), dims (3,) position dimensions, cell (3,).

    With `cumulate` the samples are increments and the position is their sum so far.
    """
    count, rows = samples.shape[0], samples.shape[1]
    positions, labels = np.zeros((count, 3)), np.empty((count, 3), dtype=np.int64)
    total = 0.0
    for i in range(rows):
        for b in range(count):
            for d in range(3):
                part = np.float64(samples[b, i, dims[d]])
                positions[b, d] = positions[b, d] + part if cumulate else part
        total += cell_entropy(positions, cell, labels)
    return float(total / rows)


@kernel
def upper_quartile(values: NDArray[np.float64], count: int) -> float:
    """The value that a quarter of the first `count` values lies above; 0 for none."""
    if count == 0:
        return 0.0
    ordered = np.sort(values[:count])
    return float(ordered[int(0.75 * (count - 1))])


@kernel
def seam_jumps(
    previous: NDArray[np.float64],
    before: NDArray[np.float64],
    chunk: NDArray[np.float64],
    row: int,
    used: NDArray[np.bool_],
    floor: NDArray[np.float64],
    absolute: bool,
    out: NDArray[np.float64],
) -> None:
    """Jumps of a new chunk, in usual steps.

    The usual step of a dimension is the upper quartile of |a_i - a_i-1| inside both chunks, at least `floor`. Of increments (not absolute) it is at
    least the upper quartile of |a_i| too: an increment of the usual size may follow on none.

    Arrays and scalars:
        previous: (Hp, D), the chunk before; (0, D) for none. before: (D,), the last command of it; (0,) for none.
        chunk: (H, D). row: the row that is executed first.
        used, floor: (D,).
        out: (6,), written: largest jump at the boundary, its dimension and size; largest jump inside, its dimension and row. NaN for none.
    """
    for i in range(6):
        out[i] = np.nan
    steps = np.empty(previous.shape[0] + chunk.shape[0])
    sizes = np.empty(previous.shape[0] + chunk.shape[0])
    for d in range(chunk.shape[1]):
        if not used[d]:
            continue
        count, values = 0, 0
        for table in (previous, chunk):
            for i in range(table.shape[0]):
                sizes[values] = abs(table[i, d])
                values += 1
                if i > 0:
                    steps[count] = abs(table[i, d] - table[i - 1, d])
                    count += 1
        usual = max(upper_quartile(steps, count), floor[d])
        if not absolute:
            usual = max(usual, upper_quartile(sizes, values))
        if usual <= 0.0:
            continue
        if before.shape[0] > 0:
            size = abs(chunk[row, d] - before[d])
            if np.isnan(out[0]) or size / usual > out[0]:
                out[0], out[1], out[2] = size / usual, d, size
        for i in range(1, chunk.shape[0]):
            ratio = abs(chunk[i, d] - chunk[i - 1, d]) / usual
            if np.isnan(out[3]) or ratio > out[3]:
                out[3], out[4], out[5] = ratio, d, i

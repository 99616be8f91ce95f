"""The papers' package as it was run, quirks included, to compare with published numbers. Offline only; nothing here belongs in a monitor.

Quirks: softmax over the whole head, float32 (bfloat16 for pi0), rounding to five decimals, the end token counted; zeros while the window fills, which
enter the mean; ranges of 1 m and pi/2; jerk with dt = 1 that holds acceleration, averaged without squares; runs of fewer than three values skipped.
What has no quirk of its own is not repeated here: OT with the initial distance is `optimal_trajectory`, the jerk series is `published_jerk`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.metrics.actions import instability, normalised
from monitor.metrics.trajectory import published_jerk

Float = NDArray[np.float64]
WINDOW = 8
LOW: Float = np.array([-1.0, -1.0, -1.0, -np.pi / 2, -np.pi / 2, -np.pi / 2, -1.0])
HIGH: Float = -LOW
_LEAST = 3
_EPSILON = 1e-15
_DECIMALS = 5


def published_token_scores(logits: ArrayLike, precision: Literal["float32", "bfloat16"] = "float32") -> dict[str, Float]:
    """TB-E, TB-TP, TB-PCS and TB-D of every row of (n, K) logits over the whole head, rounded; keys entropy, max_prob, pcs, deepgini, each (n,).

    `bfloat16` rounds the probabilities as the package does for pi0. All rows count, the end token too.
    """
    z = np.asarray(logits, dtype=np.float32)
    e = np.exp(z - z.max(axis=1, keepdims=True))
    p = (e / e.sum(axis=1, keepdims=True, dtype=np.float32)).astype(np.float32)
    if precision == "bfloat16":
        p = _bfloat16(p)
    q = p.astype(np.float64)
    classes = q.shape[1]
    top = np.partition(q, -2, axis=1)[:, -2:]
    scale = classes / (classes - 1.0)
    scores = {
        "entropy": -(q * np.log2(q + _EPSILON)).sum(axis=1) / np.log2(classes),
        "max_prob": (1.0 - top[:, 1]) * scale,
        "pcs": 1.0 - (top[:, 1] - top[:, 0]),
        "deepgini": (1.0 - (q**2).sum(axis=1)) * scale,
    }
    return {name: np.round(values, _DECIMALS) for name, values in scores.items()}


def _bfloat16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round to the nearest number of 8 bits mantissa, ties to even."""
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32)


def published_action_series(actions: ArrayLike, order: int, low: ArrayLike = LOW, high: ArrayLike = HIGH) -> Float:
    """A-PI, A-VI or A-AI (order 1, 2, 3) of each step of (T, D) actions, gripper included; (T,), zero for the first seven steps."""
    a, bottom, top = np.asarray(actions, dtype=np.float64), np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    return _filled(np.array([normalised(row, bottom, top) for row in a]), order)


def published_tool_series(positions: ArrayLike, order: int) -> Float:
    """TCP-PI, TCP-VI or TCP-AI (order 1, 2, 3) of each step of (T, 3) positions in m, without orientation; (T,), zero for the first seven steps."""
    return _filled(np.array(positions, dtype=np.float64), order)


def _filled(rows: Float, order: int) -> Float:
    series = np.zeros(rows.shape[0])
    for end in range(WINDOW, rows.shape[0] + 1):
        series[end - 1] = instability(rows[end - WINDOW : end], order).mean()
    return series


def published_jerk_mean(positions: ArrayLike) -> float | None:
    """TI of a run of (T, 3) positions: the mean magnitude of the package's jerk series; None for a run that is skipped."""
    return published_run_value(published_jerk(positions))


def published_run_value(series: ArrayLike) -> float | None:
    """One number for a run: the mean over its steps; None for fewer than three values, which the package skips."""
    values = np.asarray(series, dtype=np.float64)
    return None if values.size < _LEAST else float(values.mean())

"""Actions against their statistics: values outside, and values that look un-normalised."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from monitor.config import MonitorConfig
from monitor.metrics.common import make_info, once, plain, range_of
from monitor.metrics.jit import kernel
from monitor.metrics.window_kernels import first_bad, push
from monitor.policy import PolicySpec
from monitor.steps import Family, Issue, MetricInfo, PolicyStep, Status

Float = NDArray[np.float64]
_OK, _WARMING_UP, _UNAVAILABLE, _INVALID = int(Status.OK), int(Status.WARMING_UP), int(Status.UNAVAILABLE), int(Status.INVALID)
_SOURCE = "field reports (allenai/vla-evaluation-harness PR 3, openvla/openvla 87); no paper defines it"
UNIT_LIMIT = 1.05  # training space is -1 to 1
_MOTION = 0.1  # of that space


@kernel
def judge_scale(ring: Float, end: int, low: Float, high: Float, ratio: float, verdict: Float) -> float:
    """Compare the last W actions with their range.

    Arrays and scalars:
        ring: (2W, D), doubled; `end`: the row after the newest. low, high: (D,).
        ratio: factor that counts as far off.
        verdict: (D,), written: largest |a| over the half range where the dimension looks un-normalised, else NaN.

    Returns:
        Share of the numbers that lie outside their range, NaN if no dimension has one.

    A dimension is too large if a third of its values are `ratio` times beyond the larger limit. Too small are all dimensions together: each one
    whose half range is `ratio` or more lies within -1 and 1, and half of them move there.
    """
    window, dims = ring.shape[0] // 2, ring.shape[1]
    outside, known, wide, small, moving = 0, 0, 0, 0, 0
    for d in range(dims):
        verdict[d] = np.nan
        half = (high[d] - low[d]) / 2.0
        if not (half > 0.0 and np.isfinite(half)):
            continue
        known += 1
        bound = max(abs(low[d]), abs(high[d]))
        peak, beyond, smallest, largest = 0.0, 0, np.inf, -np.inf
        for i in range(end - window, end):
            value = ring[i, d]
            peak = max(peak, abs(value))
            smallest, largest = min(smallest, value), max(largest, value)
            outside += value < low[d] or value > high[d]
            beyond += abs(value) > ratio * bound
        if 3 * beyond >= window:
            verdict[d] = peak / half
        if half >= ratio:
            wide += 1
            small += peak <= UNIT_LIMIT
            moving += largest - smallest >= _MOTION
    if wide > 1 and small == wide and 2 * moving >= wide:
        for d in range(dims):
            half = (high[d] - low[d]) / 2.0
            if half >= ratio and np.isfinite(half):
                peak = 0.0
                for i in range(end - window, end):
                    peak = max(peak, abs(ring[i, d]))
                verdict[d] = peak / half
    return outside / (known * window) if known > 0 else np.nan


@kernel
def update_scale(
    action: Float,
    low: Float,
    high: Float,
    ratio: float,
    ring: Float,
    state: NDArray[np.int64],
    verdict: Float,
    values: Float,
    statuses: NDArray[np.uint8],
) -> int:
    """Take one action (D,) into the doubled ring (2W, D) with state [filled, next row]; the rest as `judge_scale`.

    values, statuses: (2,), written. Returns the number of dimensions that look un-normalised.
    """
    values[0], values[1] = np.nan, np.nan
    if action.shape[0] != ring.shape[1] or first_bad(action) >= 0:
        statuses[:] = _INVALID
        return 0
    end = push(ring, state, action)
    if state[0] < ring.shape[0] // 2:
        statuses[:] = _WARMING_UP
        return 0
    share = judge_scale(ring, end, low, high, ratio, verdict)
    if np.isnan(share):
        statuses[:] = _UNAVAILABLE
        return 0
    flagged = 0
    for d in range(verdict.shape[0]):
        flagged += not np.isnan(verdict[d])
    values[0], values[1] = 1.0 if flagged > 0 else 0.0, share
    statuses[:] = _OK
    return flagged


class ScaleMetrics:
    """Compares the last `scale.steps` actions with the declared range. Without a range there is no statement, and no guess.

    A robot that holds a pose is not flagged: small values count only if they move as values of the training space do. One wide dimension alone
    may well be near zero, so at least two must agree. Unusable actions are skipped; the validity metrics name them.
    """

    def __init__(self, spec: PolicySpec, config: MonitorConfig) -> None:
        """Prepare buffers and compile."""
        self.infos = _infos()
        self._spec, self._ratio = spec, config.scale.ratio
        self._limits = range_of(spec, config.actions.low, config.actions.high)
        self._ring, self._state = np.zeros((2 * config.scale.steps, spec.action_dim)), np.zeros(2, dtype=np.int64)
        self._verdict = np.empty(spec.action_dim)
        if self._limits is not None:
            self._take(np.zeros(spec.action_dim), np.empty(2), np.empty(2, dtype=np.uint8))
        self.reset()

    def reset(self) -> None:
        """Forget the episode."""
        self._state[:] = 0
        self._told: set[str] = set()

    def update(self, step: PolicyStep, values: Float, statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        """Take one step; see Metric."""
        if self._limits is None or not self._take(plain(step.action), values, statuses) or self._told:
            return ()
        return once(self._issue(np.flatnonzero(~np.isnan(self._verdict))), self._told)

    def _take(self, action: Float, values: Float, statuses: NDArray[np.uint8]) -> int:
        assert self._limits is not None
        return update_scale(action, *self._limits, self._ratio, self._ring, self._state, self._verdict, values, statuses)

    def _issue(self, dims: NDArray[np.int64]) -> Issue:
        names = ", ".join(f"{d} ({self._spec.action_names[d]})" for d in dims)
        ratio = float(np.median(self._verdict[dims]))
        return Issue(
            "unnormalised", f"actions look un-normalised: their size is {ratio:.2g} of the half range of their statistics, in dimensions {names}"
        )


def _infos() -> tuple[MetricInfo, ...]:
    rows = (
        (
            "flag",
            "Un-normalised",
            "looks un-normalised",
            "1 if the last scale.steps actions are scale.ratio times beyond their range, or stay in -1..1",
        ),
        ("outside", "Outside range", "more clipped", "share of the numbers of the last scale.steps actions outside low..high"),
    )
    return tuple(
        make_info("scale", variant, label, Family.VALIDITY, formula, high=1.0, higher_means=meaning, source=_SOURCE)
        for variant, label, meaning, formula in rows
    )

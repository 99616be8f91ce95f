"""TCP-PI, TCP-VI, TCP-AI and TI: how steady the measured tool moves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.config import MonitorConfig
from monitor.metrics.common import NO_FLOATS, make_info, plain
from monitor.metrics.trajectory import between
from monitor.metrics.window_kernels import ORDERS, TI_SAMPLES, update_tool
from monitor.policy import PolicySpec
from monitor.steps import Family, Issue, MetricInfo, PolicyStep

_LABELS = (("tcp_pi", "TCP-PI"), ("tcp_vi", "TCP-VI"), ("tcp_ai", "TCP-AI"))
_ENTRIES = 3 * ORDERS + 1
_START = np.zeros((4, 2), dtype=np.int64)
_START[3, 0] = -2


class ToolMetrics:
    """Differences of the tool pose over the last W samples without a gap, and the root mean square of its jerk.

    Rotations are increments in the fixed frame, so neither the sign of a quaternion nor a turn through 180 degrees shows. A missing or unusable
    position or quaternion starts the window of that part anew. Steps that are lost are filled in between their neighbours if no more time than
    `motion.max_gap` periods has passed; a longer gap starts both windows anew. With `motion.resample` the samples are the poses on a uniform time
    grid that starts with the segment; a step that reaches no new grid point repeats the values of the last one.
    """

    def __init__(self, spec: PolicySpec, config: MonitorConfig) -> None:
        """Prepare buffers and compile."""
        window = config.window
        self.infos = _infos()
        self._dt, self._scale = 1.0 / spec.control_hz, config.motion.length_scale_m
        self._max_gap, self._resample = config.motion.max_gap * self._dt * (1.0 + 1e-9), config.motion.resample
        self._most_lost = config.motion.max_gap
        self._positions = np.empty((2 * max(window, TI_SAMPLES), 3))
        self._rotations = np.empty((2 * (window - 1), 3))
        self._jerks = np.empty((2 * (window - ORDERS), 1))
        self._previous, self._states = np.zeros(8), _START.copy()
        self._values, self._statuses = np.empty(_ENTRIES), np.empty(_ENTRIES, dtype=np.uint8)
        self._take(np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]), 0, self._values, self._statuses)
        self.reset()

    def reset(self) -> None:
        """Forget the episode."""
        self._states[:] = _START
        self._last_step, self._last_time = -1, 0.0
        self._last: _Pose | None = None
        self._grid_start, self._grid_next = 0.0, 0

    def update(self, step: PolicyStep, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        """Take one step; see Metric."""
        position = NO_FLOATS if step.tcp_position is None else plain(step.tcp_position)
        quaternion = NO_FLOATS if step.tcp_quaternion is None else plain(step.tcp_quaternion)
        if self._resample:
            return self._update_grid(step, position, quaternion, values, statuses)
        if step.step > self._last_step + 1 and self._states[0, 0] > 0:
            self._fill(step, position, quaternion)
        self._last_step, self._last_time = step.step, step.time
        bad = self._take(position, quaternion, step.step, values, statuses)
        return () if bad == 0 else _issues(bad, position, quaternion)

    def _fill(self, step: PolicyStep, position: NDArray[np.float64], quaternion: NDArray[np.float64]) -> None:
        """Take the poses of the lost steps before `step`, if the gap is short."""
        first, lost = self._last_step, step.step - self._last_step
        if lost > self._most_lost or not 0.0 < step.time - self._last_time <= self._max_gap or not _finite(position):
            return
        before = self._positions[(self._states[0, 1] - 1) % (self._positions.shape[0] // 2)].copy()
        turn = self._previous[:4].copy() if self._states[3, 1] == 1 else None
        for i in range(1, lost):
            moved, turned = between(before, turn, position, _four(quaternion), i / lost)
            self._take(moved, NO_FLOATS if turned is None else turned, first + i, self._values, self._statuses)

    def _update_grid(
        self,
        step: PolicyStep,
        position: NDArray[np.float64],
        quaternion: NDArray[np.float64],
        values: NDArray[np.float64],
        statuses: NDArray[np.uint8],
    ) -> tuple[Issue, ...]:
        """As `update`, on the grid start + j * dt; a grid point is taken once a pose at or after it has arrived."""
        last, self._last = self._last, _Pose(step.time, position.copy(), quaternion.copy())
        good = last is not None and _finite(last.position) and _finite(position)
        if last is None or not good or not 0.0 < step.time - last.time <= self._max_gap:
            self._states[:] = _START
            self._grid_start, self._grid_next = step.time, 1
            bad = self._take(position, quaternion, 0, self._values, self._statuses)
            values[:], statuses[:] = self._values, self._statuses
            return () if bad == 0 else _issues(bad, position, quaternion)
        while (at := self._grid_start + self._grid_next * self._dt) <= step.time + 1e-9 * self._dt:
            share = min(max((at - last.time) / (step.time - last.time), 0.0), 1.0)
            moved, turned = between(last.position, _four(last.quaternion), position, _four(quaternion), share)
            self._take(moved, NO_FLOATS if turned is None else turned, self._grid_next, self._values, self._statuses)
            self._grid_next += 1
        values[:], statuses[:] = self._values, self._statuses
        return ()

    def _take(
        self, position: NDArray[np.float64], quaternion: NDArray[np.float64], step: int, values: NDArray[np.float64], statuses: NDArray[np.uint8]
    ) -> int:
        return update_tool(
            position,
            quaternion,
            self._scale,
            self._dt,
            self._positions,
            self._rotations,
            self._jerks,
            self._previous,
            self._states,
            step,
            values,
            statuses,
        )


class _Pose(NamedTuple):
    time: float
    position: NDArray[np.float64]
    quaternion: NDArray[np.float64]


def _finite(position: NDArray[np.float64]) -> bool:
    return position.shape[0] == 3 and bool(np.isfinite(position).all())


def _four(quaternion: NDArray[np.float64]) -> NDArray[np.float64] | None:
    return quaternion if quaternion.shape[0] == 4 else None


def _issues(bad: int, position: NDArray[np.float64], quaternion: NDArray[np.float64]) -> tuple[Issue, ...]:
    found = []
    if bad & 1:
        found.append(Issue("tool_position", f"tool position is {position.tolist()}, expected three finite numbers (m)"))
    if bad & 2:
        found.append(Issue("tool_quaternion", f"tool quaternion is {quaternion.tolist()}, expected four finite numbers w, x, y, z of length 1"))
    return tuple(found)


def _infos() -> tuple[MetricInfo, ...]:
    infos = []
    for order, (metric, label) in enumerate(_LABELS, start=1):
        inner = "ω" if order == 1 else f"Δ^{order - 1} ω"
        texts = (
            ("full", "m", "(p + length_scale * o) / 2: the mean over three position and three rotation components"),
            ("p", "m", f"mean |Δ^{order} r| / {2 ** (order - 1)} over the last W - 3 differences and three axes"),
            ("o", "rad", f"mean |{inner}| / {2 ** (order - 1)} over the last W - 3 terms and three axes; ω = Log(R_t R_t-1^T), fixed frame"),
        )
        infos += [make_info(metric, variant, label, Family.TOOL, text, unit=unit, higher_means="less steady") for variant, unit, text in texts]
    formula = "root mean square of the last W - 3 |j|; j = (r_t - 3 r_t-2 + 3 r_t-4 - r_t-6) / (8 dt^3), needs seven samples"
    infos.append(make_info("ti", "full", "TI", Family.TOOL, formula, unit="m/s^3", higher_means="more jerk"))
    return tuple(infos)

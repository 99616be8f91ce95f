"""TCP-PI, TCP-VI, TCP-AI and TI: how steady the measured tool moves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from monitor.config import MonitorConfig
from monitor.metrics.common import NO_FLOATS, make_info, plain
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
    position or quaternion starts the window of that part anew; a gap in the step numbers starts both.
    """

    def __init__(self, spec: PolicySpec, config: MonitorConfig) -> None:
        """Prepare buffers and compile."""
        window = config.window
        self.infos = _infos()
        self._dt, self._scale = 1.0 / spec.control_hz, config.motion.length_scale_m
        self._positions = np.empty((2 * max(window, TI_SAMPLES), 3))
        self._rotations = np.empty((2 * (window - 1), 3))
        self._jerks = np.empty((2 * (window - ORDERS), 1))
        self._previous, self._states = np.zeros(8), _START.copy()
        self._take(np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]), 0, np.empty(_ENTRIES), np.empty(_ENTRIES, dtype=np.uint8))
        self.reset()

    def reset(self) -> None:
        """Forget the episode."""
        self._states[:] = _START

    def update(self, step: PolicyStep, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        """Take one step; see Metric."""
        position = NO_FLOATS if step.tcp_position is None else plain(step.tcp_position)
        quaternion = NO_FLOATS if step.tcp_quaternion is None else plain(step.tcp_quaternion)
        bad = self._take(position, quaternion, step.step, values, statuses)
        return () if bad == 0 else _issues(bad, position, quaternion)

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

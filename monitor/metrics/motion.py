"""Standing still: frozen (nothing moves), blocked (told to move and does not), idle (not told to move)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from monitor.config import MonitorConfig
from monitor.metrics.common import NO_FLOATS, make_info, plain
from monitor.metrics.window_kernels import update_motion
from monitor.policy import PolicySpec
from monitor.steps import Family, Issue, MetricInfo, PolicyStep

_SOURCE = "minimal-motion threshold suggested in Valle et al., arXiv 2507.17049"
_NEAR_ZERO = 5.0  # blocked above 5 x the path that counts as standing still, idle below a fifth of what is blocked
_ENTRIES = 6


class MotionDetector:
    """Path, rotation and gripper spread over the last W samples, and what they say.

    A standing arm makes every other motion metric look excellent, so the engine marks those uninformative while `frozen/flag` is 1.
    The commanded path is the sum over the same intervals of the length of the action's position part.
    """

    def __init__(self, spec: PolicySpec, config: MonitorConfig) -> None:
        """Prepare buffers and compile."""
        motion, window = config.motion, config.window
        blocked = motion.blocked_command or _NEAR_ZERO * motion.frozen_path_m
        self.infos = _infos()
        self._dims = spec.action_dim
        self._command_dims = np.array(spec.groups.get("p", ()), dtype=np.intp)
        self._absolute = spec.action_kind == "absolute"
        self._hold = motion.frozen_steps or window
        self._limits = np.array([motion.frozen_path_m, motion.frozen_rotation_rad, motion.frozen_gripper, blocked, blocked / _NEAR_ZERO])
        self._ring, self._previous = np.empty((2 * window, 4)), np.zeros(15 + spec.action_dim)
        self._state = np.zeros(6, dtype=np.int64)
        self._take(np.zeros(3), NO_FLOATS, 0.0, NO_FLOATS, 0, np.empty(_ENTRIES), np.empty(_ENTRIES, dtype=np.uint8))
        self.reset()

    def reset(self) -> None:
        """Forget the episode."""
        self._state[:] = (0, 0, -2, 0, 0, 0)

    def update(self, step: PolicyStep, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        """Take one step; see Metric. Unusable poses are named by the tool metrics."""
        position = NO_FLOATS if step.tcp_position is None else plain(step.tcp_position)
        quaternion = NO_FLOATS if step.tcp_quaternion is None else plain(step.tcp_quaternion)
        gripper = np.nan if step.gripper is None else float(step.gripper)
        command = step.action[self._command_dims] if step.action.shape[0] == self._dims else NO_FLOATS
        self._take(position, quaternion, gripper, command, step.step, values, statuses)
        return ()

    def _take(
        self,
        position: NDArray[np.float64],
        quaternion: NDArray[np.float64],
        gripper: float,
        command: NDArray[np.float64],
        step: int,
        values: NDArray[np.float64],
        statuses: NDArray[np.uint8],
    ) -> None:
        update_motion(
            position,
            quaternion,
            gripper,
            command,
            self._limits,
            self._absolute,
            self._hold,
            self._ring,
            self._previous,
            self._state,
            step,
            values,
            statuses,
        )


def _infos() -> tuple[MetricInfo, ...]:
    flag = "1 while path, rotation and gripper spread have stayed below their limits for frozen_steps steps"
    rows = (
        ("frozen", "flag", "Frozen", "1", 1.0, "stands still", flag),
        ("frozen", "path", "Path", "m", np.inf, "moves more", "sum of |Δr| over the last W samples"),
        ("frozen", "rotation", "Rotation", "rad", np.inf, "turns more", "sum of |ω| over the last W samples"),
        ("frozen", "steps", "Frozen for", "steps", np.inf, "stands still longer", "steps in a row with all three below their limits"),
        (
            "blocked",
            "flag",
            "Blocked",
            "1",
            1.0,
            "commanded but still",
            "1 if the path is below its limit and the commanded path above blocked_command",
        ),
        (
            "idle",
            "flag",
            "Idle",
            "1",
            1.0,
            "not commanded",
            "1 if all three are below their limits and the commanded path below a fifth of blocked_command",
        ),
    )
    return tuple(
        make_info(metric, variant, label, Family.MOTION, formula, unit=unit, high=float(high), higher_means=meaning, source=_SOURCE)
        for metric, variant, label, unit, high, meaning, formula in rows
    )

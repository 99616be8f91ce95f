"""The gripper: whether its command chatters, and whether the hand follows it."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

from monitor.config import MonitorConfig
from monitor.metrics.common import make_info, once, range_of
from monitor.policy import PolicySpec
from monitor.steps import Family, Issue, MetricInfo, PolicyStep, Status

_CHATTER, _DISAGREE = range(2)
_SOURCE = "field reports (openvla/openvla 21, Lifelong-Robot-Learning/LIBERO 72); no paper defines it"
_UPPER, _LOWER = 0.6, 0.4  # of the range; in between the last wish stands
_PULSE = 0.25  # of the range's end, for relative commands
_NEAR = 0.02
_DWELL = 2


class GripperMetrics:
    """Turns of the command over the last W steps, and turns in a row that the hand has not followed.

    A turn is judged when the hand has moved `gripper.moved` the right way, or `gripper.delay_s` later. A hand that already is where it should be
    says nothing. Whether the hand follows needs `gripper.high_means`, a range and a measured opening.
    """

    def __init__(self, spec: PolicySpec, config: MonitorConfig) -> None:
        """Prepare."""
        self.infos = _infos()
        self._config, self._window, self._dims = config.gripper, config.window, spec.action_dim
        dims, limits = spec.groups.get("gripper", ()), range_of(spec, config.actions.low, config.actions.high)
        self._dim = dims[0] if dims else 0
        self._low, self._high = (0.0, 0.0) if limits is None or not dims else (float(limits[0][self._dim]), float(limits[1][self._dim]))
        self._usable = self._high > self._low and math.isfinite(self._high - self._low)
        self._relative = config.gripper.command == "relative"
        self._opens = {"open": 1, "closed": -1, None: 0}[config.gripper.high_means]
        self.reset()

    def reset(self) -> None:
        """Forget the episode."""
        self._wish = 0
        self._turns: deque[int] = deque(maxlen=self._window)
        self._pending: tuple[int, float, float] | None = None  # direction of the opening, time, opening
        self._against: int | None = None
        self._zeros = self._ones = 0
        self._told: set[str] = set()

    def update(self, step: PolicyStep, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        """Take one step; see Metric."""
        if not self._usable:
            return ()
        command = float(step.action[self._dim]) if step.action.shape[0] == self._dims else math.nan
        if not math.isfinite(command):
            statuses[:] = Status.INVALID  # the validity metrics name it
            return ()
        turned = self._turn(command, step.step)
        values[_CHATTER], statuses[_CHATTER] = len(self._turns), Status.OK
        issues = () if self._relative else self._judge_range(command)
        opening = step.gripper
        if self._opens == 0 or opening is None or not math.isfinite(opening):
            self._pending = None
            return issues
        if turned:
            self._pending = (self._wish * self._opens, step.time, opening)
        elif self._pending is not None:
            issues += self._follow(self._pending, opening, step.time)
        if self._against is None:
            statuses[_DISAGREE] = Status.WARMING_UP
        else:
            values[_DISAGREE], statuses[_DISAGREE] = self._against, Status.OK
        return issues

    def _turn(self, command: float, step: int) -> bool:
        """Note what the command asks for; True if it now asks the hand to move the other way."""
        if self._turns and self._turns[0] <= step - self._window:
            self._turns.popleft()
        if self._relative:
            pulse = _PULSE * max(abs(self._low), abs(self._high))
            wish = 1 if command > pulse else -1 if command < -pulse else self._wish
        else:
            share = (command - self._low) / (self._high - self._low)
            wish = 1 if share > _UPPER else -1 if share < _LOWER else self._wish
        before, self._wish = self._wish, wish
        if wish == before:
            return False
        if before != 0:
            self._turns.append(step)
        return before != 0 or self._relative

    def _follow(self, pending: tuple[int, float, float], opening: float, time: float) -> tuple[Issue, ...]:
        direction, since, before = pending
        moved = (opening - before) * direction
        if moved >= self._config.moved:
            self._against, self._pending = 0, None
            return ()
        if time - since < self._config.delay_s:
            return ()
        self._pending = None
        wrong_way = moved <= -self._config.moved
        if not wrong_way and (before >= 1.0 - self._config.moved if direction > 0 else before <= self._config.moved):
            return ()  # nothing was left to do
        self._against = (self._against or 0) + 1
        what = "moved the other way" if wrong_way else "did not move"
        asked = "open" if direction > 0 else "close"
        text = f"command and hand disagree: told to {asked} at {since:.3f} s, the hand {what} ({before:.2f} to {opening:.2f} of its stroke)"
        return once(Issue("gripper_disagrees", text), self._told)

    def _judge_range(self, command: float) -> tuple[Issue, ...]:
        """Commands beyond the declared range, or only 0 and 1 where -1 to 1 is declared."""
        span = self._high - self._low
        if not self._low - span / 4 <= command <= self._high + span / 4:
            return once(self._range_issue(f"is {command:.3g}"), self._told)
        if abs(self._low + 1.0) > _NEAR or abs(self._high - 1.0) > _NEAR or self._zeros < 0:
            return ()
        if abs(command) <= _NEAR:
            self._zeros += 1
        elif abs(command - 1.0) <= _NEAR:
            self._ones += 1
        else:
            self._zeros = -1  # another value: the range is not 0 and 1 only
        if self._zeros < _DWELL or self._ones < _DWELL:
            return ()
        return once(self._range_issue("takes only 0 and 1"), self._told)

    def _range_issue(self, found: str) -> Issue:
        return Issue("gripper_range", f"gripper command {found}, declared range {self._low:g} to {self._high:g}: another convention?")


def _infos() -> tuple[MetricInfo, ...]:
    rows = (
        ("chatter", "Gripper chatter", "turns of the command, open to closed or back, in the last W steps", "turns back more often"),
        (
            "disagree",
            "Hand disagrees",
            "turns of the command in a row that the measured opening has not followed within delay_s",
            "hand does not follow",
        ),
    )
    return tuple(
        make_info("gripper", variant, label, Family.MOTION, formula, unit="count", higher_means=meaning, source=_SOURCE)
        for variant, label, formula, meaning in rows
    )

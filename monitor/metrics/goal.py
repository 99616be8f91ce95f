"""OT: progress towards the goal, where somebody knows the positions of the object and its target (simulators, trackers)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.config import MonitorConfig
from monitor.metrics.common import make_info, once
from monitor.policy import PolicySpec
from monitor.steps import Family, Goal, Issue, MetricInfo, PolicyStep, Status

Float = NDArray[np.float64]
NEAR_M = 0.04
_SMALLEST_M = 1e-6
_Q, _WINDOW, _REGRESS, _STALL = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """OT of one recorded episode; arrays are (T,).

    Attributes:
        distance: m, along the way that is left.
        transport: whether the object is on its way to the target.
        d_max: m.
        normalised: distance / d_max. difference: its change, 0 at first.
        q: (difference + 1) / 2 within [0, 1]; 0.5 no change, below progress, above regress.
        regress: sum of the positive differences.
    """

    distance: Float
    transport: NDArray[np.bool_]
    d_max: float
    normalised: Float
    difference: Float
    q: Float
    regress: float


def way_left(
    kind: str,
    tool: Sequence[float],
    object_position: Sequence[float],
    target: Sequence[float] | None,
    grasped: bool,
    near_m: float = NEAR_M,
) -> tuple[float, bool]:
    """Length in m of the straight way that is left, and whether the object is being carried or pushed.

    Args:
        kind: `pick`, `put` or `move`; see `kind_of`.
        tool: (3,) m.
        object_position: (3,) m.
        target: (3,) m; without it the kind is `pick`.
        grasped: decides the phase of `put`.
        near_m: decides the phase of `move`: the tool has reached the object.
    """
    reach = math.dist(tool, object_position)
    if kind == "pick" or target is None:
        return reach, False
    if grasped if kind == "put" else reach < near_m:
        return math.dist(tool, target), True
    return reach + math.dist(object_position, target), False


def kind_of(task: str) -> str:
    """`pick`, `put` or `move` from the name of a task: pick_up, grasp, lift; put_on, put_in, place; anything else that has a target moves."""
    word = task.lower()
    if any(part in word for part in ("put", "place", "stack")):
        return "put"
    return "pick" if any(part in word for part in ("pick", "grasp", "lift", "reach")) else "move"


def optimal_trajectory(
    kind: str,
    tool: ArrayLike,
    object_position: ArrayLike,
    target: ArrayLike | None = None,
    grasped: Sequence[bool] | None = None,
    d_max: float | None = None,
    near_m: float = NEAR_M,
) -> Progress:
    """OT of a recorded episode.

    Args:
        kind: `pick`, `put` or `move`.
        tool: (T, 3) m.
        object_position: (T, 3) m.
        target: (T, 3) m.
        grasped: (T,), for `put`.
        d_max: m; default: the distance at the first step.
        near_m: m, for `move`.

    Raises:
        ValueError: d_max is not above 1e-6 m.
    """
    c, b = np.asarray(tool, dtype=np.float64), np.asarray(object_position, dtype=np.float64)
    g = None if target is None else np.asarray(target, dtype=np.float64)
    left = [
        way_left(kind, c[t].tolist(), b[t].tolist(), None if g is None else g[t].tolist(), bool(grasped is not None and grasped[t]), near_m)
        for t in range(c.shape[0])
    ]
    distance = np.array([d for d, _ in left])
    longest = float(distance[0]) if d_max is None else d_max
    if not longest > _SMALLEST_M:
        raise ValueError(f"d_max is {longest} m, expected more than {_SMALLEST_M}")
    scaled = distance / longest
    difference = np.concatenate([[0.0], np.diff(scaled)])
    return Progress(
        distance=distance,
        transport=np.array([carried for _, carried in left]),
        d_max=longest,
        normalised=scaled,
        difference=difference,
        q=np.clip((difference + 1.0) / 2.0, 0.0, 1.0),
        regress=float(np.maximum(difference, 0.0).sum()),
    )


class GoalMetrics:
    """OT from the ground truth in the steps. A step without it makes no statement; the next one is compared with the last that had it."""

    def __init__(self, spec: PolicySpec, config: MonitorConfig) -> None:
        """Prepare."""
        self.infos = _infos()
        self._config, self._window = config.goal, config.window
        self._task, self._kind = "", "pick"
        self.reset()

    def reset(self) -> None:
        """Forget the episode."""
        self._longest = math.nan
        self._before: tuple[float, bool] | None = None
        self._least = math.inf
        self._least_step = 0
        self._regress = 0.0
        self._scores: list[float] = []
        self._told: set[str] = set()

    def update(self, step: PolicyStep, values: Float, statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        """Take one step; see Metric."""
        goal = step.goal
        if goal is None or step.tcp_position is None:
            return ()
        found = self._positions(step.tcp_position, goal)
        if found is None:
            statuses[:] = Status.INVALID
            return once(Issue("goal_position", "tool, object or target position of the goal is not three finite numbers (m)"), self._told)
        if goal.task != self._task:
            self._task, self._kind = goal.task, kind_of(goal.task)
        tool, thing, target = found
        distance, carried = way_left(self._kind, tool, thing, target, goal.grasped, self._config.near_m)
        if math.isnan(self._longest):
            self._longest = self._config.d_max_m or distance
        if not self._longest > _SMALLEST_M:
            statuses[:] = Status.INVALID
            return once(Issue("goal_distance", f"the episode begins {distance:.3g} m from its goal: set goal.d_max_m"), self._told)
        self._take(step.step, distance / self._longest, carried, values)
        statuses[:] = Status.OK
        if len(self._scores) < self._window:
            statuses[_WINDOW] = Status.WARMING_UP
        return ()

    def _take(self, step: int, scaled: float, carried: bool, values: Float) -> None:
        difference = 0.0
        if self._before is not None and not (self._config.ignore_switch and carried != self._before[1]):
            difference = scaled - self._before[0]
        self._before = (scaled, carried)
        if scaled < self._least:
            self._least, self._least_step = scaled, step
        self._regress += max(difference, 0.0)
        q = min(max((difference + 1.0) / 2.0, 0.0), 1.0)
        self._scores.append(q)
        del self._scores[: -self._window]
        values[_Q], values[_REGRESS], values[_STALL] = q, self._regress, step - self._least_step
        if len(self._scores) == self._window:
            values[_WINDOW] = sum(self._scores) / self._window

    def _positions(self, tool: Float, goal: Goal) -> tuple[list[float], list[float], list[float] | None] | None:
        target = goal.target_position
        rows = [np.asarray(row).tolist() for row in ((tool, goal.object_position) if target is None else (tool, goal.object_position, target))]
        if not all(len(row) == 3 and all(map(math.isfinite, row)) for row in rows):
            return None
        return rows[0], rows[1], None if target is None else rows[2]


def _infos() -> tuple[MetricInfo, ...]:
    way = "d = straight way left over d_max"
    rows = (
        ("q", "1", 1.0, "moving away", f"(Δd + 1) / 2 within [0, 1]; {way}; 0.5 is no change"),
        ("window", "1", 1.0, "moving away", "mean of q over the last W steps with ground truth"),
        ("regress", "1", math.inf, "more detours", f"sum over the episode of max(0, Δd); {way}"),
        ("stall", "steps", math.inf, "no progress for longer", f"steps since d was smallest; {way}"),
    )
    return tuple(
        make_info("ot", variant, "OT", Family.GOAL, formula, unit=unit, high=high, higher_means=meaning)
        for variant, unit, high, meaning, formula in rows
    )

"""OT: phases, progress, stall, and what is missing or unusable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor import MonitorConfig, PolicySpec
from monitor.config import GoalConfig
from monitor.metrics import GoalMetrics, kind_of, optimal_trajectory
from monitor.steps import Goal, PolicyStep, Status

SPEC = PolicySpec(name="goal")


def goal(task: str = "pick_up", **changes: Any) -> Goal:
    return Goal(**{"task": task, "object_position": np.zeros(3), **changes})


@pytest.fixture
def rows(make_step: Any, feed: Any) -> Any:
    """Rows for a tool that has these distances from the object at the origin."""

    def run(distances: Any, config: GoalConfig | None = None, goals: Any = None, window: int = 4) -> Any:
        steps: list[PolicyStep] = [
            make_step(i, tcp_position=None if d is None else np.array([d, 0, 0]), goal=goal() if goals is None else goals[i])
            for i, d in enumerate(distances)
        ]
        return feed(GoalMetrics(SPEC, MonitorConfig(goal=config or GoalConfig(), window=window)), steps)

    return run


@pytest.mark.parametrize(
    ("task", "kind"), [("pick_up", "pick"), ("grasp", "pick"), ("put_on", "put"), ("put_in", "put"), ("place cup", "put"), ("move_near", "move")]
)
def test_the_kind_of_a_task(task: str, kind: str) -> None:
    assert kind_of(task) == kind


def test_the_first_step_is_neutral(rows: Any) -> None:
    assert rows([0.4])[0].values["ot/q"] == 0.5


def test_progress_is_below_and_regress_above_one_half(rows: Any) -> None:
    found = rows([0.4, 0.2, 0.3])
    assert found[1].values["ot/q"] == pytest.approx(0.25)
    assert found[2].values["ot/q"] == pytest.approx(0.625)
    assert found[2].values["ot/regress"] == pytest.approx(0.25)


def test_the_window_is_the_trailing_mean(rows: Any) -> None:
    found = rows([0.4, 0.2, 0.3, 0.3, 0.1])
    assert found[2].statuses["ot/window"] is Status.WARMING_UP
    assert found[4].values["ot/window"] == pytest.approx(np.mean([row.values["ot/q"] for row in found[1:]]))


def test_stall_counts_steps_since_the_least_distance(rows: Any) -> None:
    assert [row.values["ot/stall"] for row in rows([0.4, 0.3, 0.35, 0.3, 0.2])] == [0, 0, 1, 2, 0]


def test_the_largest_distance_of_the_cell_can_be_set(rows: Any) -> None:
    assert rows([0.4, 0.2], GoalConfig(d_max_m=2.0))[1].values["ot/q"] == pytest.approx(0.45)


def test_without_ground_truth_it_is_unavailable(make_step: Any, feed: Any) -> None:
    row = feed(GoalMetrics(SPEC, MonitorConfig()), [make_step(tcp_position=np.zeros(3))])[0]
    assert set(row.statuses.values()) == {Status.UNAVAILABLE}


def test_without_a_tool_position_it_is_unavailable_and_goes_on(rows: Any) -> None:
    found = rows([0.4, None, 0.2])
    assert found[1].statuses["ot/q"] is Status.UNAVAILABLE
    assert found[2].values["ot/q"] == pytest.approx(0.25)


def test_an_episode_that_begins_at_its_goal_is_invalid_and_says_so_once(rows: Any) -> None:
    found = rows([0.0, 0.1])
    assert [row.statuses["ot/q"] for row in found] == [Status.INVALID, Status.INVALID]
    assert [[issue.code for issue in row.issues] for row in found] == [["goal_distance"], []]


def test_an_unusable_position_is_invalid(rows: Any) -> None:
    found = rows([0.4, float("nan"), 0.2])
    assert found[1].statuses["ot/q"] is Status.INVALID
    assert found[1].issues[0].code == "goal_position"


def test_a_grasp_shortens_the_way_unless_the_switch_is_ignored(rows: Any) -> None:
    target = np.array([0.0, 0.5, 0.0])
    goals = [goal("put_on", target_position=target, grasped=g) for g in (False, False, True)]
    plain = rows([0.3, 0.2, 0.2], goals=goals)
    ignored = rows([0.3, 0.2, 0.2], GoalConfig(ignore_switch=True), goals=goals)
    assert plain[2].values["ot/q"] < 0.5
    assert ignored[2].values["ot/q"] == 0.5


def test_moving_near_switches_when_the_tool_is_near(rows: Any) -> None:
    goals = [goal("move_near", target_position=np.array([0.0, 0.5, 0.0]))] * 2
    found = optimal_trajectory("move", [[0.05, 0, 0], [0.03, 0, 0]], np.zeros((2, 3)), [[0, 0.5, 0]] * 2)
    assert found.transport.tolist() == [False, True]
    assert rows([0.05, 0.03], goals=goals)[1].values["ot/q"] == pytest.approx(found.q[1])


def test_a_d_max_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="d_max is 0"):
        optimal_trajectory("pick", np.zeros((2, 3)), np.zeros((2, 3)))

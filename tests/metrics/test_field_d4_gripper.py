"""Field case D4: the gripper's command means something else than the hand does (openvla/openvla 21, LIBERO 72)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor import Monitor, MonitorConfig, PolicySpec
from monitor.config import GripperConfig
from monitor.metrics import GripperMetrics
from monitor.steps import Status

STROKE_M = 0.08
CLOSES = GripperConfig(high_means="closed")
STEPS = np.arange(60)
COMMAND = np.where((STEPS >= 20) & (STEPS <= 40), 1.0, -1.0)


def opening(before: float, after: float) -> np.ndarray:
    """Measured opening (strokes) that follows the command three steps later, over four steps; given in metres."""
    share = np.clip((STEPS - 23) / 4, 0, 1) - np.clip((STEPS - 44) / 4, 0, 1)
    return (before + (after - before) * share) / STROKE_M


@pytest.fixture
def rows(make_step: Any, feed: Any) -> Any:
    """Rows for commands and openings, with the gripper declared as given."""

    def run(commands: np.ndarray, openings: Any, gripper: GripperConfig = CLOSES, window: int = 8) -> Any:
        spec = PolicySpec(name="d4", action_names=("gripper",), groups={"gripper": (0,)}, action_low=(-1.0,), action_high=(1.0,))
        config = MonitorConfig(gripper=gripper, window=window)
        steps = [make_step(i, action=[c], gripper=None if openings is None else float(openings[i])) for i, c in enumerate(commands)]
        return feed(GripperMetrics(spec, config), steps)

    return run


def test_a_hand_that_opens_when_told_to_close_is_told(rows: Any) -> None:
    found = rows(COMMAND, opening(0.0, 0.08))
    told = [i for i, row in enumerate(found) if row.issues]
    assert told == [30]
    assert "told to close at 2.000 s, the hand moved the other way" in found[30].issues[0].detail
    assert found[59].values["gripper/disagree"] == 2


def test_a_hand_that_follows_is_quiet(rows: Any) -> None:
    found = rows(COMMAND, opening(0.08, 0.0))
    assert found[59].values["gripper/disagree"] == 0
    assert not any(row.issues for row in found)


def test_the_other_convention_can_be_declared(rows: Any) -> None:
    assert rows(COMMAND, opening(0.0, 0.08), GripperConfig(high_means="open"))[59].values["gripper/disagree"] == 0


def test_a_hand_that_does_not_move_is_told(rows: Any) -> None:
    found = rows(COMMAND, np.ones(60))
    assert found[30].values["gripper/disagree"] == 1
    assert "did not move" in found[30].issues[0].detail


def test_commands_of_0_and_1_are_told_as_another_range(rows: Any) -> None:
    found = rows((COMMAND + 1) / 2, opening(0.08, 0.0))
    issues = [issue for row in found for issue in row.issues]
    assert [issue.code for issue in issues] == ["gripper_range"]
    assert "takes only 0 and 1, declared range -1 to 1" in issues[0].detail


def test_commands_far_beyond_the_range_are_told(rows: Any) -> None:
    assert rows(3 * COMMAND, opening(0.08, 0.0))[0].issues[0].code == "gripper_range"


def test_declared_pulses_neither_chatter_nor_disagree(rows: Any) -> None:
    pulses = np.where((STEPS >= 20) & (STEPS < 23), 1.0, 0.0)
    found = rows(pulses, opening(0.08, 0.0) * (STEPS < 44), GripperConfig(high_means="closed", command="relative"))
    assert {row.values["gripper/chatter"] for row in found} == {0.0}
    assert found[43].values["gripper/disagree"] == 0
    assert not any(row.issues for row in found)


def test_without_a_measured_opening_it_is_unavailable(rows: Any) -> None:
    found = rows(COMMAND, None)
    assert {row.statuses["gripper/disagree"] for row in found} == {Status.UNAVAILABLE}
    assert {row.statuses["gripper/chatter"] for row in found} == {Status.OK}


def test_without_a_declared_convention_it_is_unavailable(rows: Any) -> None:
    found = rows(COMMAND, opening(0.0, 0.08), GripperConfig())
    assert {row.statuses["gripper/disagree"] for row in found} == {Status.UNAVAILABLE}


def test_a_command_that_turns_at_every_step_chatters(rows: Any) -> None:
    assert rows(np.where(STEPS % 2, 1.0, -1.0), None)[59].values["gripper/chatter"] == 8


def test_small_changes_around_the_middle_do_not_chatter(rows: Any) -> None:
    assert rows(np.where(STEPS % 2, 0.1, -0.1), None)[59].values["gripper/chatter"] == 0


def test_a_hand_that_already_is_closed_says_nothing(rows: Any) -> None:
    assert rows(COMMAND[:40], np.zeros(60))[39].statuses["gripper/disagree"] is Status.WARMING_UP


def test_the_alarm_is_active_after_the_delay(make_step: Any) -> None:
    spec = PolicySpec(name="d4", action_names=("gripper",), groups={"gripper": (0,)}, action_low=(-1.0,), action_high=(1.0,))
    monitor = Monitor(spec, MonitorConfig(gripper=CLOSES))
    reports = [monitor.update(make_step(i, action=[c], gripper=float(o))) for i, (c, o) in enumerate(zip(COMMAND, opening(0, 0.08), strict=True))]
    assert next(i for i, report in enumerate(reports) if "gripper_disagrees" in [a.name for a in report.active_alarms]) == 30

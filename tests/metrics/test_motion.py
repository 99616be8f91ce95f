"""Frozen, blocked and idle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor.config import MonitorConfig, MotionConfig
from monitor.metrics import MotionDetector
from monitor.steps import Status

QUIET = {"tcp_position": np.zeros(3), "tcp_quaternion": np.array([1.0, 0, 0, 0]), "gripper": 0.5}
PUSH = np.array([0.01, 0, 0, 0, 0, 0, 0])


def test_frozen_needs_the_window_and_then_the_hold(make_spec: Any, make_step: Any, feed: Any) -> None:
    config = MonitorConfig(window=4, motion=MotionConfig(frozen_steps=3))
    rows = feed(MotionDetector(make_spec(), config), [make_step(i, **QUIET) for i in range(8)])
    assert [row.statuses["frozen/flag"] for row in rows[:4]] == [*[Status.WARMING_UP] * 3, Status.OK]
    assert [row.values["frozen/flag"] for row in rows[3:]] == [0, 0, 1, 1, 1]
    assert [row.values["frozen/steps"] for row in rows[3:]] == [1, 2, 3, 4, 5]


def test_the_hold_is_the_window_by_default(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    rows = feed(MotionDetector(make_spec(), config), [make_step(i, **QUIET) for i in range(16)])
    assert next(i for i, row in enumerate(rows) if row.values["frozen/flag"] == 1) == 14


@pytest.mark.parametrize(
    "change",
    [
        lambda i: {"tcp_position": np.array([0.001 * i, 0, 0])},
        lambda i: {"tcp_quaternion": np.array([1.0, 0, 0, 0.002 * i])},
        lambda i: {"gripper": 0.02 * i},
    ],
    ids=["path", "rotation", "gripper"],
)
def test_any_motion_is_not_frozen(change: Any, make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    rows = feed(MotionDetector(make_spec(), config), [make_step(i, **{**QUIET, **change(i)}) for i in range(24)])
    assert rows[-1].values["frozen/flag"] == 0


def test_motion_ends_the_hold(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    steps = [make_step(i, **QUIET) for i in range(20)] + [make_step(20, **{**QUIET, "tcp_position": np.array([0.1, 0, 0])})]
    row = feed(MotionDetector(make_spec(), config), steps)[-1]
    assert (row.values["frozen/flag"], row.values["frozen/steps"]) == (0, 0)


def test_positions_alone_are_enough(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(MotionDetector(make_spec(), config), [make_step(i, tcp_position=np.zeros(3)) for i in range(16)])[-1]
    assert row.values["frozen/flag"] == 1
    assert row.statuses["frozen/rotation"] is Status.UNAVAILABLE


def test_a_still_tool_that_is_told_to_move_is_blocked(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(MotionDetector(make_spec(), config), [make_step(i, action=PUSH, **QUIET) for i in range(8)])[-1]
    assert (row.values["blocked/flag"], row.values["idle/flag"]) == (1, 0)


def test_a_still_tool_that_is_not_told_to_move_is_idle(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(MotionDetector(make_spec(), config), [make_step(i, **QUIET) for i in range(8)])[-1]
    assert (row.values["blocked/flag"], row.values["idle/flag"]) == (0, 1)


def test_a_moving_tool_is_neither(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    steps = [make_step(i, action=PUSH, tcp_position=np.array([0.01 * i, 0, 0])) for i in range(8)]
    row = feed(MotionDetector(make_spec(), config), steps)[-1]
    assert (row.values["blocked/flag"], row.values["idle/flag"]) == (0, 0)


def test_absolute_targets_command_by_their_differences(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    spec = make_spec(action_kind="absolute")
    still = feed(MotionDetector(spec, config), [make_step(i, action=np.full(7, 0.4), **QUIET) for i in range(8)])[-1]
    moving = feed(MotionDetector(spec, config), [make_step(i, action=np.full(7, 0.4 + 0.01 * i), **QUIET) for i in range(8)])[-1]
    assert (still.values["blocked/flag"], moving.values["blocked/flag"]) == (0, 1)


def test_the_unit_of_the_command_can_be_set(make_spec: Any, make_step: Any, feed: Any) -> None:
    config = MonitorConfig(motion=MotionConfig(blocked_command=1.0))
    row = feed(MotionDetector(make_spec(), config), [make_step(i, action=PUSH, **QUIET) for i in range(8)])[-1]
    assert row.values["blocked/flag"] == 0


def test_a_policy_without_position_dimensions_has_no_command(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(MotionDetector(make_spec(groups={}), config), [make_step(i, **QUIET) for i in range(8)])[-1]
    assert row.statuses["blocked/flag"] is row.statuses["idle/flag"] is Status.UNAVAILABLE
    assert row.statuses["frozen/flag"] is Status.OK


def test_an_unusable_action_leaves_blocked_open(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    actions = [np.full(7, np.nan) if i == 4 else PUSH for i in range(8)]
    row = feed(MotionDetector(make_spec(), config), [make_step(i, action=a, **QUIET) for i, a in enumerate(actions)])[-1]
    assert row.statuses["blocked/flag"] is Status.INVALID


def test_a_gap_starts_anew(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(MotionDetector(make_spec(), config), [*(make_step(i, **QUIET) for i in range(20)), make_step(25, **QUIET)])[-1]
    assert row.statuses["frozen/flag"] is Status.WARMING_UP

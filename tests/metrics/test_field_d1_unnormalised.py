"""Field case D1: actions of the training space sent as robot units (allenai/vla-evaluation-harness PR 3, openvla/openvla 87)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor import Monitor, MonitorConfig, PolicySpec, PolicyStep
from monitor.metrics import ScaleMetrics
from monitor.steps import Status

JOINTS = tuple(f"joint_{i}" for i in range(6))
DEGREES = {"action_names": JOINTS, "groups": {}, "action_kind": "absolute", "action_low": (-90.0,) * 6, "action_high": (90.0,) * 6}
WAVE = 0.8 * np.sin(0.2 * np.arange(40)[:, None] + np.arange(6))


@pytest.fixture
def told(make_step: Any, feed: Any) -> Any:
    """Rows of a policy with these facts that sends these actions."""

    def run(facts: dict[str, Any], actions: np.ndarray) -> Any:
        return feed(ScaleMetrics(PolicySpec(name="d1", **facts), MonitorConfig()), [make_step(i, action=a) for i, a in enumerate(actions)])

    return run


def test_training_space_sent_as_degrees_is_told_within_ten_steps(told: Any) -> None:
    rows = told(DEGREES, WAVE)
    assert [row.values["scale/flag"] for row in rows[9:]] == [1.0] * 31
    assert rows[9].issues[0].code == "unnormalised"


def test_the_ratio_and_the_dimensions_are_named_once(told: Any) -> None:
    issues = [issue for row in told(DEGREES, WAVE) for issue in row.issues]
    assert len(issues) == 1
    assert "0.0089" in issues[0].detail
    assert all(f"{i} (joint_{i})" in issues[0].detail for i in range(6))


def test_degrees_are_quiet(told: Any) -> None:
    rows = told(DEGREES, 90 * WAVE)
    assert {row.values["scale/flag"] for row in rows[9:]} == {0.0}
    assert not any(row.issues for row in rows)


def test_without_statistics_there_is_no_guess(told: Any) -> None:
    rows = told({**DEGREES, "action_low": None, "action_high": None}, WAVE)
    assert {status for row in rows for status in row.statuses.values()} == {Status.UNAVAILABLE}


def test_metres_exceeded_thirty_times_are_told(told: Any) -> None:
    actions = np.where(np.arange(40)[:, None] % 2, 0.9, -0.9) * np.ones(3)
    rows = told({"action_names": ("dx", "dy", "dz"), "groups": {"p": (0, 1, 2)}, "action_low": (-0.03,) * 3, "action_high": (0.03,) * 3}, actions)
    assert rows[9].values["scale/flag"] == 1.0
    assert "30 of the half range" in rows[9].issues[0].detail
    assert rows[9].values["scale/outside"] == 1.0


def test_a_robot_that_holds_a_pose_is_not_flagged(told: Any) -> None:
    pose = np.array([0.5, -0.3, 0.2, 0.9, -0.8, 0.1])
    noise = np.random.default_rng(0).normal(0, 0.01, (40, 6))
    assert {row.values["scale/flag"] for row in told(DEGREES, pose + noise)[9:]} == {0.0}


def test_small_increments_of_a_policy_in_metres_are_not_flagged(told: Any) -> None:
    actions = np.random.default_rng(0).normal(0, 0.0005, (40, 3))
    rows = told({"action_names": ("dx", "dy", "dz"), "groups": {}, "action_low": (-0.03,) * 3, "action_high": (0.03,) * 3}, actions)
    assert {row.values["scale/flag"] for row in rows[9:]} == {0.0}


def test_one_wild_action_is_no_wrong_unit(told: Any) -> None:
    actions = 90 * WAVE
    actions[20] = 5000.0
    assert {row.values["scale/flag"] for row in told(DEGREES, actions)[9:]} == {0.0}


def test_the_alarm_is_active_within_ten_steps() -> None:
    monitor = Monitor(PolicySpec(name="d1", **DEGREES), MonitorConfig())
    reports = [monitor.update(PolicyStep(time=i / 10, episode_id="e", step=i, action=a)) for i, a in enumerate(WAVE[:10])]
    assert "unnormalised" in [alarm.name for alarm in reports[-1].active_alarms]

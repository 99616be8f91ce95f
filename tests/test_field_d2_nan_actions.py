"""Field case D2: NaN in actions and chunks (a damaged download of weights was the cause), through the whole monitor with default settings."""

import numpy as np
import pytest

from monitor import AlarmPhase, Monitor, PolicySpec, PolicyStep, Status, StepReport

SPEC = PolicySpec(name="d2", action_low=(-1.0,) * 7, action_high=(1.0,) * 7)


def action(n: int) -> np.ndarray:
    smooth = 0.3 * np.sin(0.1 * n + np.arange(7))
    if n == 20:
        smooth[:] = np.nan
    elif n == 21:
        smooth[3] = np.nan
    elif n == 22:
        smooth[0] = np.inf
    return smooth


def step(n: int) -> PolicyStep:
    return PolicyStep(time=n / 10, episode_id="d2", step=n, action=action(n), inference_id=n)


@pytest.fixture(scope="module")
def played() -> tuple[Monitor, list[StepReport]]:
    monitor = Monitor(SPEC)
    return monitor, [monitor.update(step(n)) for n in range(60)]


@pytest.mark.parametrize(("n", "named"), [(20, "dx"), (21, "drx"), (22, "dx")])
def test_the_bad_steps_are_invalid_with_the_dimension_named(played: tuple[Monitor, list[StepReport]], n: int, named: str) -> None:
    report = played[1][n]
    assert report["a_vi/full"].status is Status.INVALID
    assert any(named in issue.detail for issue in report.issues)


def test_only_the_bad_dimension_is_named(played: tuple[Monitor, list[StepReport]]) -> None:
    detail = " ".join(issue.detail for issue in played[1][21].issues)
    assert "drx" in detail
    assert "gripper" not in detail


def test_each_bad_step_is_counted_once(played: tuple[Monitor, list[StepReport]]) -> None:
    assert played[0].counters["action_not_finite"] == 3


def test_the_alarm_is_active_at_once_and_ends_with_the_bad_steps(played: tuple[Monitor, list[StepReport]]) -> None:
    active = [n for n, report in enumerate(played[1]) if any(a.name == "invalid_action" and a.phase is AlarmPhase.ACTIVE for a in report.alarms)]
    assert active == [20, 21, 22]


def test_the_alarm_may_hold_the_robot(played: tuple[Monitor, list[StepReport]]) -> None:
    assert [a.hold for a in played[1][20].active_alarms] == [True]


def test_windows_recover_after_eight_valid_steps_and_equal_a_fresh_window(played: tuple[Monitor, list[StepReport]]) -> None:
    fresh = Monitor(SPEC)
    for n in range(23, 31):
        expected = fresh.update(step(n))
    assert played[1][29]["a_vi/full"].status is Status.WARMING_UP
    for metric in ("a_pi", "a_vi", "a_ai"):
        value = played[1][30][f"{metric}/full"]
        assert value.status is Status.OK
        assert value.value == expected[f"{metric}/full"].value


def test_a_bad_row_of_a_chunk_is_told_when_the_chunk_arrives() -> None:
    monitor = Monitor(SPEC)
    chunk = np.zeros((16, 7))
    chunk[9] = np.nan
    reports = [
        monitor.update(PolicyStep(time=n / 10, episode_id="d2", step=n, action=chunk[n], chunk=chunk, chunk_offset=n, inference_id=1))
        for n in range(9)
    ]
    assert [a.name for a in reports[0].active_alarms] == ["invalid_chunk"]
    assert any("row 9" in issue.detail for issue in reports[0].issues)
    assert all(not report.active_alarms for report in reports[1:])


def test_one_fault_is_told_once(played: tuple[Monitor, list[StepReport]]) -> None:
    assert len(played[1][20].issues) == len(set(played[1][20].issues)) == 1


def test_a_bad_policy_is_seen_behind_a_gate_that_sends_a_safe_action() -> None:
    held = PolicyStep(time=0.0, episode_id="d2", step=0, action=np.zeros(7), raw_action=np.full(7, np.nan))
    assert [a.name for a in Monitor(SPEC).update(held).active_alarms] == ["invalid_action"]

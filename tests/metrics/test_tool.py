"""TCP-PI, TCP-VI, TCP-AI and TI: properties of rotations and jerk, missing parts and gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from monitor.config import MonitorConfig, MotionConfig
from monitor.metrics import ToolMetrics, jerk_online, relative_rotation, resample, rotation_increments, tool_instability
from monitor.steps import Status

quaternions = arrays(np.float64, (4,), elements=st.floats(-1, 1)).filter(lambda q: np.linalg.norm(q) > 0.1)


def about_z(angles: np.ndarray) -> np.ndarray:
    return np.stack([np.cos(angles / 2), 0 * angles, 0 * angles, np.sin(angles / 2)], axis=1)


@given(quaternions, quaternions)
def test_the_sign_of_a_quaternion_does_not_matter(q0: np.ndarray, q1: np.ndarray) -> None:
    expected = relative_rotation(q0, q1)
    for a, b in ((-q0, q1), (q0, -q1), (-q0, -q1)):
        np.testing.assert_allclose(relative_rotation(a, b), expected, atol=1e-12)


@given(quaternions, quaternions, st.floats(0.1, 10))
def test_the_length_of_a_quaternion_does_not_matter(q0: np.ndarray, q1: np.ndarray, scale: float) -> None:
    first, second = relative_rotation(q0, q1), relative_rotation(scale * q0, q1)
    assume(np.linalg.norm(first) < 3.14)
    np.testing.assert_allclose(second, first, atol=1e-6)


@given(quaternions, quaternions)
def test_a_rotation_and_its_reverse_cancel(q0: np.ndarray, q1: np.ndarray) -> None:
    forth = relative_rotation(q0, q1)
    assume(np.linalg.norm(forth) < 3.14)
    np.testing.assert_allclose(relative_rotation(q1, q0), -forth, atol=1e-6)


@given(st.floats(-3.1, 3.1), st.floats(-10, 10))
def test_a_turn_about_an_axis_is_its_angle(rate: float, start: float) -> None:
    np.testing.assert_allclose(relative_rotation(*about_z(np.array([start, start + rate]))), [0, 0, rate], atol=1e-9)


@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-9, 1e-7])
def test_tiny_rotations_keep_their_digits(angle: float) -> None:
    assert relative_rotation([1, 0, 0, 0], [1, 0, 0, angle / 2])[2] == pytest.approx(angle, rel=1e-9)


@given(st.floats(-1.5, 1.5))
def test_a_constant_rate_has_no_second_difference(rate: float) -> None:
    found = tool_instability(np.zeros((8, 3)), about_z(rate * np.arange(8)), 2)
    np.testing.assert_allclose(found, 0, atol=1e-9)


@given(st.floats(0, 7))
def test_a_turn_through_180_degrees_shows_no_jump(start: float) -> None:
    increments = rotation_increments(about_z(start + 0.2 * np.arange(20)))
    np.testing.assert_allclose(increments[:, 2], 0.2, atol=1e-9)


@given(arrays(np.float64, (4, 3), elements=st.floats(-2, 2)), st.floats(0.02, 1.0))
def test_jerk_is_exact_for_cubics(coefficients: np.ndarray, dt: float) -> None:
    t = dt * np.arange(12)[:, None]
    r = coefficients[0] + coefficients[1] * t + coefficients[2] * t**2 + coefficients[3] * t**3
    np.testing.assert_allclose(jerk_online(r, dt), np.linalg.norm(6 * coefficients[3]), rtol=1e-6, atol=1e-8 / dt**3)


@given(arrays(np.float64, (10, 3), elements=st.floats(-1, 1)))
def test_resampling_on_its_own_grid_changes_nothing(r: np.ndarray) -> None:
    np.testing.assert_allclose(resample(0.1 * np.arange(10), r, None, 0.1)[0], r, atol=1e-9)


def test_resampling_halves_the_arc() -> None:
    _, q = resample([0.0, 1.0], np.zeros((2, 3)), about_z(np.array([0.0, 1.0])) * [[1], [-1]], 0.5)
    np.testing.assert_allclose(q, about_z(np.array([0.0, 0.5, 1.0])), atol=1e-12)


@pytest.mark.parametrize("times", [[0.0, 0.0], [1.0, 0.0], [0.0], [0.0, 1.0, 2.0]])
def test_times_that_do_not_fit_are_refused(times: list[float]) -> None:
    with pytest.raises(ValueError, match="increasing"):
        resample(times, np.zeros((2, 3)), None, 0.1)


def test_the_length_scale_weighs_rotation_against_position(make_spec: Any, make_stream: Any, feed: Any) -> None:
    values = feed(ToolMetrics(make_spec(), MonitorConfig(motion=MotionConfig(length_scale_m=0.1))), make_stream(10))[-1].values
    assert values["tcp_vi/full"] == pytest.approx((values["tcp_vi/p"] + 0.1 * values["tcp_vi/o"]) / 2)


def test_positions_alone_give_p_and_ti(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(ToolMetrics(make_spec(), config), [make_step(i, tcp_position=np.full(3, i * 0.1)) for i in range(8)])[-1]
    assert row.statuses["tcp_pi/p"] is row.statuses["ti/full"] is Status.OK
    assert row.statuses["tcp_pi/o"] is row.statuses["tcp_pi/full"] is Status.UNAVAILABLE


def test_ti_speaks_after_seven_samples_the_rest_after_the_window(make_spec: Any, make_stream: Any, feed: Any, config: MonitorConfig) -> None:
    rows = feed(ToolMetrics(make_spec(), config), make_stream(8))
    assert [row.statuses["ti/full"] for row in rows[5:]] == [Status.WARMING_UP, Status.OK, Status.OK]
    assert [row.statuses["tcp_ai/full"] for row in rows[5:]] == [Status.WARMING_UP, Status.WARMING_UP, Status.OK]


def test_a_gap_starts_the_windows_anew(make_spec: Any, make_stream: Any, feed: Any, config: MonitorConfig) -> None:
    rows = feed(ToolMetrics(make_spec(), config), [*make_stream(10), *make_stream(8, first=15, seed=3)])
    fresh = feed(ToolMetrics(make_spec(), config), make_stream(8, first=15, seed=3))
    assert rows[10].statuses["tcp_pi/p"] is Status.WARMING_UP
    assert rows[-1].values == fresh[-1].values


def test_a_missing_pose_starts_the_windows_anew(make_spec: Any, make_step: Any, make_stream: Any, feed: Any, config: MonitorConfig) -> None:
    rows = feed(ToolMetrics(make_spec(), config), [*make_stream(10), make_step(10), *make_stream(8, first=11)])
    assert set(rows[10].statuses.values()) == {Status.UNAVAILABLE}
    assert set(rows[11].statuses.values()) == {Status.WARMING_UP}
    assert set(rows[-1].statuses.values()) == {Status.OK}


def test_an_unusable_quaternion_spoils_orientation_only(make_spec: Any, make_step: Any, make_stream: Any, feed: Any, config: MonitorConfig) -> None:
    bad = make_step(10, tcp_position=np.zeros(3), tcp_quaternion=np.zeros(4))
    row = feed(ToolMetrics(make_spec(), config), [*make_stream(10), bad])[-1]
    assert row.statuses["tcp_pi/p"] is Status.OK
    assert row.statuses["tcp_pi/o"] is row.statuses["tcp_pi/full"] is Status.INVALID
    assert row.issues[0].code == "tool_quaternion"


def moving(i: int, make_step: Any, time: float | None = None) -> Any:
    t = 0.1 * i if time is None else time
    return make_step(i, time=t, tcp_position=np.array([0.02 * t, 0.01 * t, 0.0]), tcp_quaternion=about_z(np.array([0.3 * t]))[0])


def test_a_lost_step_is_filled_in_between_its_neighbours(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    every = feed(ToolMetrics(make_spec(), config), [moving(i, make_step) for i in range(12)])
    lossy = feed(ToolMetrics(make_spec(), config), [moving(i, make_step) for i in range(12) if i not in (5, 6)])
    assert lossy[-1].values == pytest.approx(every[-1].values, abs=1e-9)
    assert set(lossy[-1].statuses.values()) == {Status.OK}


def test_filling_in_can_be_turned_off(make_spec: Any, make_step: Any, feed: Any) -> None:
    config = MonitorConfig(motion=MotionConfig(max_gap=0))
    rows = feed(ToolMetrics(make_spec(), config), [moving(i, make_step) for i in range(12) if i != 9])
    assert rows[-1].statuses["tcp_pi/p"] is Status.WARMING_UP


def test_many_lost_steps_are_not_filled_in_whatever_the_clock_says(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    steps = [*(moving(i, make_step) for i in range(9)), moving(10**12, make_step, time=1.0)]
    assert feed(ToolMetrics(make_spec(), config), steps)[-1].statuses["tcp_pi/p"] is Status.WARMING_UP


def test_a_long_gap_in_time_is_not_filled_in(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    steps = [*(moving(i, make_step) for i in range(9)), moving(10, make_step, time=1.4)]
    assert feed(ToolMetrics(make_spec(), config), steps)[-1].statuses["tcp_pi/p"] is Status.WARMING_UP


def test_resampling_makes_uneven_poses_even(make_spec: Any, make_step: Any, feed: Any) -> None:
    times = np.cumsum([0.0, 0.1, 0.13, 0.08, 0.09, 0.12, 0.1, 0.07, 0.11, 0.1, 0.12, 0.08, 0.1])
    steps = [moving(i, make_step, time=float(t)) for i, t in enumerate(times)]
    plain = feed(ToolMetrics(make_spec(), MonitorConfig()), steps)[-1].values
    even = feed(ToolMetrics(make_spec(), MonitorConfig(motion=MotionConfig(resample=True))), steps)[-1].values
    assert plain["tcp_vi/p"] > 1e-5
    assert even["tcp_vi/p"] == pytest.approx(0, abs=1e-12)
    assert even["tcp_vi/o"] == pytest.approx(0, abs=1e-9)


def test_online_resampling_is_the_offline_one(make_spec: Any, make_step: Any, feed: Any) -> None:
    rng = np.random.default_rng(3)
    times, r, q = np.cumsum(rng.uniform(0.06, 0.14, 15)), rng.normal(0, 0.1, (15, 3)), rng.normal(0, 1, (15, 4))
    steps = [make_step(i, time=float(t), tcp_position=r[i], tcp_quaternion=q[i]) for i, t in enumerate(times)]
    values = feed(ToolMetrics(make_spec(), MonitorConfig(motion=MotionConfig(resample=True))), steps)[-1].values
    grid, turned = resample(times, r, q, 0.1)
    for order, key in enumerate(("tcp_pi", "tcp_vi", "tcp_ai"), start=1):
        found = tool_instability(grid[-8:], turned[-8:], order)
        assert values[f"{key}/p"] == pytest.approx(found[:3].mean())
        assert values[f"{key}/o"] == pytest.approx(found[3:].mean())


def test_resampling_starts_anew_after_a_long_gap(make_spec: Any, make_step: Any, feed: Any) -> None:
    config = MonitorConfig(motion=MotionConfig(resample=True))
    steps = [*(moving(i, make_step) for i in range(10)), moving(10, make_step, time=2.0)]
    assert feed(ToolMetrics(make_spec(), config), steps)[-1].statuses["tcp_pi/p"] is Status.WARMING_UP

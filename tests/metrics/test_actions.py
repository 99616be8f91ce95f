"""A-PI, A-VI, A-AI: properties, ranges, gaps and unusable actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from monitor.config import ActionConfig, MonitorConfig
from monitor.errors import ConfigError
from monitor.metrics import ActionMetrics, instability, normalised, reversal_rate
from monitor.policy import PolicySpec
from monitor.steps import PolicyStep, Status

windows = st.tuples(st.integers(4, 20), st.integers(1, 9)).flatmap(lambda shape: arrays(np.float64, shape, elements=st.floats(0, 1)))


@given(windows, st.integers(1, 3))
def test_values_within_the_range_give_values_within_it(window: np.ndarray, order: int) -> None:
    assert ((instability(window, order) >= 0) & (instability(window, order) <= 1 + 1e-12)).all()


@given(windows, st.integers(1, 3), st.floats(-10, 10))
def test_an_offset_of_the_whole_window_does_not_matter(window: np.ndarray, order: int, offset: float) -> None:
    np.testing.assert_allclose(instability(window + offset, order), instability(window, order), atol=1e-12)


@given(windows, st.integers(1, 3))
def test_differences_agree_with_numpy(window: np.ndarray, order: int) -> None:
    plain = np.abs(np.diff(window, n=order, axis=0)[-(len(window) - 3) :]).mean(axis=0) / 2 ** (order - 1)
    np.testing.assert_allclose(instability(window, order), plain, atol=1e-12)


@given(st.integers(4, 20), st.floats(-1, 1), st.floats(-1, 1))
def test_a_ramp_has_first_differences_only(length: int, start: float, slope: float) -> None:
    ramp = start + slope * np.arange(length).reshape(-1, 1)
    assert instability(ramp, 1)[0] == pytest.approx(abs(slope), abs=1e-12)
    assert instability(ramp, 2)[0] == pytest.approx(0, abs=1e-12)


def test_numbers_without_a_range_or_not_finite_are_undefined() -> None:
    low, high = np.array([-1.0, 0.0, 1.0, np.nan, -1.0, -1.0]), np.array([1.0, 0.0, -1.0, 1.0, 1.0, 1.0])
    found = normalised(np.array([2.0, 0.0, 0.0, 0.0, np.nan, np.inf]), low, high)
    np.testing.assert_array_equal(found, [1.0, *[np.nan] * 5])


@pytest.mark.parametrize(("length", "order"), [(3, 1), (8, 0), (8, 4)])
def test_an_impossible_window_is_refused(length: int, order: int) -> None:
    with pytest.raises(ValueError, match="expected a window of at least 4 and order 1, 2 or 3"):
        instability(np.zeros((length, 2)), order)


@given(arrays(np.float64, (50, 3), elements=st.floats(-2, 2)), st.integers(4, 12))
def test_stream_equals_batch_at_every_step(actions: np.ndarray, window: int) -> None:
    spec = PolicySpec(name="t", action_names=("a", "b", "c"), groups={}, action_low=(-1.0,) * 3, action_high=(1.0,) * 3)
    metric = ActionMetrics(spec, MonitorConfig(window=window))
    low, high = np.full(3, -1.0), np.full(3, 1.0)
    scaled = np.array([normalised(action, low, high) for action in actions])
    for i, action in enumerate(actions):
        values, statuses = np.full(len(metric.infos), np.nan), np.full(len(metric.infos), 2, np.uint8)
        metric.update(PolicyStep(time=float(i), episode_id="e", step=i, action=action), values, statuses)
        if i + 1 >= window:
            expected = [instability(scaled[i + 1 - window : i + 1], order).mean() for order in (1, 2, 3)]
            np.testing.assert_allclose(values[[0, 5, 10]], expected, atol=1e-12)
        else:
            assert statuses[0] == Status.WARMING_UP


def test_without_a_range_it_is_unavailable_and_says_so_once(make_spec: Any, make_stream: Any, feed: Any, config: MonitorConfig) -> None:
    metric = ActionMetrics(make_spec(action_low=None), config)
    rows = feed(metric, make_stream(10))
    assert {status for row in rows for status in row.statuses.values()} == {Status.UNAVAILABLE}
    assert [len(row.issues) for row in rows] == [1] + [0] * 9
    assert "declares no action range" in rows[0].issues[0].detail
    metric.reset()
    assert len(feed(metric, make_stream(1))[0].issues) == 1


def test_the_configured_range_goes_before_the_policys(make_spec: Any, make_stream: Any, feed: Any) -> None:
    wide = MonitorConfig(actions=ActionConfig(low=(-10.0,) * 7, high=(10.0,) * 7))
    narrow = feed(ActionMetrics(make_spec(action_low=(-10.0,) * 7, action_high=(10.0,) * 7), MonitorConfig()), make_stream(10))[-1].values
    assert feed(ActionMetrics(make_spec(), wide), make_stream(10))[-1].values == narrow


def test_a_configured_range_of_wrong_length_is_refused(make_spec: Any) -> None:
    with pytest.raises(ConfigError, match=r"actions\.low has 2 numbers, but test has 7 action dimensions"):
        ActionMetrics(make_spec(), MonitorConfig(actions=ActionConfig(low=(0.0, 0.0), high=(1.0, 1.0))))


def test_raw_actions_are_measured_on_demand(make_spec: Any, make_step: Any, feed: Any) -> None:
    config = MonitorConfig(actions=ActionConfig(source="raw"))
    steps = [make_step(i, raw_action=np.full(7, (-1.0) ** i)) for i in range(8)]
    assert feed(ActionMetrics(make_spec(), config), steps)[-1].values["a_ai/full"] == 1.0
    assert feed(ActionMetrics(make_spec(), config), [make_step(0)])[0].statuses["a_pi/full"] is Status.UNAVAILABLE


def test_absolute_rotation_targets_are_left_out(make_spec: Any, make_stream: Any, feed: Any, config: MonitorConfig) -> None:
    rows = feed(ActionMetrics(make_spec(action_kind="absolute"), config), make_stream(10))
    values = rows[-1].values
    assert rows[-1].statuses["a_vi/o"] is Status.UNAVAILABLE
    assert values["a_vi/full"] == pytest.approx((3 * values["a_vi/p"] + values["a_vi/gripper"]) / 4)
    assert rows[0].issues[0].code == "action_rotation"


def test_a_gap_starts_the_window_anew(make_spec: Any, make_stream: Any, feed: Any, config: MonitorConfig) -> None:
    rows = feed(ActionMetrics(make_spec(), config), [*make_stream(10), *make_stream(8, first=11, seed=3)])
    statuses = [row.statuses["a_pi/full"] for row in rows[9:]]
    assert statuses == [Status.OK, *[Status.WARMING_UP] * 7, Status.OK]


def test_a_wrong_length_names_found_and_expected(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(ActionMetrics(make_spec(), config), [make_step(action=np.zeros(6))])[0]
    assert row.statuses["a_pi/full"] is Status.INVALID
    assert row.issues[0].detail == "action has 6 numbers, expected 7 (dx, dy, dz, drx, dry, drz, gripper)"


# ---- field case: NaN actions (NVIDIA/Isaac-GR00T 263)


@pytest.fixture
def nan_rows(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> list[Any]:
    """60 smooth steps; 20 is all NaN, 21 in dimension 3, 22 is +inf in dimension 0."""
    return feed(ActionMetrics(make_spec(), config), nan_steps(make_step))


def nan_steps(make_step: Any) -> list[PolicyStep]:
    actions = 0.3 * np.sin(0.1 * np.arange(60)[:, None] + np.arange(7))
    actions[20], actions[21, 3], actions[22, 0] = np.nan, np.nan, np.inf
    return [make_step(i, action=action) for i, action in enumerate(actions)]


def test_nan_actions_are_invalid_with_the_dimension_named(nan_rows: list[Any]) -> None:
    assert {row.statuses["a_vi/full"] for row in nan_rows[20:23]} == {Status.INVALID}
    assert nan_rows[21].issues[0].detail == "action dimension 3 (drx) is NaN"
    assert nan_rows[22].issues[0].detail == "action dimension 0 (dx) is infinite"


def test_nan_actions_are_told_three_times(nan_rows: list[Any]) -> None:
    assert [i for i, row in enumerate(nan_rows) if row.issues] == [20, 21, 22]


def test_windows_recover_from_nan_actions(nan_rows: list[Any], make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    assert [row.statuses["a_vi/full"] for row in nan_rows[23:31]] == [*[Status.WARMING_UP] * 7, Status.OK]
    fresh = feed(ActionMetrics(make_spec(), config), nan_steps(make_step)[23:31])
    assert nan_rows[30].values == fresh[-1].values


def test_a_zigzag_turns_back_at_every_step(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    steps = [make_step(i, action=np.full(7, 0.5 * (-1) ** i)) for i in range(8)]
    assert feed(ActionMetrics(make_spec(), config), steps)[-1].values["reversal_rate/full"] == 1.0


def test_a_steady_motion_never_turns_back(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    steps = [make_step(i, action=np.full(7, 0.05 * i)) for i in range(8)]
    assert feed(ActionMetrics(make_spec(), config), steps)[-1].values["reversal_rate/full"] == 0.0


def test_noise_below_the_limit_is_no_reversal(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    steps = [make_step(i, action=np.full(7, 0.005 * (-1) ** i)) for i in range(8)]
    assert feed(ActionMetrics(make_spec(), config), steps)[-1].values["reversal_rate/full"] == 0.0


@given(arrays(np.float64, (12, 3), elements=st.floats(-1, 1)), st.floats(0.1, 10), st.floats(-5, 5))
def test_reversals_do_not_depend_on_scale_and_offset(actions: np.ndarray, scale: float, offset: float) -> None:
    rounded = np.round(actions, 2)
    assert reversal_rate(np.round(scale * 8) * rounded + np.round(offset), 1e-6) == reversal_rate(rounded, 1e-6)

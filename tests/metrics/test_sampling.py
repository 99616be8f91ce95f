"""EV and ACE: properties, held values, missing and unusable samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from monitor import MonitorConfig
from monitor.config import SamplingConfig
from monitor.metrics import SamplingMetrics, chunk_entropy, execution_variability
from monitor.steps import Status

positions = arrays(np.float64, (6, 3, 3), elements=st.floats(-1, 1))


@given(positions)
def test_entropy_lies_between_zero_and_that_of_all_apart(table: np.ndarray) -> None:
    found = chunk_entropy(table, [0.1, 0.1, 0.1])
    assert (found >= 0).all()
    assert (found <= np.log2(6) + 1e-12).all()


@given(positions, st.permutations(range(6)))
def test_the_order_of_samples_does_not_matter(table: np.ndarray, order: list[int]) -> None:
    np.testing.assert_allclose(chunk_entropy(table[order], [0.1] * 3), chunk_entropy(table, [0.1] * 3), atol=1e-12)


def test_two_modes_are_one_bit() -> None:
    table = np.zeros((8, 1, 3))
    table[4:, :, 0] = 0.5
    assert chunk_entropy(table, [0.1] * 3)[0] == pytest.approx(1.0)


def test_variability_is_at_most_one_half() -> None:
    assert execution_variability([[-1.0], [1.0]], [-1.0], [1.0])[0] == 0.5


def test_a_dimension_without_a_range_is_left_out(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    spec = make_spec(action_high=(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.0))
    row = feed(SamplingMetrics(spec, config), [make_step(samples=np.random.default_rng(0).normal(0, 0.3, (4, 1, 7)))])[0]
    assert row.statuses["ev/gripper"] is Status.UNAVAILABLE
    assert row.values["ev/full"] == pytest.approx((row.values["ev/p"] + row.values["ev/o"]) / 2)


def test_equal_samples_have_no_spread(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(SamplingMetrics(make_spec(), config), [make_step(samples=np.ones((4, 3, 7)))])[0]
    assert set(row.values.values()) == {0.0}


def test_the_sample_of_the_executed_row_counts(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    samples = np.zeros((2, 3, 7))
    samples[1, 2] = 1.0
    rows = [feed(SamplingMetrics(make_spec(), config), [make_step(samples=samples, chunk_offset=offset)])[0] for offset in (0, 2)]
    assert [row.values["ev/full"] for row in rows] == [0.0, 0.25]


def test_values_are_held_for_the_steps_of_the_inference(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    samples = np.random.default_rng(0).normal(0, 0.3, (4, 3, 7))
    steps = [make_step(0, inference_id=1, samples=samples), make_step(1, inference_id=1, chunk_offset=1), make_step(2, inference_id=2)]
    rows = feed(SamplingMetrics(make_spec(), config), steps)
    assert rows[1].values == rows[0].values
    assert set(rows[2].statuses.values()) == {Status.UNAVAILABLE}


def test_increments_are_summed_before_they_are_compared(make_spec: Any, make_step: Any, feed: Any) -> None:
    """The plans part at the first step only; later steps are the same increments, but the positions stay apart."""
    config = MonitorConfig(sampling=SamplingConfig(cell_m=(0.1, 0.1, 0.1)))
    samples = np.zeros((2, 3, 7))
    samples[1, 0, 0] = 0.5
    delta = feed(SamplingMetrics(make_spec(), config), [make_step(samples=samples)])[0]
    absolute = feed(SamplingMetrics(make_spec(action_kind="absolute"), config), [make_step(samples=samples)])[0]
    assert delta.values["ace/mean"] == pytest.approx(1.0)
    assert absolute.values["ace/mean"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("samples", "status", "code"),
    [
        (np.full((2, 3, 7), np.nan), Status.INVALID, "samples_not_finite"),
        (np.zeros((2, 3, 5)), Status.INVALID, "samples_shape"),
        (np.zeros((1, 3, 7)), Status.UNAVAILABLE, None),
    ],
    ids=["nan", "narrow", "one"],
)
def test_samples_that_cannot_be_used(
    samples: np.ndarray, status: Status, code: str | None, make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig
) -> None:
    row = feed(SamplingMetrics(make_spec(), config), [make_step(samples=samples)])[0]
    assert set(row.statuses.values()) == {status}
    assert [issue.code for issue in row.issues] == ([] if code is None else [code])


def test_without_a_range_there_is_no_variability(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(SamplingMetrics(make_spec(action_low=None), config), [make_step(samples=np.zeros((2, 3, 7)))])[0]
    assert set(row.statuses.values()) == {Status.UNAVAILABLE}

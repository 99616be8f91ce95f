"""STAC-single, TCE, ACM and STAC: overlap by origin of the plans, held values, what cannot be compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from monitor import MonitorConfig
from monitor.config import PlanConfig, TimingConfig
from monitor.metrics import PlanMetrics, chunk_overlap, mmd2
from monitor.steps import PolicyStep, Status

PATH = np.cumsum(np.full((30, 7), 0.01), axis=0)
points = arrays(np.float64, (5, 4), elements=st.floats(-2, 2))


def steps(make_step: Any, executed: int, horizon: int = 6, count: int = 12, skip: int = 0, shift: float = 0.0) -> list[PolicyStep]:
    """Plans along one path; `skip` rows of each are never executed, `shift` lifts every second plan."""
    made = []
    for i in range(count):
        inference, row = divmod(i, executed)
        start = inference * executed - skip
        chunk = PATH[max(start, 0) : max(start, 0) + horizon] + shift * (inference % 2)
        made.append(make_step(i, inference_id=inference, chunk_offset=row + min(skip, inference * executed), chunk=chunk))
    return made


@given(points)
def test_a_set_does_not_differ_from_itself(x: np.ndarray) -> None:
    assert mmd2(x, x) == pytest.approx(0, abs=1e-12)


@given(points, points)
def test_the_distance_of_sets_is_symmetric_and_at_most_two(x: np.ndarray, y: np.ndarray) -> None:
    assert mmd2(x, y, 1.0) == pytest.approx(mmd2(y, x, 1.0), abs=1e-12)
    assert 0 <= mmd2(x, y) <= 2


def test_plans_without_a_common_step_have_no_distance() -> None:
    assert np.isnan(chunk_overlap(np.zeros((3, 2)), np.zeros((3, 2)), 3)).all()


def test_plans_that_agree_are_zero(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    rows = feed(PlanMetrics(make_spec(horizon=6, executed=2), config), steps(make_step, 2))
    assert rows[1].statuses["stac_single/full"] is Status.WARMING_UP
    assert [row.values["stac_single/full"] for row in rows[2:]] == pytest.approx([0.0] * 10)


def test_plans_that_disagree_are_told_at_the_new_inference_and_held(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    rows = feed(PlanMetrics(make_spec(horizon=6, executed=2), config), steps(make_step, 2, shift=0.1))
    assert [row.values["stac_single/full"] for row in rows[2:]] == pytest.approx([0.1 * np.sqrt(7)] * 10)
    assert rows[2].values["tce/full"] == pytest.approx(0.01)


def test_rows_that_are_skipped_do_not_shift_the_comparison(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    """Asynchronous inference: a plan arrives when its first rows are past."""
    rows = feed(PlanMetrics(make_spec(horizon=6, executed=2), config), steps(make_step, 2, skip=1))
    assert [row.values["stac_single/full"] for row in rows[2:]] == pytest.approx([0.0] * 10)


def test_plans_that_are_executed_to_the_end_are_not_compared(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    rows = feed(PlanMetrics(make_spec(horizon=3, executed=3), config), steps(make_step, 3, horizon=3))
    assert rows[-1].statuses["stac_single/full"] is rows[-1].statuses["tce/full"] is Status.UNAVAILABLE
    assert rows[-1].statuses["acm/full"] is Status.OK


def test_an_unusable_plan_is_invalid_and_not_compared(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    stream = steps(make_step, 2, count=8)
    bad = make_step(2, inference_id=1, chunk=np.full((6, 7), np.nan))
    rows = feed(PlanMetrics(make_spec(horizon=6, executed=2), config), [*stream[:2], bad, *stream[4:]])
    assert rows[2].statuses["acm/full"] is Status.INVALID
    assert rows[3].statuses["stac_single/full"] is Status.WARMING_UP


def with_samples(make_step: Any, *means: float) -> list[PolicyStep]:
    rng = np.random.default_rng(0)
    return [make_step(i, samples=mean + rng.normal(0, 0.01, (8, 4, 7))) for i, mean in enumerate(means)]


def test_stac_sums_over_the_episode(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    rows = feed(PlanMetrics(make_spec(horizon=4, samples=8), config), with_samples(make_step, 0.0, 0.0, 0.5, 0.5))
    values = [row.values["stac/sum"] for row in rows]
    assert np.isnan(values[0])
    assert values[2] - values[1] > 3 * values[1] > 0
    assert values[3] >= values[2]


def test_stac_leaves_the_gripper_out(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    samples = np.zeros((4, 4, 7))
    toggled = samples.copy()
    toggled[:, :, 6] = 1.0
    rows = feed(PlanMetrics(make_spec(horizon=4, samples=4), config), [make_step(0, samples=samples), make_step(1, samples=toggled)])
    assert rows[1].values["stac/sum"] == 0.0


def test_stac_compares_the_first_samples_only(make_spec: Any, make_step: Any, feed: Any) -> None:
    samples = np.zeros((8, 4, 7))
    other = samples.copy()
    other[4:] = 5.0
    config = MonitorConfig(plans=PlanConfig(stac_samples=4))
    rows = feed(PlanMetrics(make_spec(horizon=4, samples=8), config), [make_step(0, samples=samples), make_step(1, samples=other)])
    assert rows[1].values["stac/sum"] == 0.0


def test_without_plans_it_is_unavailable(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    assert set(feed(PlanMetrics(make_spec(), config), [make_step()])[0].statuses.values()) == {Status.UNAVAILABLE}


def test_values_of_an_old_plan_are_stale(make_spec: Any, make_step: Any, feed: Any) -> None:
    config = MonitorConfig(timing=TimingConfig(max_age_steps=2))
    stream = [*steps(make_step, 2, count=4), *(make_step(i, inference_id=1, chunk_offset=i - 2) for i in range(4, 6))]
    rows = feed(PlanMetrics(make_spec(horizon=6, executed=2), config), stream)
    assert [row.statuses["stac_single/full"] for row in rows[2:]] == [Status.OK, Status.OK, Status.OK, Status.STALE]

"""Age of the inference, time of the policy call, jitter of the steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor import MonitorConfig
from monitor.metrics import TimingMetrics
from monitor.steps import Status


def test_the_age_counts_steps_since_the_inference(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    steps = [make_step(i, inference_id=i // 3, chunk_offset=i % 3) for i in range(7)]
    assert [row.values["age/steps"] for row in feed(TimingMetrics(make_spec(), config), steps)] == [0, 1, 2, 0, 1, 2, 0]


def test_a_plan_that_arrives_late_is_older(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    steps = [make_step(i, inference_id=i // 3, chunk_offset=i % 3 + 2) for i in range(3)]
    assert [row.values["age/steps"] for row in feed(TimingMetrics(make_spec(), config), steps)] == [2, 3, 4]


def test_calls_without_numbers_are_known_by_their_duration(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    steps = [make_step(i, inference_id=0, chunk_offset=i % 2, inference_seconds=0.05 if i % 2 == 0 else None) for i in range(4)]
    assert [row.values["age/steps"] for row in feed(TimingMetrics(make_spec(), config), steps)] == [0, 1, 0, 1]


def test_the_budget_is_the_time_in_which_the_actions_are_executed(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    spec = make_spec(executed=2, control_hz=10.0)
    steps = [make_step(0, inference_id=0, inference_seconds=0.3), make_step(1, inference_id=0, chunk_offset=1)]
    assert [row.values["inference/budget"] for row in feed(TimingMetrics(spec, config), steps)] == pytest.approx([1.5, 1.5])


def test_without_a_duration_there_is_no_budget(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    assert feed(TimingMetrics(make_spec(), config), [make_step()])[0].statuses["inference/budget"] is Status.UNAVAILABLE


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_an_impossible_duration_is_invalid(seconds: float, make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(TimingMetrics(make_spec(), config), [make_step(inference_seconds=seconds)])[0]
    assert row.statuses["inference/budget"] is Status.INVALID
    assert row.issues[0].code == "inference_seconds"


def test_even_steps_have_no_jitter(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    rows = feed(TimingMetrics(make_spec(), config), [make_step(i) for i in range(9)])
    assert rows[7].statuses["rate/jitter"] is Status.WARMING_UP
    assert rows[8].values["rate/jitter"] == pytest.approx(0, abs=1e-12)


def test_jitter_is_the_root_mean_square_deviation(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    times = np.cumsum([0.0, *[0.12, 0.08] * 4])
    rows = feed(TimingMetrics(make_spec(), config), [make_step(i, time=float(t)) for i, t in enumerate(times)])
    assert rows[-1].values["rate/jitter"] == pytest.approx(0.02)


def test_lost_steps_are_no_jitter(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    rows = feed(TimingMetrics(make_spec(), config), [make_step(i) for i in range(12) if i != 5])
    assert rows[-1].values["rate/jitter"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("time", [0.0, float("nan")], ids=["backwards", "nan"])
def test_unusable_time_starts_the_window_anew(time: float, make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    rows = feed(TimingMetrics(make_spec(), config), [*(make_step(i) for i in range(9)), make_step(9, time=time)])
    assert rows[9].statuses["rate/jitter"] is Status.WARMING_UP

"""Field case D6: stamps that give absurd latencies (NVIDIA-ISAAC-ROS/greenwave_monitor PR 11). The steps carry stamps on the control clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from monitor import MonitorConfig, PolicySpec
from monitor.metrics import CameraMetrics, TimingMetrics
from monitor.steps import Status

START = 1_764_000_000.0  # s, wall clock


@pytest.fixture
def rows(make_step: Any, feed: Any) -> Any:
    """Rows of the camera family for a stamp that depends on the step and its time."""

    def run(stamp: Callable[[int, float], float | None]) -> Any:
        steps = []
        for i in range(30):
            now = START + 0.1 * i
            given = stamp(i, now)
            steps.append(make_step(i, time=now, image_times={} if given is None else {"front": given}))
        return feed(CameraMetrics(PolicySpec(name="d6", cameras=("front",)), MonitorConfig()), steps)

    return run


@pytest.mark.parametrize(
    ("stamp", "reason"),
    [
        (lambda i, now: 0.0, "was not set"),
        (lambda i, now: 5321.4 + 0.1 * i, "comes from another clock"),
        (lambda i, now: None, "carry no stamp"),
    ],
    ids=["zero", "since boot", "no header"],
)
def test_a_stamp_that_is_no_age_is_unavailable_with_the_reason(stamp: Any, reason: str, rows: Any) -> None:
    found = rows(stamp)
    assert {row.statuses["image/age"] for row in found} == {Status.UNAVAILABLE}
    assert found[0].issues[0].code == "image_stamp"
    assert reason in found[0].issues[0].detail


def test_a_stamp_in_the_future_is_clock_skew_and_never_a_negative_age(rows: Any) -> None:
    found = rows(lambda i, now: now + 0.5)
    assert {row.statuses["image/age"] for row in found} == {Status.UNAVAILABLE}
    assert found[0].issues[0].code == "clock_skew"
    assert "0.5 s ahead" in found[0].issues[0].detail


def test_a_good_stamp_is_measured(rows: Any) -> None:
    assert rows(lambda i, now: now - 0.08)[-1].values["image/age"] == pytest.approx(0.08, abs=0.005)


def test_every_tenth_stamp_that_is_zero_is_counted(rows: Any) -> None:
    found = rows(lambda i, now: 0.0 if i % 10 == 9 else now - 0.08)
    assert [i for i, row in enumerate(found) if row.issues] == [9, 19, 29]
    assert sum(row.statuses["image/age"] is Status.OK for row in found) == 27


def test_the_rate_is_still_measured(make_step: Any, feed: Any) -> None:
    steps = [make_step(i, time=START + 0.1 * i, image_times={"front": 0.0}) for i in range(20)]
    row = feed(TimingMetrics(PolicySpec(name="d6"), MonitorConfig()), steps)[-1]
    assert row.values["rate/jitter"] == pytest.approx(0, abs=1e-6)


def test_a_run_that_begins_at_zero_is_measured(make_step: Any, feed: Any) -> None:
    steps = [make_step(i, image_times={"front": 0.1 * i}) for i in range(3)]
    found = feed(CameraMetrics(PolicySpec(name="d6"), MonitorConfig()), steps)
    assert {row.values["image/age"] for row in found} == {0.0}


def test_the_skew_between_cameras(make_step: Any, feed: Any) -> None:
    step = make_step(10, image_times={"front": 0.98, "wrist": 0.93})
    row = feed(CameraMetrics(PolicySpec(name="d6"), MonitorConfig()), [step])[0]
    assert row.values["image/skew"] == pytest.approx(0.05)
    assert row.values["image/age"] == pytest.approx(0.07)


def test_one_bad_stamp_does_not_silence_the_other_camera(make_step: Any, feed: Any) -> None:
    step = make_step(10, time=START, image_times={"front": 0.0, "wrist": START - 0.07})
    row = feed(CameraMetrics(PolicySpec(name="d6"), MonitorConfig()), [step])[0]
    assert row.values["image/age"] == pytest.approx(0.07)
    assert row.statuses["image/skew"] is Status.UNAVAILABLE

"""Field case D5: the picture is served once and then for ever (pollen-robotics/grabette PR 89)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor import Monitor, MonitorConfig, PolicySpec
from monitor.metrics import CameraMetrics
from monitor.steps import ImageFacts, PolicyStep, Status, image_facts

FROZEN_AT = 40


def picture(i: int, noise: int = 0) -> np.ndarray:
    """64 x 64, another one for each i; noise of one level on top."""
    levels = np.random.default_rng(i).integers(20, 200, (64, 64, 3))
    return (levels + np.random.default_rng(1000 + noise).integers(0, 2, (64, 64, 3)) * (noise > 0)).astype(np.uint8)


def stream(make_step: Any, kind: str) -> list[PolicyStep]:
    """100 steps at 10 Hz; the camera is good up to step 40, then as `kind` says."""
    made = []
    for i in range(100):
        frozen = i >= FROZEN_AT
        shown = min(i, FROZEN_AT)
        facts = image_facts(picture(shown, noise=i if frozen and kind in ("noise", "still") else 0))
        if frozen and kind == "empty":
            facts = image_facts(None)
        stamp = 0.1 * (shown if kind == "served once" else i)
        moves = 0.0 if kind == "still" and frozen else 0.01
        action = np.zeros(7) if kind == "still" and frozen else np.full(7, 0.01)
        made.append(make_step(i, action=action, tcp_position=np.array([moves * i, 0, 0]), image_times={"front": stamp}, image_facts={"front": facts}))
    return made


@pytest.fixture
def rows(make_step: Any, feed: Any) -> Any:
    """Rows of the family for a kind of stream."""
    return lambda kind: feed(CameraMetrics(PolicySpec(name="d5", cameras=("front",)), MonitorConfig()), stream(make_step, kind))


def test_same_bytes_and_stamp_are_stale_as_soon_as_the_age_passes_the_limit(rows: Any) -> None:
    found = rows("served once")
    stale = [i for i, row in enumerate(found) if row.statuses["image/repeats"] is Status.STALE]
    assert stale[0] == FROZEN_AT + 6
    assert found[stale[0]].issues[0].code == "image_stale"
    assert found[99].values["image/age"] == pytest.approx(5.9)


def test_same_bytes_with_fresh_stamps_are_a_repeat(rows: Any) -> None:
    found = rows("fresh stamps")
    assert found[99].values["image/repeats"] == 59
    assert [i for i, row in enumerate(found) for issue in row.issues if issue.code == "image_frozen"] == [FROZEN_AT + 5]
    assert found[99].values["image/age"] == pytest.approx(0)


@pytest.mark.parametrize("kind", ["noise", "still"])
def test_a_working_camera_is_quiet(kind: str, rows: Any) -> None:
    found = rows(kind)
    assert max(row.values["image/repeats"] for row in found) == 0
    assert not any(row.issues for row in found)


def test_an_empty_picture_is_counted_and_the_last_good_one_ages(rows: Any) -> None:
    found = rows("empty")
    assert sum(issue.code == "image_empty" for row in found for issue in row.issues) == 60
    assert found[99].values["image/age"] == pytest.approx(6.0)
    assert found[99].statuses["image/exposure"] is Status.STALE


def test_a_still_robot_in_a_simulator_without_noise_is_quiet(make_step: Any, feed: Any) -> None:
    same = image_facts(picture(0))
    steps = [make_step(i, tcp_position=np.zeros(3), image_times={"front": 0.1 * i}, image_facts={"front": same}) for i in range(50)]
    assert feed(CameraMetrics(PolicySpec(name="d5"), MonitorConfig()), steps)[-1].values["image/repeats"] == 0


def test_a_slow_camera_does_not_repeat(make_step: Any, feed: Any) -> None:
    steps = [
        make_step(
            i,
            tcp_position=np.full(3, 0.01 * i),
            image_times={"front": 0.1 * (i - i % 3)},
            image_facts={"front": image_facts(picture(i - i % 3))},
        )
        for i in range(30)
    ]
    assert max(row.values["image/repeats"] for row in feed(CameraMetrics(PolicySpec(name="d5"), MonitorConfig()), steps)) == 0


def test_alarms_of_the_frozen_and_the_stale_camera(make_step: Any) -> None:
    for kind, name in (("served once", "camera_stale"), ("empty", "camera_stale"), ("fresh stamps", "camera_frozen")):
        monitor = Monitor(PolicySpec(name="d5", cameras=("front",)), MonitorConfig())
        reports = [monitor.update(step) for step in stream(make_step, kind)]
        assert [alarm.name for alarm in reports[-1].active_alarms] == [name], kind
        assert not any(report.active_alarms for report in reports[:FROZEN_AT])


@pytest.mark.parametrize(("level", "share"), [(0, 1.0), (255, 1.0), (128, 0.0)])
def test_dark_and_saturated_pictures(level: int, share: float, make_step: Any, feed: Any) -> None:
    facts = image_facts(np.full((64, 64, 3), level))
    row = feed(CameraMetrics(PolicySpec(name="d5"), MonitorConfig()), [make_step(image_times={"front": 0.0}, image_facts={"front": facts})])[0]
    assert row.values["image/exposure"] == share


def test_facts_see_every_byte() -> None:
    one = picture(0)
    other = one.copy()
    other[1, 1, 1] += 1
    assert image_facts(one).hash64 != image_facts(other).hash64
    assert image_facts(one) == image_facts(one.copy())


def test_an_empty_picture_has_no_bytes() -> None:
    assert image_facts(np.zeros((0, 0, 3))) == ImageFacts(hash64=0, mean=0.0, dark=0.0, saturated=0.0, bytes=0)


def test_a_repeat_is_seen_although_the_stamps_are_wrong(make_step: Any, feed: Any) -> None:
    facts = {"front": image_facts(picture(0))}
    steps = [make_step(i, tcp_position=np.full(3, 0.01 * i), image_times={"front": 0.1 * i + 5.0}, image_facts=facts) for i in range(9)]
    row = feed(CameraMetrics(PolicySpec(name="d5"), MonitorConfig()), steps)[-1]
    assert row.values["image/repeats"] == 8
    assert row.statuses["image/age"] is Status.UNAVAILABLE


def test_without_stamps_a_repeat_is_not_judged(make_step: Any, feed: Any) -> None:
    row = feed(CameraMetrics(PolicySpec(name="d5"), MonitorConfig()), [make_step(image_facts={"front": image_facts(picture(0))})])[0]
    assert row.statuses["image/repeats"] is Status.UNAVAILABLE
    assert row.statuses["image/exposure"] is Status.OK

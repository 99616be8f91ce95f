"""Pictures: how old they are, whether their stamps can be believed, whether they repeat, whether they are dark or saturated."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitor.config import MonitorConfig
from monitor.metrics.common import make_info
from monitor.policy import PolicySpec
from monitor.steps import Family, ImageFacts, Issue, MetricInfo, PolicyStep, Status

_AGE, _SKEW, _REPEATS, _EXPOSURE = range(4)
_SOURCE = "field reports (pollen-robotics/grabette PR 89, NVIDIA-ISAAC-ROS/greenwave_monitor PR 11); no paper defines it"
_MOST_CAMERAS = 16


@dataclass(slots=True)
class _Camera:
    """What is known of one camera: stamp of the last good picture, last stamp, hash, where the tool was when that was new, and the repeats since."""

    stamp: float = math.nan
    last: float = math.nan
    hash64: int | None = None
    tool: tuple[float, ...] | None = None
    repeats: int = 0


class CameraMetrics:
    """Age and content of the pictures; each value is that of the worst camera.

    The age is that of the last good picture: an empty one does not count. A stamp that cannot be an age (not set, another clock, in the future) is
    told and left out. A picture repeats if its bytes stay the same while its stamp is new and the tool has moved (or is not measured). Repeats and
    exposure are stale when the oldest picture is.
    """

    def __init__(self, spec: PolicySpec, config: MonitorConfig) -> None:
        """Prepare."""
        self.infos = _infos()
        self._names, self._config = spec.cameras, config.camera
        self._moved = config.motion.frozen_path_m
        self.reset()

    def reset(self) -> None:
        """Forget the episode."""
        self._cameras: dict[str, _Camera] = {}
        self._told: set[str] = set()

    def update(self, step: PolicyStep, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        """Take one step; see Metric."""
        if not step.image_times and not step.image_facts:
            return self._without_stamps(self._names)
        issues: tuple[Issue, ...] = ()
        if len(step.image_times) < len(self._names):
            issues = self._without_stamps(tuple(name for name in self._names if name not in step.image_times))
        oldest, stamps = -math.inf, []
        for name, stamp in step.image_times.items():
            camera = self._camera(name)
            if camera is None:
                continue
            facts = step.image_facts.get(name)
            issues += self._look(name, camera, step, float(stamp), facts)
            if not math.isnan(camera.stamp):
                age = step.time - camera.stamp
                if age > self._config.max_age_s:
                    issues += self._once("image_stale", name, f"the last good picture of {name} is {age:.3g} s old")
                oldest = max(oldest, age)
                stamps.append(camera.stamp)
        if stamps:
            values[_AGE], statuses[_AGE] = max(oldest, 0.0), Status.OK
        if len(stamps) > 1:
            values[_SKEW], statuses[_SKEW] = max(stamps) - min(stamps), Status.OK
        if step.image_facts:
            self._content(step, oldest, values, statuses)
        return issues

    def _camera(self, name: str) -> _Camera | None:
        if name not in self._cameras and len(self._cameras) >= _MOST_CAMERAS:
            return None
        return self._cameras.setdefault(name, _Camera())

    def _look(self, name: str, camera: _Camera, step: PolicyStep, stamp: float, facts: ImageFacts | None) -> tuple[Issue, ...]:
        """Take the stamp if picture and stamp are good, and count repeats; say what is wrong."""
        if facts is not None and facts.bytes == 0:
            return (Issue("image_empty", f"picture of {name} is empty"),)
        fresh, camera.last = stamp != camera.last, stamp
        wrong = self._judge(name, camera.stamp, stamp, step.time - stamp)
        camera.stamp = stamp if wrong is None else math.nan
        found = () if wrong is None else (wrong,)
        return found if facts is None else found + self._count(name, camera, step, facts, fresh)

    def _count(self, name: str, camera: _Camera, step: PolicyStep, facts: ImageFacts, fresh: bool) -> tuple[Issue, ...]:
        tool = None if step.tcp_position is None else tuple(step.tcp_position.tolist())
        if facts.hash64 != camera.hash64:
            camera.hash64, camera.tool, camera.repeats = facts.hash64, tool, 0
        elif fresh and self._has_moved(camera.tool, tool):
            camera.repeats += 1
            if camera.repeats == self._config.repeats:
                return (Issue("image_frozen", f"{name} shows the same picture for {camera.repeats} new stamps while the tool moves"),)
        return ()

    def _judge(self, name: str, last: float, stamp: float, age: float) -> Issue | None:
        if not math.isfinite(age):
            return Issue("image_stamp", f"stamp of {name} is {stamp}, no finite number")
        if stamp == 0.0 and last != 0.0 and age > self._config.max_age_s:
            return Issue("image_stamp", f"stamp of {name} is 0: it was not set")
        if abs(age) > self._config.implausible_s:
            return Issue("image_stamp", f"stamp of {name} is {age:.6g} s off: it comes from another clock")
        if age < -self._config.ahead_s:
            return Issue("clock_skew", f"stamp of {name} is {-age:.3g} s ahead of the step: the clocks differ")
        return None

    def _has_moved(self, before: tuple[float, ...] | None, now: tuple[float, ...] | None) -> bool:
        if before is None or now is None or len(before) != len(now):
            return True
        return not math.dist(before, now) <= self._moved

    def _content(self, step: PolicyStep, oldest: float, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> None:
        good = [facts for facts in step.image_facts.values() if facts.bytes > 0]
        if oldest > self._config.max_age_s:
            statuses[_REPEATS : _EXPOSURE + 1] = Status.STALE
        elif not good:
            statuses[_REPEATS : _EXPOSURE + 1] = Status.INVALID
        else:
            values[_EXPOSURE], statuses[_EXPOSURE] = max(max(facts.dark, facts.saturated) for facts in good), Status.OK
            if self._cameras:  # without stamps a repeat is not known from a late picture
                values[_REPEATS], statuses[_REPEATS] = max(camera.repeats for camera in self._cameras.values()), Status.OK

    def _without_stamps(self, names: tuple[str, ...]) -> tuple[Issue, ...]:
        issues: tuple[Issue, ...] = ()
        for name in names:
            issues += self._once("image_stamp", name, f"pictures of {name} carry no stamp: their age is not known")
        return issues

    def _once(self, code: str, name: str, text: str) -> tuple[Issue, ...]:
        if (key := f"{code} {name}") in self._told:
            return ()
        self._told.add(key)
        return (Issue(code, text),)


def _infos() -> tuple[MetricInfo, ...]:
    rows = (
        ("age", "Picture age", "s", math.inf, "older", "time of the step - stamp of the last good picture; oldest camera"),
        ("skew", "Camera skew", "s", math.inf, "further apart", "latest - earliest stamp of the cameras' last good pictures"),
        (
            "repeats",
            "Repeats",
            "count",
            math.inf,
            "picture repeats longer",
            "new stamps in a row with the same bytes while the tool moves; worst camera",
        ),
        ("exposure", "Exposure", "1", 1.0, "darker or brighter", "share of values near black, or near white, the larger one; worst camera"),
    )
    return tuple(
        make_info("image", variant, label, Family.CAMERA, formula, unit=unit, high=high, higher_means=meaning, source=_SOURCE)
        for variant, label, unit, high, meaning, formula in rows
    )

"""Observations out of parts that arrive on their own topics. No ROS in here; times that end in `_ns` are stamps, `now` is a steady clock in s.

Used from one thread, the executor's. Parts are kept by reference, one of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(slots=True)
class _Part:
    stamp_ns: int
    arrived: float
    value: Any
    fresh: bool = True  # not yet used in a step


class Assembled(NamedTuple):
    """The parts of one step: name -> (stamp in ns, value); cameras under `camera/NAME`."""

    stamp_ns: int
    parts: dict[str, tuple[int, Any]]


class Skipped(NamedTuple):
    """A step that could not be put together, and why."""

    stamp_ns: int
    reason: str


class Assembler:
    """Collects parts.

    With trigger `observation`, a new stamp of the first part begins a step. It is complete when all parts have that stamp and each camera has it or
    has delivered since the last step (a delayed camera keeps its own stamps). A part that is not there after `grace_s` is replaced by its last
    value if that arrived within `timeout_s`, else the step is skipped. With trigger `timer`, parts are only kept, and `latest` takes what is there.
    """

    def __init__(self, parts: Sequence[str], cameras: Sequence[str], timeout_s: float, grace_s: float, *, timer: bool = False) -> None:
        self._cameras = tuple(f"camera/{camera}" for camera in cameras)
        self._wanted = (*parts, *self._cameras)
        self._key = "" if timer or not self._wanted else self._wanted[0]
        self._timeout_s, self._grace_s = timeout_s, grace_s
        self._parts: dict[str, _Part] = {}
        self._pending: tuple[int, float] | None = None
        self._last_ns: int | None = None
        self.late = 0

    def reset(self, since_ns: int) -> None:
        """Forget the last stamp, and the step that waits if it is older than `since_ns`; the parts stay. For a new episode or a clock that jumped."""
        if self._pending is not None and self._pending[0] < since_ns:
            self._pending = None
        self._last_ns = None

    def put(self, name: str, stamp_ns: int, value: Any, now: float) -> Skipped | None:
        """Take a part. Returns the step that a new one has pushed out, if any."""
        missing = self._missing(self._pending[0]) if name == self._key and self._pending is not None else []
        self._parts[name] = _Part(stamp_ns, now, value)
        if name != self._key:
            return None
        if self._last_ns is not None and stamp_ns <= self._last_ns:
            if self._last_ns - stamp_ns <= self._timeout_s * 1e9:
                self.late += 1
                return None
            self._pending = self._last_ns = None  # the clock jumped back
        pushed = self._pending
        self._pending = (stamp_ns, now)
        if pushed is None or pushed[0] == stamp_ns:
            return None
        return Skipped(pushed[0], f"missing: {', '.join(missing)}" if missing else "the next observation came first")

    def ready(self, now: float) -> Assembled | Skipped | None:
        """The step that is complete, or has waited long enough; None while there is nothing to do."""
        if self._pending is None:
            return None
        stamp_ns, since = self._pending
        if not self._missing(stamp_ns):
            return self._take(stamp_ns, now)
        if now - since < self._grace_s:
            return None
        return self._take_or_skip(stamp_ns, now)

    def latest(self, stamp_ns: int, now: float) -> Assembled | Skipped:
        """For the timer: the newest of everything at the time of the tick."""
        return self._take_or_skip(stamp_ns, now)

    def _take_or_skip(self, stamp_ns: int, now: float) -> Assembled | Skipped:
        absent = [name for name in self._wanted if name not in self._parts or now - self._parts[name].arrived > self._timeout_s]
        if absent:
            self._done(stamp_ns)
            return Skipped(stamp_ns, f"missing: {', '.join(absent)}")
        return self._take(stamp_ns, now)

    def _take(self, stamp_ns: int, now: float) -> Assembled:
        self._done(stamp_ns)
        found = {name: (part.stamp_ns, part.value) for name, part in self._parts.items() if now - part.arrived <= self._timeout_s}
        for part in self._parts.values():
            part.fresh = False
        return Assembled(stamp_ns, found)

    def _done(self, stamp_ns: int) -> None:
        self._pending = None
        self._last_ns = stamp_ns

    def _missing(self, stamp_ns: int) -> list[str]:
        return [name for name in self._wanted if not self._present(name, stamp_ns)]

    def _present(self, name: str, stamp_ns: int) -> bool:
        part = self._parts.get(name)
        return part is not None and (part.stamp_ns == stamp_ns or (part.fresh and name in self._cameras))

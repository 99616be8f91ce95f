"""Helpers that several adapters share."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import track

from monitor.errors import PolicyError
from monitor.policy import Observation

STATE_NAMES = ("x", "y", "z", "yaw", "gripper")


T = TypeVar("T")


def progress(items: Iterable[T], total: int, what: str) -> Iterable[T]:
    """The items, with a progress bar on stderr where that is a terminal."""
    return track(items, what, total=total, console=Console(stderr=True), disable=not sys.stderr.isatty())


def tool_state(observation: Observation, names: Sequence[str] = STATE_NAMES) -> list[float]:
    """Numbers of the robot's state by name: x, y, z of the tool (m), yaw of its x axis about the base's z (rad), gripper opening (0 to 1).

    Raises:
        PolicyError: a name is unknown, or the observation lacks what it needs.
    """
    known: dict[str, float] = {}
    if observation.tcp_position is not None:
        known |= dict(zip("xyz", map(float, observation.tcp_position), strict=True))
    if observation.tcp_quaternion is not None:
        w, x, y, z = map(float, observation.tcp_quaternion)
        known["yaw"] = math.atan2(2 * (x * y + w * z), 1 - 2 * (y * y + z * z))
    if observation.gripper is not None:
        known["gripper"] = float(observation.gripper)
    missing = [name for name in names if name not in known]
    if missing:
        raise PolicyError(
            f"observation {observation.episode_id!r} step {observation.step} lacks {', '.join(missing)}; the prompt holds the robot's state: "
            "fill tcp_position, tcp_quaternion and gripper"
        )
    return [known[name] for name in names]


def bin_index(value: float, low: float, high: float, bins: int) -> int:
    """Which of `bins` equal bins between low and high holds the value; what lies outside counts to the nearest. NaN counts to the first."""
    share = (value - low) / (high - low)
    return min(max(int(share * bins), 0), bins - 1) if math.isfinite(share) else 0

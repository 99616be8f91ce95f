"""Frames for training: what is stored of each control step, and how shards are written and read.

Seeds are apart by construction: evaluation uses seeds below `TRAINING_SEEDS`, demonstrations start there, starts at
`START_SEEDS` and corrections (DAgger) at `CORRECTION_SEEDS`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from monitor.policy import Observation
from policies.base import tool_state

TRAINING_SEEDS = 1_000_000
START_SEEDS = 1_500_000
CORRECTION_SEEDS = 2_000_000
CAMERAS = ("front", "wrist")
IMAGE_SIZE = 96
WORK = Path("build/bundled")
"""Default work folder, outside git."""


@dataclass(slots=True)
class Frames:
    """N control steps.

    Attributes:
        images: (N, cameras, S, S, 3) uint8.
        state: (N, 5) x, y, z (m), yaw (rad), gripper (0 to 1).
        instruction: (N,) text.
        action: (N, 7) the expert's clean action.
        goal: (N, 7) object position, target position (NaN without target), m, and whether the object is held.
        episode: (N,) seed of the attempt.
    """

    images: NDArray[np.uint8]
    state: NDArray[np.float32]
    instruction: NDArray[np.str_]
    action: NDArray[np.float32]
    goal: NDArray[np.float32]
    episode: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.action)


class FrameList:
    """Collects single steps and makes Frames of them."""

    def __init__(self) -> None:
        self._rows: list[tuple[NDArray[np.uint8], list[float], str, NDArray[np.float64], NDArray[np.float64], int]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, observation: Observation, action: NDArray[np.float64], seed: int) -> None:
        """Store what the policy sees and what the expert would do."""
        goal = observation.goal
        assert goal is not None
        target = np.full(3, np.nan) if goal.target_position is None else goal.target_position
        truth = np.concatenate([goal.object_position, target, [float(goal.grasped)]])
        pictures = np.stack([observation.images[name] for name in CAMERAS])
        self._rows.append((pictures, tool_state(observation), observation.instruction, action, truth, seed))

    def frames(self) -> Frames:
        """All steps so far."""
        images, state, instruction, action, goal, episode = zip(*self._rows, strict=True)
        return Frames(
            np.stack(images), np.array(state, "f4"), np.array(instruction), np.array(action, "f4"), np.array(goal, "f4"), np.array(episode, "i8")
        )


def save(path: Path, frames: Frames) -> None:
    """Write a shard; the file appears only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, **{field.name: getattr(frames, field.name) for field in fields(Frames)})
    part.rename(path)


def count(path: Path) -> int:
    """Number of frames in a shard."""
    with np.load(path) as shard:
        return len(shard["action"])


def load(paths: list[Path]) -> Frames:
    """Read shards into memory as one."""
    columns: dict[str, list[NDArray[np.generic]]] = {field.name: [] for field in fields(Frames)}
    for path in paths:
        with np.load(path) as shard:
            for name, column in columns.items():
                column.append(shard[name])
    return Frames(**{name: np.concatenate(column) for name, column in columns.items()})

"""Perturbations: what can go wrong in an episode, seeded and repeatable.

| name                  | begins            | what happens                                                                                       |
|-----------------------|-------------------|----------------------------------------------------------------------------------------------------|
| object_moved          | step 6 to 12      | the object jumps 0.06 to 0.10 m over the table, once (out of the hand, if it is held)               |
| camera_covered        | step 4 to 10      | the front picture is black to the end                                                               |
| light_changed         | step 4 to 10      | one of red, green, blue falls to 30 to 45 %, the others to 5 to 12 %: dim and tinted                 |
| wrong_instruction     | reset             | the instruction names a distractor; goal and success rule stay with the right object                |
| delayed_observations  | reset             | pictures are 4 to 6 steps old, and `image_times` say so                                             |
| frozen_observations   | step 4 to 10      | pictures and `image_times` stay as they are at that step                                            |
| weak_gripper          | step 8 to 14      | fingers press with a tenth of their force and have 18 to 30 % of their friction: objects slip       |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

PERTURBATIONS: Final = (
    "object_moved",
    "camera_covered",
    "light_changed",
    "wrong_instruction",
    "delayed_observations",
    "frozen_observations",
    "weak_gripper",
)

WEAK_FORCE: Final = 0.1
"""Share of the gripper's force that weak_gripper leaves."""

_STARTS: Final = {
    "object_moved": (6, 12),
    "camera_covered": (4, 10),
    "light_changed": (4, 10),
    "frozen_observations": (4, 10),
    "weak_gripper": (8, 14),
}
"""First and last control step at which it may begin; the others begin at reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Perturbation:
    """One episode's perturbation with its drawn numbers.

    Attributes:
        name: one of PERTURBATIONS.
        start: the control step from which it acts.
        distance: m, for object_moved.
        angles: rad, directions to try for object_moved.
        light: (r, g, b) factors for light_changed.
        delay: steps, for delayed_observations.
        friction: share of the fingers' friction, for weak_gripper.
        choice: 0 to 1, which distractor wrong_instruction names.
    """

    name: str
    start: int
    distance: float
    angles: tuple[float, ...]
    light: tuple[float, float, float]
    delay: int
    friction: float
    choice: float

    def active(self, step: int) -> bool:
        """True if it acts at the control step."""
        return step >= self.start


def draw(name: str, seed: int) -> Perturbation:
    """Draw the numbers of a perturbation; equal arguments give equal perturbations.

    Raises:
        ValueError: the name is unknown.
    """
    if name not in PERTURBATIONS:
        raise ValueError(f"unknown perturbation {name!r}; perturbations: {', '.join(PERTURBATIONS)}")
    rng = np.random.default_rng([1000 + PERTURBATIONS.index(name), seed])
    first, last = _STARTS.get(name, (0, 0))
    light = rng.uniform(0.05, 0.12, 3)
    light[rng.integers(3)] = rng.uniform(0.3, 0.45)
    return Perturbation(
        name=name,
        start=int(rng.integers(first, last + 1)),
        distance=float(rng.uniform(0.06, 0.10)),
        angles=tuple(float(a) for a in rng.uniform(-np.pi, np.pi, 32)),
        light=(float(light[0]), float(light[1]), float(light[2])),
        delay=int(rng.integers(4, 7)),
        friction=float(rng.uniform(0.18, 0.30)),
        choice=float(rng.uniform()),
    )

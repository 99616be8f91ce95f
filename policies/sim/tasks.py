"""The four tasks of the uncertainty study: scenes, instructions and success rules.

| task      | instruction                                  | success                                                                       |
|-----------|----------------------------------------------|-------------------------------------------------------------------------------|
| pick_up   | pick up the red cube                         | the object is 0.02 m above its rest height or more, for five frames            |
| move_near | move the red cube near the green cylinder    | horizontal gap between the two at most 0.05 m, object released and at rest     |
| put_on    | put the red cube on the plate                | object rests on the plate, centre over it, released                            |
| put_in    | put the red cube in the tray                 | object inside the tray's walls and below their edge, released                  |

A frame is one control step; the last three rules must hold for three frames. The gap of `move_near` is the distance of the centres less half
the width of both (0.02 m each), so it is never overstated for a turned cube.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.sim.scene import HALF, PLATE, PLATE_HEIGHT, PLATE_RADIUS, SMALL, TRAY, TRAY_FLOOR, TRAY_HEIGHT, TRAY_INSIDE

Float = NDArray[np.float64]

TASKS: Final = ("pick_up", "move_near", "put_on", "put_in")
WORKSPACE_LOW: Final[Float] = np.array([0.34, -0.2])
WORKSPACE_HIGH: Final[Float] = np.array([0.66, 0.2])
"""(2,) m: things lie inside this rectangle (x, y)."""

SPACING: Final = 0.15
"""m: least distance between the centres of two things."""

LIFT: Final = 0.02
NEAR: Final = 0.05
AT_REST: Final = 0.03
"""m/s: an object slower than that is at rest."""

FRAMES: Final = {"pick_up": 5, "move_near": 3, "put_on": 3, "put_in": 3}
"""Control steps for which the rule must hold without a break."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What lies where at the start. `places` maps a thing's name to x, y, yaw (m, rad); `target` is None for pick_up."""

    task: str
    object: str
    target: str | None
    places: dict[str, tuple[float, float, float]]
    start_position: tuple[float, float, float]
    start_yaw: float

    @property
    def instruction(self) -> str:
        """The sentence for the policy."""
        return instruction(self.task, self.object, self.target)

    @property
    def distractors(self) -> tuple[str, ...]:
        """Names of the things that the task does not name."""
        return tuple(name for name in self.places if name not in (self.object, self.target))


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Ground truth of one state. Positions (3,) m, rotation (3, 3), speed m/s; `grasped`: both fingers touch the object."""

    object_position: Float
    object_rotation: Float
    object_speed: float
    target_position: Float | None
    touching_target: bool
    touching_fingers: bool
    grasped: bool


def instruction(task: str, name: str, target: str | None) -> str:
    """The sentence that asks for `task` with the named things."""
    match task:
        case "pick_up":
            return f"pick up the {name}"
        case "move_near":
            return f"move the {name} near the {target}"
        case "put_on":
            return f"put the {name} on the {target}"
        case "put_in":
            return f"put the {name} in the {target}"
    raise ValueError(f"unknown task {task!r}; tasks: {', '.join(TASKS)}")


def sample_scene(task: str, seed: int, *, least_distractors: int = 0) -> Scene:
    """Draw a scene; equal arguments give equal scenes.

    Raises:
        ValueError: the task is unknown.
    """
    if task not in TASKS:
        raise ValueError(f"unknown task {task!r}; tasks: {', '.join(TASKS)}")
    rng = np.random.default_rng([TASKS.index(task), seed])
    names = [SMALL[i].name for i in rng.permutation(len(SMALL))]
    chosen, spare = names[0], names[1:]
    target = {"pick_up": None, "move_near": spare[0], "put_on": PLATE.name, "put_in": TRAY.name}[task]
    if task == "move_near":
        spare = spare[1:]
    wanted = max(int(rng.integers(0, 4)), least_distractors)
    things = [chosen, *([target] if target else []), *spare[:wanted]]
    spots = _spread(rng, len(things), margin=[_margin(name) for name in things])
    places = {name: (float(x), float(y), float(rng.uniform(-0.3, 0.3))) for name, (x, y) in zip(things, spots, strict=True)}
    if target == TRAY.name:
        places[target] = (*places[target][:2], 0.0)
    start = rng.uniform((0.40, -0.08, 0.17), (0.52, 0.08, 0.23))
    return Scene(
        task=task,
        object=chosen,
        target=target,
        places=places,
        start_position=(float(start[0]), float(start[1]), float(start[2])),
        start_yaw=float(rng.uniform(-0.3, 0.3)),
    )


def rule_holds(task: str, facts: Facts) -> bool:
    """True if the facts of this frame satisfy the task's rule."""
    position, target = facts.object_position, facts.target_position
    if task == "pick_up":
        return bool(position[2] >= HALF + LIFT)
    if target is None or facts.touching_fingers or facts.object_speed > AT_REST:
        return False
    offset = position[:2] - target[:2]
    distance = float(np.hypot(*offset))
    if task == "move_near":
        return distance - 2 * HALF <= NEAR and position[2] <= 1.5 * HALF
    if task == "put_on":
        return facts.touching_target and distance <= PLATE_RADIUS and position[2] >= PLATE_HEIGHT + 0.8 * HALF
    return bool(np.abs(offset).max() <= TRAY_INSIDE and position[2] <= max(TRAY_HEIGHT, TRAY_FLOOR + 1.5 * HALF))


def _margin(name: str) -> float:
    """Length (m) kept free between a thing's centre and the workspace's edge: plate and tray lie further inside."""
    return 0.03 if name in (PLATE.name, TRAY.name) else 0.0


def _spread(rng: np.random.Generator, count: int, *, margin: list[float]) -> list[Float]:
    """`count` points (2,) in the workspace, SPACING apart: each is drawn up to 60 times, then everything is drawn anew."""
    while True:
        points: list[Float] = []
        for edge in margin:
            for _ in range(60):
                point = rng.uniform(WORKSPACE_LOW + edge, WORKSPACE_HIGH - edge)
                if all(np.hypot(*(point - other)) >= SPACING for other in points):
                    points.append(point)
                    break
            else:
                break
        if len(points) == count:
            return points

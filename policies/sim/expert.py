"""A scripted expert: ground truth in, one action out.

It has no memory: each action follows from the current state alone, so it can start anywhere, and it recovers when its actions were disturbed or
a grasp was missed (noise-injected demonstrations, DAgger). The stages, first match wins:

1. the object is where the task wants it -> open, then rise;
2. the object is held -> lift, carry above the goal, lower (for pick_up: lift);
3. the hand is around the object -> close;
4. else -> open, go above the object, turn to its sides, descend in a funnel.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.sim.control import ACTION_HIGH, ACTION_LOW, rotation_error, yaw_of, yaw_quaternion
from policies.sim.robot import SimRobot
from policies.sim.scene import FINGER_TRAVEL, HALF, PLATE_HEIGHT, PLATE_RADIUS, THINGS, TRAY_INSIDE, TRAY_WALL
from policies.sim.tasks import NEAR, Facts

Float = NDArray[np.float64]

CARRY_HEIGHT: Final = 0.11
"""m: height of the object's centre on the way to the goal."""

HOVER: Final = 0.10
"""m: height of the hand above its grasp on the way to the object."""

PLACE_DISTANCE: Final = 2 * HALF + 0.6 * NEAR
"""m: distance of the centres that move_near aims at."""

_RELEASE: Final = {"move_near": HALF + 0.002, "put_on": PLATE_HEIGHT + HALF + 0.002, "put_in": 0.038}
_FINGER_REACH: Final = FINGER_TRAVEL + 0.004
_FINGER_ROOM: Final = 0.011
_SPEED: Final = 0.024
_TURN: Final = 0.14
_GAIN: Final = 0.6
_OPEN, _CLOSED = 1.0, 0.0


class Expert:
    """Acts for the robot's current attempt."""

    def __init__(self, robot: SimRobot) -> None:
        self._robot = robot

    def act(self) -> Float:
        """The next action (7,), inside the action limits."""
        robot, task = self._robot, self._robot.scene.task
        facts, hand, opening = robot.facts(), robot.arm.position(), robot.gripper_opening()
        if task != "pick_up" and _placed(task, facts):
            height = CARRY_HEIGHT + 0.03 if opening > 0.75 else hand[2]
            return self._towards(np.array([hand[0], hand[1], height]), _OPEN)
        grasp = facts.object_position
        if facts.grasped or (0.4 < opening < 0.6 and np.linalg.norm(hand - grasp) < 0.015):
            return self._carry(task, facts, hand)
        return self._fetch(facts, hand, opening)

    def _carry(self, task: str, facts: Facts, hand: Float) -> Float:
        held = facts.object_position
        if facts.target_position is None:
            return self._towards(np.array([hand[0], hand[1], CARRY_HEIGHT + 0.03]), _CLOSED)
        offset = _place(task, facts)[:2] - held[:2]
        error = float(np.hypot(*offset))
        release = _RELEASE[task]
        height = release + float(np.clip(max(error - 0.008, 8 * (error - 0.015)), 0, CARRY_HEIGHT - release))
        freedom = float(np.clip(1.5 - (height - held[2]) / 0.03, 0, 1))
        return self._towards(hand + np.array([*(offset * freedom), height - held[2]]), _CLOSED)

    def _fetch(self, facts: Facts, hand: Float, opening: float) -> Float:
        grasp, yaw = facts.object_position, self._grasp_yaw(facts)
        turn = rotation_error(yaw_quaternion(yaw), self._robot.arm.quaternion())
        offset = grasp[:2] - hand[:2]
        error = float(np.hypot(*offset)) + 0.03 * float(np.linalg.norm(turn))
        if error < 0.018 and abs(hand[2] - grasp[2]) < 0.01 and opening > 0.42:
            return self._towards(hand, _CLOSED)
        funnel = max(1.2 * (error - 0.006), 8 * (error - 0.0135))
        height = grasp[2] + float(np.clip(funnel, 0 if opening > 0.8 else 0.06, HOVER))
        freedom = float(np.clip(1.5 - (height - hand[2]) / 0.04, 0, 1))
        return self._towards(np.array([*(hand[:2] + offset * freedom), height]), _OPEN, yaw)

    def _grasp_yaw(self, facts: Facts) -> float:
        """Yaw of the hand, rad: fingers on two sides of a cube or across a cylinder, the smallest turn from 0 that leaves room for both fingers."""
        cylinder, rotation = THINGS[self._robot.scene.object].shape == "cylinder", facts.object_rotation
        upright = int(np.argmax(np.abs(rotation[2])))
        if cylinder and upright == 2:
            choices = [0.0, np.pi / 4, -np.pi / 4, np.pi / 2]
        else:
            side = rotation[:, 2 if cylinder else (upright + 1) % 3]
            period = np.pi if cylinder else np.pi / 2
            yaw = float(np.arctan2(side[1], side[0]))
            yaw -= period * round(yaw / period)
            choices = [yaw] if cylinder else [yaw, yaw - np.copysign(period, yaw)]
        return next((yaw for yaw in choices if self._has_room(facts.object_position, yaw)), choices[0])

    def _has_room(self, grasp: Float, yaw: float) -> bool:
        """True if no other thing lies where the open fingers would come down."""
        reach = _FINGER_REACH * np.array([-np.sin(yaw), np.cos(yaw)])
        for name, place in self._robot.positions().items():
            shape = THINGS[name].shape
            for finger in (grasp[:2] + reach, grasp[:2] - reach):
                offset = np.abs(finger - place[:2])
                if shape == "tray" and TRAY_INSIDE - _FINGER_ROOM < offset.max() < TRAY_INSIDE + 2 * TRAY_WALL + _FINGER_ROOM:
                    return False
                if shape in ("cube", "cylinder") and name != self._robot.scene.object and float(np.hypot(*offset)) < HALF + _FINGER_ROOM:
                    return False
        return True

    def _towards(self, position: Float, gripper: float, yaw: float | None = None) -> Float:
        """The action that moves the hand towards a position (3,) and yaw (None: as it is), upright, at most _SPEED m and _TURN rad a step."""
        arm = self._robot.arm
        move = _GAIN * (position - arm.target_position)
        move *= min(1.0, _SPEED / max(float(np.linalg.norm(move)), 1e-9))
        turn = _GAIN * rotation_error(yaw_quaternion(yaw_of(arm.target_quaternion) if yaw is None else yaw), arm.target_quaternion)
        turn *= min(1.0, _TURN / max(float(np.linalg.norm(turn)), 1e-9))
        action = np.concatenate([move, turn, [gripper]])
        clipped: Float = np.clip(action, ACTION_LOW, ACTION_HIGH)
        return clipped


def _place(task: str, facts: Facts) -> Float:
    """(3,) m: where the object shall go; for move_near a spot beside the target, on the side the object comes from."""
    target = facts.target_position
    assert target is not None
    if task != "move_near":
        return target
    away = facts.object_position[:2] - target[:2]
    spot = target.copy()
    spot[:2] += PLACE_DISTANCE * away / max(float(np.hypot(*away)), 1e-6)
    return spot


def _placed(task: str, facts: Facts) -> bool:
    """True if the object is where it may be let go."""
    target, here = facts.target_position, facts.object_position
    assert target is not None
    offset = here[:2] - target[:2]
    distance = float(np.hypot(*offset))
    if task == "move_near":
        return distance < 2 * HALF + 0.9 * NEAR and here[2] < HALF + 0.008
    if task == "put_on":
        return distance < 0.7 * PLATE_RADIUS and here[2] < PLATE_HEIGHT + HALF + 0.008
    return bool(np.abs(offset).max() < TRAY_INSIDE - HALF and here[2] < 0.042)

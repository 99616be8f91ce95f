"""Between ROS messages and our records. Layouts of our own messages come from `monitor.messages`; here are rclpy's types and the robot's topics."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped
from monitor_msgs.msg import Action, Alarm, Episode, PolicyStep, StepReport
from monitor_msgs.msg import Goal as GoalMsg
from numpy.typing import NDArray
from sensor_msgs.msg import Image, JointState

from monitor import messages, steps
from monitor.errors import StepError
from monitor.messages import EpisodeRecord
from monitor.steps import AlarmPhase, Float, Goal

Message = TypeVar("Message")

NANOSECONDS = 1_000_000_000
_TYPE_CODES = {"float64": "d", "float32": "f", "int64": "q", "uint8": "B"}
_CHANNELS: Mapping[str, tuple[int, tuple[int, ...]]] = {
    "rgb8": (3, (0, 1, 2)),
    "bgr8": (3, (2, 1, 0)),
    "8UC3": (3, (0, 1, 2)),
    "rgba8": (4, (0, 1, 2)),
    "bgra8": (4, (2, 1, 0)),
    "mono8": (1, (0, 0, 0)),
    "8UC1": (1, (0, 0, 0)),
}
"""encoding -> bytes a pixel, and which of them are red, green and blue."""


def to_stamp(nanoseconds: int) -> Time:
    """Ns since the clock's zero -> stamp; times before zero become zero, which the message cannot hold otherwise."""
    seconds, rest = divmod(max(nanoseconds, 0), NANOSECONDS)
    return Time(sec=seconds, nanosec=rest)


def to_nanoseconds(stamp: Time) -> int:
    """Stamp -> ns; exact."""
    return int(stamp.sec) * NANOSECONDS + int(stamp.nanosec)


def to_seconds(nanoseconds: int) -> float:
    """Ns -> s; what the monitor computes with."""
    return nanoseconds / NANOSECONDS


def fill(message: Message, fields: Mapping[str, object]) -> Message:
    """Set the fields of a message; numpy arrays are copied as blocks (an assigned numpy array or list is checked number by number)."""
    for name, value in fields.items():
        setattr(message, name, _block(value) if isinstance(value, np.ndarray) else value)
    return message


def _block(values: NDArray[Any]) -> array[Any]:
    block: array[Any] = array(_TYPE_CODES[values.dtype.name])
    block.frombytes(values.tobytes())
    return block


def step_message(step: steps.PolicyStep, stamp: Time) -> PolicyStep:
    """PolicyStep -> message."""
    message = fill(PolicyStep(), messages.step_fields(step))
    message.header.stamp = stamp
    return message


def report_message(report: steps.StepReport, held: bool, stamp: Time) -> StepReport:
    """StepReport -> message; `held` tells that the gate withheld the action."""
    message = fill(StepReport(), messages.report_fields(report, held))
    message.header.stamp = stamp
    return message


def alarm_message(alarm: steps.AlarmState, report: steps.StepReport, stamp: Time) -> Alarm:
    """AlarmState -> message."""
    message = fill(Alarm(), messages.alarm_fields(alarm, report))
    message.header.stamp = stamp
    return message


def recording_stopped_message(reason: str, report: steps.StepReport | None, seconds: float, stamp: Time) -> Alarm:
    """The alarm that nothing is recorded any more, seen at the step of `report`, or at `seconds` when no step had come."""
    time = seconds if report is None else report.time
    fields = {"name": "recording_stopped", "phase": int(AlarmPhase.ACTIVE), "value": math.nan, "threshold": math.nan, "since": time, "text": reason}
    place = {"time": time, "step": -1} if report is None else {"time": time, "episode_id": report.episode_id, "step": report.step}
    message = fill(Alarm(), fields | place)
    message.header.stamp = stamp
    return message


def episode_message(episode: EpisodeRecord, stamp: Time) -> Episode:
    """EpisodeRecord -> message."""
    message = fill(Episode(), messages.episode_fields(episode))
    message.header.stamp = stamp
    return message


def action_message(episode_id: str, step: int, action: Float, held: bool, stamp: Time) -> Action:
    """An action; `stamp` is that of the observation it answers."""
    message = fill(Action(), {"episode_id": episode_id, "step": step, "action": np.ascontiguousarray(action, np.float64), "held": held})
    message.header.stamp = stamp
    return message


def action_array(message: Action) -> Float:
    """(D,) of an action message."""
    return np.array(message.action, dtype=np.float64)


def image_message(picture: NDArray[np.uint8], camera: str, stamp: Time) -> Image:
    """(H, W, 3) RGB -> rgb8."""
    height, width = picture.shape[:2]
    message = Image(height=height, width=width, encoding="rgb8", is_bigendian=0, step=width * 3)
    message.header.stamp, message.header.frame_id = stamp, camera
    message.data = _block(np.ascontiguousarray(picture, np.uint8))
    return message


def image_array(message: Image) -> NDArray[np.uint8]:
    """(H, W, 3) RGB of an uncompressed picture; rows may be padded.

    Raises:
        StepError: the encoding is unknown, or there are fewer bytes than height and step ask for.
    """
    if message.encoding not in _CHANNELS:
        raise StepError(f"picture has encoding {message.encoding!r}; expected one of {', '.join(_CHANNELS)}")
    size, order = _CHANNELS[message.encoding]
    height, width, row = int(message.height), int(message.width), int(message.step)
    if height == 0 or width == 0 or row < width * size or len(message.data) < height * row:
        raise StepError(
            f"picture of {width} x {height} {message.encoding} pixels has {len(message.data)} bytes in rows of {row}; it is empty or cut off"
        )
    pixels = np.frombuffer(message.data, np.uint8, height * row).reshape(height, row)[:, : width * size].reshape(height, width, size)
    return pixels if order == (0, 1, 2) and size == 3 else np.ascontiguousarray(pixels[:, :, order])


def pose_message(position: Float, quaternion: Float, stamp: Time) -> PoseStamped:
    """(3,) m and (4,) w, x, y, z -> pose in the frame `base`."""
    message = PoseStamped()
    message.header.stamp, message.header.frame_id = stamp, "base"
    point, turn = message.pose.position, message.pose.orientation
    point.x, point.y, point.z = (float(v) for v in position)
    turn.w, turn.x, turn.y, turn.z = (float(v) for v in quaternion)
    return message


def pose_arrays(message: PoseStamped) -> tuple[Float, Float]:
    """Pose -> (3,) m, (4,) w, x, y, z."""
    point, turn = message.pose.position, message.pose.orientation
    return np.array([point.x, point.y, point.z]), np.array([turn.w, turn.x, turn.y, turn.z])


def joints_message(joints: Float, gripper: float | None, stamp: Time, gripper_joint: str = "gripper") -> JointState:
    """(N,) rad and the opening, 0 to 1, as one more joint."""
    message = JointState()
    message.header.stamp = stamp
    message.name = [f"joint_{i + 1}" for i in range(len(joints))] + ([] if gripper is None else [gripper_joint])
    message.position = _block(np.append(np.asarray(joints, np.float64), [] if gripper is None else [gripper]))
    return message


def joints_arrays(message: JointState, gripper_joint: str, closed: float, opened: float) -> tuple[Float, float | None]:
    """Joints in the message's order without the gripper's, and the opening: 0 at `closed`, 1 at `opened`, None without such a joint."""
    names, positions = list(message.name), np.array(message.position, dtype=np.float64)
    if gripper_joint not in names or len(names) != len(positions):
        return positions, None
    at = names.index(gripper_joint)
    return np.delete(positions, at), float((positions[at] - closed) / (opened - closed))


def goal_message(goal: Goal, stamp: Time) -> GoalMsg:
    """Goal -> message."""
    message = GoalMsg(task=goal.task, grasped=bool(goal.grasped))
    message.header.stamp = stamp
    message.object_position = _block(np.asarray(goal.object_position, np.float64))
    message.target_position = _block(np.zeros(0) if goal.target_position is None else np.asarray(goal.target_position, np.float64))
    return message


def goal_record(message: GoalMsg) -> Goal:
    """Message -> Goal."""
    target = np.array(message.target_position, dtype=np.float64)
    return Goal(
        task=message.task,
        object_position=np.array(message.object_position, dtype=np.float64),
        target_position=target if target.size else None,
        grasped=message.grasped,
    )


def camera_topic(camera: str) -> str:
    """Relative topic of a camera's pictures; what a ROS name cannot hold becomes an underscore."""
    return f"camera/{topic_word(camera)}/image_raw"


def topic_word(text: str) -> str:
    """A legal part of a topic name, for example `wrist_left` for `wrist-left`."""
    word = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return word if word and not word[0].isdigit() else f"c_{word}".rstrip("_")

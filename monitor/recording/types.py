"""The message types of our bags: rosbags' ROS 2 types, with monitor_msgs added from the .msg files that ship beside this module."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

DEFINITIONS = Path(__file__).parent / "msg"

STEP = "monitor_msgs/msg/PolicyStep"
REPORT = "monitor_msgs/msg/StepReport"
ALARM = "monitor_msgs/msg/Alarm"
EPISODE = "monitor_msgs/msg/Episode"
COMPRESSED_IMAGE = "sensor_msgs/msg/CompressedImage"
IMAGE = "sensor_msgs/msg/Image"

_SEPARATOR = "=" * 80


class Definition(NamedTuple):
    """A type as a bag declares it: name, text with all types it needs (schema encoding ros2msg), and RIHS01 hash."""

    name: str
    text: str
    digest: str


@cache
def typestore() -> Typestore:
    """ROS 2 Kilted's types and monitor_msgs. Built once; treat it as read-only."""
    store = get_typestore(Stores.ROS2_KILTED)
    types = {}
    for path in sorted(DEFINITIONS.glob("*.msg")):
        types.update(get_types_from_msg(path.read_text(encoding="utf-8"), f"monitor_msgs/msg/{path.stem}"))
    store.register(types)
    return store


@cache
def definition(name: str) -> Definition:
    """What a bag has to say about a type. Our own types keep the comments and constants of their .msg files."""
    store = typestore()
    text, _ = store.generate_msgdef(name, ros_version=2)
    package, _, stem = name.split("/")
    if package == "monitor_msgs":
        _, separator, needed = text.partition(_SEPARATOR)
        text = (DEFINITIONS / f"{stem}.msg").read_text(encoding="utf-8") + separator + needed
    return Definition(name, text, store.hash_rihs01(name))

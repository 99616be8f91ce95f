"""BagReader on bags that other programs and other versions have written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from monitor.errors import BagError
from monitor.recording import BagReader, ImageRecord
from monitor.recording.types import DEFINITIONS, STEP
from monitor.steps import PolicyStep


def store_with(definition: str) -> Typestore:
    store = get_typestore(Stores.ROS2_KILTED)
    store.register(get_types_from_msg(definition, STEP))
    return store


def message(store: Typestore, name: str, **fields: Any) -> Any:
    types: Any = store.types
    header = types["std_msgs/msg/Header"](stamp=types["builtin_interfaces/msg/Time"](sec=3, nanosec=500_000_000), frame_id="optical")
    return types[name](header=header, **fields)


def write(folder: Path, store: Typestore, messages: list[tuple[str, str, Any]]) -> Path:
    with Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connections = {}
        for i, (topic, name, content) in enumerate(messages):
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, name, typestore=store)
            data = content if isinstance(content, bytes) else store.serialize_cdr(content, name)
            writer.write(connections[topic], i, data)
    return folder


OLD = "std_msgs/Header header\nfloat64 time\nstring episode_id\nint64 step\nfloat64[] action\n"


def old_step(store: Typestore, number: int) -> Any:
    return message(store, STEP, time=0.5, episode_id="e", step=number, action=np.array([1.0, 2.0]))


def test_older_definition_is_read_by_its_own_words(tmp_path: Path) -> None:
    store = store_with(OLD)
    (step,) = BagReader(write(tmp_path / "bag", store, [("/robot/step", STEP, old_step(store, 7))])).steps()
    assert (step.step, step.action.tolist(), step.chunk, step.gripper) == (7, [1.0, 2.0], None, None)


def test_fields_of_a_newer_definition_are_passed_over(tmp_path: Path) -> None:
    store = store_with(OLD + "string mood\n")
    newer = message(store, STEP, time=0.5, episode_id="e", step=1, action=np.zeros(2), mood="fine")
    (step,) = BagReader(write(tmp_path / "bag", store, [("/robot/step", STEP, newer)])).steps()
    assert isinstance(step, PolicyStep)


def test_unknown_topics_are_passed_over(tmp_path: Path) -> None:
    store = store_with(OLD)
    text = store.types["std_msgs/msg/String"](data="hello")
    folder = write(tmp_path / "bag", store, [("/chatter", "std_msgs/msg/String", text), ("/robot/step", STEP, old_step(store, 1))])
    reader = BagReader(folder)
    assert [found.topic for found in reader.messages()] == ["/robot/step"]
    assert not reader.damage
    assert not reader.notices


def test_message_that_cannot_be_decoded_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    store = store_with(OLD)
    folder = write(tmp_path / "bag", store, [("/robot/step", STEP, b"\0\1\0\0junk"), ("/robot/step", STEP, old_step(store, 2))])
    reader = BagReader(folder)
    assert [step.step for step in reader.steps()] == [2]
    assert "topic /robot/step: 1 messages cannot be decoded" in reader.notices[0]


def test_pictures_of_other_bags_are_named_by_their_topic(tmp_path: Path) -> None:
    store = store_with(OLD)
    name = "sensor_msgs/msg/Image"
    pixels = np.arange(12, dtype=np.uint8)
    image = message(store, name, height=2, width=2, encoding="bgr8", is_bigendian=0, step=6, data=pixels)
    (found,) = BagReader(write(tmp_path / "bag", store, [("/front/image", name, image)])).images()
    assert (found.camera, found.time) == ("/front/image", 3.5)
    assert found.pixels().tolist() == pixels.reshape(2, 2, 3)[:, :, ::-1].tolist()


def test_bag_of_another_program_says_what_it_lacks(tmp_path: Path) -> None:
    store = store_with(OLD)
    reader = BagReader(write(tmp_path / "bag", store, [("/robot/step", STEP, old_step(store, 1))]))
    with pytest.raises(BagError, match="has no config and no policy in its metadata"):
        reader.facts()


@pytest.mark.parametrize(("encoding", "height"), [("rgb8", 5), ("yuv422", 2), ("jpeg", 0)])
def test_picture_that_cannot_be_decoded_is_named(encoding: str, height: int) -> None:
    image = ImageRecord(camera="front", time=1.5, encoding=encoding, data=np.zeros(12, np.uint8), height=height, width=2)
    with pytest.raises(BagError, match=r"camera 'front' at 1\.5 s"):
        image.pixels()


def test_grey_pictures_become_rgb() -> None:
    image = ImageRecord(camera="front", time=0.0, encoding="mono8", data=np.array([1, 2], np.uint8), height=1, width=2)
    assert image.pixels().tolist() == [[[1, 1, 1], [2, 2, 2]]]


def test_reading_does_not_load_the_bag(tmp_path: Path, steps: Callable, write_steps: Callable) -> None:
    reader = BagReader(write_steps(tmp_path / "bag", steps(200), chunk_kib=4))
    first = next(reader.steps())
    assert first.step == 0
    assert reader.messages_read == 1


def test_definitions_are_the_interface_package_itself() -> None:
    assert (DEFINITIONS / "PolicyStep.msg").resolve().parts[-4:] == ("src", "monitor_msgs", "msg", "PolicyStep.msg")

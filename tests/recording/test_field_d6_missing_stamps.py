"""Field case D6 in a bag of another program: pictures without a stamp take the log time, and the reader says so once."""

from pathlib import Path

import numpy as np
import pytest
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from monitor.recording.reader import BagReader

SECOND = 1_000_000_000
TOPIC = "/camera/front/image_raw"


def bag(folder: Path, stamps: list[int]) -> Path:
    """Pictures at 10 Hz, logged from second 100 on; `stamps` in s."""
    store = get_typestore(Stores.ROS2_KILTED)
    types = store.types
    with Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection(TOPIC, "sensor_msgs/msg/Image", typestore=store)
        for i, stamp in enumerate(stamps):
            header = types["std_msgs/msg/Header"](stamp=types["builtin_interfaces/msg/Time"](sec=stamp, nanosec=0), frame_id="optical")
            image = types["sensor_msgs/msg/Image"](
                header=header, height=2, width=2, encoding="rgb8", is_bigendian=0, step=6, data=np.zeros(12, np.uint8)
            )
            data = store.serialize_cdr(image, "sensor_msgs/msg/Image")
            writer.write(connection, 100 * SECOND + i * SECOND // 10, data)
    return folder


def test_pictures_without_a_stamp_take_the_log_time(tmp_path: Path) -> None:
    reader = BagReader(bag(tmp_path / "bag", [0, 0, 0]))
    assert [image.time for image in reader.images()] == pytest.approx([100.0, 100.1, 100.2])


def test_it_is_told_once_with_the_topic_and_the_number(tmp_path: Path) -> None:
    reader = BagReader(bag(tmp_path / "bag", [0, 0, 0]))
    list(reader.images())
    assert [notice for notice in reader.notices if "no stamp" in notice] == [
        f"{tmp_path / 'bag'}: topic {TOPIC}: 3 pictures have no stamp; log time is used"
    ]


def test_a_picture_with_a_stamp_keeps_it(tmp_path: Path) -> None:
    reader = BagReader(bag(tmp_path / "bag", [99, 0]))
    assert [image.time for image in reader.images()] == pytest.approx([99.0, 100.1])

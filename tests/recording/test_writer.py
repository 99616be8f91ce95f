"""BagWriter: the files it makes, and what others read in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from mcap.reader import make_reader
from mcap.records import Chunk
from mcap.stream_reader import StreamReader
from rosbags.highlevel import AnyReader

from monitor.errors import BagError
from monitor.recording import BagReader, BagWriter
from monitor.recording.recorder import STEP_TOPIC
from monitor.recording.types import STEP


def chunks(path: Path) -> list[Chunk]:
    with path.open("rb") as file:
        return [record for record in StreamReader(file, emit_chunks=True).records if isinstance(record, Chunk)]


def test_rosbags_reads_every_step(tmp_path: Path, steps: Callable, write_steps: Callable) -> None:
    sent = steps(50)
    write_steps(tmp_path / "bag", sent)
    with AnyReader([tmp_path / "bag"]) as reader:
        got = [reader.deserialize(data, connection.msgtype) for connection, _, data in reader.messages()]
        assert reader.message_count == 50
    assert [message.action.tobytes() for message in got] == [step.action.tobytes() for step in sent]


def test_mcap_reader_validates_all_checksums(tmp_path: Path, steps: Callable, write_steps: Callable) -> None:
    with write_steps(tmp_path / "bag", steps(50)).open("rb") as file:
        assert sum(1 for _ in make_reader(file, validate_crcs=True).iter_messages()) == 50


def test_file_follows_ros2_conventions(tmp_path: Path, steps: Callable, write_steps: Callable) -> None:
    with write_steps(tmp_path / "bag", steps(3)).open("rb") as file:
        reader = make_reader(file)
        assert reader.get_header().profile == "ros2"
        summary = reader.get_summary()
    assert summary is not None
    (channel,) = summary.channels.values()
    (schema,) = summary.schemas.values()
    assert (channel.topic, channel.message_encoding, schema.name, schema.encoding) == ("/vla_monitor/policy_step", "cdr", STEP, "ros2msg")
    assert yaml.safe_load(channel.metadata["offered_qos_profiles"])[0]["reliability"] == "reliable"
    assert channel.metadata["topic_type_hash"].startswith("RIHS01_")
    text = schema.data.decode()
    assert "MSG: std_msgs/Header" in text
    assert "# s, control clock" in text


def test_log_and_publish_times_are_kept_apart(tmp_path: Path, steps: Callable, write_steps: Callable) -> None:
    path = write_steps(tmp_path / "bag", steps(2))
    assert [(m.log_time, m.publish_time) for m in BagReader(path).messages()] == [(0, 7), (1_000_000, 1_000_007)]


def test_metadata_yaml_is_version_9_with_counts_and_facts(tmp_path: Path, steps: Callable, write_steps: Callable) -> None:
    write_steps(tmp_path / "bag", steps(4))
    information = yaml.safe_load((tmp_path / "bag" / "metadata.yaml").read_text())["rosbag2_bagfile_information"]
    assert (information["version"], information["storage_identifier"], information["message_count"]) == (9, "mcap", 4)
    assert information["relative_file_paths"] == ["bag_0.mcap"]
    assert information["duration"] == {"nanoseconds": 3_000_000}
    assert json.loads(information["custom_data"]["vla_monitor.policy"])["name"] == "p"
    assert "numpy" in json.loads(information["custom_data"]["vla_monitor.versions"])
    assert not (tmp_path / "bag" / "metadata.yaml.tmp").exists()


def test_chunks_are_closed_by_size(tmp_path: Path, steps: Callable, write_steps: Callable) -> None:
    found = chunks(write_steps(tmp_path / "bag", steps(100), chunk_kib=4, flush_s=1e6))
    assert len(found) > 5
    assert max(chunk.uncompressed_size for chunk in found[1:]) < 8192
    assert all(chunk.compression == "zstd" and chunk.uncompressed_crc for chunk in found)


def test_chunks_are_closed_by_time(tmp_path: Path, steps: Callable, write_steps: Callable) -> None:
    assert len(chunks(write_steps(tmp_path / "bag", steps(5), flush_s=1e-9))) == 5


def test_existing_folder_is_not_overwritten(tmp_path: Path, make_facts: Callable) -> None:
    (tmp_path / "bag").mkdir()
    with pytest.raises(BagError, match=r"bag: exists already and is not overwritten"):
        BagWriter(tmp_path / "bag", make_facts()).open()


def test_folder_that_appears_after_the_constructor_is_not_overwritten(tmp_path: Path, make_facts: Callable) -> None:
    writer = BagWriter(tmp_path / "bag", make_facts())
    (tmp_path / "bag").mkdir()
    with pytest.raises(BagError, match="exists already"):
        writer.open()


def test_folder_that_cannot_be_made_is_named(tmp_path: Path, make_facts: Callable) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BagError, match="cannot be made"):
        BagWriter(tmp_path / "file" / "deeper" / "bag", make_facts()).open()


def test_writing_before_open_or_after_close_is_refused(tmp_path: Path, make_facts: Callable) -> None:
    writer = BagWriter(tmp_path / "bag", make_facts())
    with pytest.raises(BagError, match="is not open"):
        writer.add_topic(STEP_TOPIC, STEP)
    writer.open()
    writer.close()
    writer.close()
    with pytest.raises(BagError, match="is not open"):
        writer.flush()


def test_aborted_bag_has_no_metadata_and_keeps_whole_chunks(tmp_path: Path, steps: Callable, write_steps: Callable) -> None:
    def failing() -> object:
        yield from steps(10)
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_steps(tmp_path / "bag", failing(), flush_s=1e-9)
    assert not (tmp_path / "bag" / "metadata.yaml").exists()
    reader = BagReader(tmp_path / "bag")
    assert len(list(reader.steps())) == 10
    assert reader.cut


def test_config_of_the_bag_equals_the_one_recorded(tmp_path: Path, make_facts: Callable, steps: Callable, write_steps: Callable) -> None:
    facts = BagReader(write_steps(tmp_path / "bag", steps(1))).facts()
    assert facts == make_facts()
    assert "frozen" not in facts.config.alarms

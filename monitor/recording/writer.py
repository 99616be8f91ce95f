"""BagWriter: a rosbag2 folder (MCAP, version 9) that loses next to nothing when its process is killed.

    FOLDER/FOLDER_0.mcap   definitions and facts first, then zstd chunks with CRC, message index and summary
    FOLDER/metadata.yaml   written aside and renamed at close, so an unfinished bag never looks whole

Chunks are closed by size and by time. Definitions (schemas, channels) stand in front of the chunks as well as inside the first, so that a damaged
chunk costs its own messages only.

Memory: the index needs 0.5 KB (one topic) to 0.8 KB (six) per chunk until `close`: 80 to 130 MiB a day at two chunks a second. Only chunks that
hold a message are written, by time at most one every `flush_s`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import yaml
from mcap.data_stream import RecordBuilder
from mcap.records import Channel, Schema
from mcap.writer import CompressionType, Writer

from monitor.errors import BagError
from monitor.recording.facts import END_NAME, RECORD_NAME, BagFacts, package_version
from monitor.recording.types import Definition, definition

_FOREVER = {"sec": 9223372036, "nsec": 854775807}
_QOS = [
    {
        "history": "keep_last",
        "depth": 10,
        "reliability": "reliable",
        "durability": "volatile",
        "deadline": _FOREVER,
        "lifespan": _FOREVER,
        "liveliness": "automatic",
        "liveliness_lease_duration": _FOREVER,
        "avoid_ros_namespace_conventions": False,
    }
]


class _PlainDumper(yaml.SafeDumper):
    """YAML without anchors: rosbag2 tools read plain text best."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _yaml(data: object) -> str:
    return yaml.dump(data, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True)


class _Output:
    """An unbuffered new file: what fails to be written is not tried again later, and the rest of a torn record can be cut off."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=0)
        self._position = 0

    def write(self, data: bytes | memoryview) -> int:
        left = memoryview(data)
        while left:
            done = self._file.write(left)
            left = left[done:]
            self._position += done
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Nothing is buffered."""

    def cut(self, size: int) -> None:
        """Drop what stands behind `size` bytes."""
        self._file.truncate(size)

    def close(self) -> None:
        self._file.close()


class BagWriter:
    """Writes one bag. Used from one thread.

    Args:
        folder: the bag's folder; must not exist.
        facts: configuration, policy and calibration, written at the beginning and again into metadata.yaml.

    Call `open`, then `write`, then `close`; or use it as a context manager, which aborts on an exception. OSError of the disk is passed on by
    `write`, `flush` and `close`; after one, call `abort`: the file then ends with the last whole chunk, with `messages_safe` messages.
    """

    def __init__(self, folder: Path, facts: BagFacts) -> None:
        self.folder = folder
        self.path = folder / f"{folder.name}_0.mcap"
        self.bytes_written = 0
        self.messages_safe = 0
        self._facts = facts.as_strings()
        self._chunk_size = facts.config.recording.chunk_kib * 1024
        self._flush_ns = int(facts.config.recording.flush_s * 1e9)
        self._output: _Output | None = None
        self._writer: Any = None
        self._schemas: dict[str, int] = {}
        self._channels: dict[str, int] = {}
        self._topics: dict[str, tuple[Definition, int]] = {}
        self._first: int | None = None
        self._last = 0
        self._safe = 0
        self._due = 0

    def open(self) -> None:
        """Create the folder and the file.

        Raises:
            BagError: the folder exists or cannot be made.
        """
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir()
            self._output = _Output(self.path)
        except FileExistsError as error:
            raise BagError(f"{self.folder}: exists already and is not overwritten; choose another name or move it away") from error
        except OSError as error:
            raise BagError(f"{self.folder}: cannot be made ({error.strerror}); choose a folder that can be written") from error
        make: Any = Writer  # mcap is typed in part only
        self._writer = make(self._output, chunk_size=self._chunk_size, compression=CompressionType.ZSTD)
        self._writer.start(profile="ros2", library=f"vla-monitor {package_version('vla-monitor')}")
        self._writer.add_metadata(RECORD_NAME, self._facts)
        self._mark()

    def add_topic(self, topic: str, type_name: str) -> None:
        """Declare a topic; one that is declared already is left as it is."""
        if topic in self._channels:
            return
        output = self._opened()
        self.flush()
        kind = definition(type_name)
        builder: Any = RecordBuilder()
        if type_name not in self._schemas:
            data = kind.text.encode()
            self._schemas[type_name] = self._writer.register_schema(type_name, "ros2msg", data)
            Schema(id=self._schemas[type_name], name=type_name, encoding="ros2msg", data=data).write(builder)
        about = {"offered_qos_profiles": _yaml(_QOS), "topic_type_hash": kind.digest}
        schema = self._schemas[type_name]
        self._channels[topic] = self._writer.register_channel(topic, "cdr", schema, about)
        Channel(id=self._channels[topic], topic=topic, message_encoding="cdr", metadata=about, schema_id=schema).write(builder)
        output.write(builder.end())
        self._topics[topic] = (kind, 0)
        self._mark()

    def write(self, topic: str, data: bytes | memoryview, *, log_time: int, publish_time: int, sequence: int) -> None:
        """Write one CDR message of a declared topic. Times in ns since 1970; `sequence` counts the topic's messages, lost ones included."""
        output = self._opened()
        before = output.tell()
        self._writer.add_message(self._channels[topic], log_time, bytes(data), publish_time, sequence & 0xFFFFFFFF)
        kind, count = self._topics[topic]
        self._topics[topic] = (kind, count + 1)
        self._first = log_time if self._first is None else min(self._first, log_time)
        self._last = max(self._last, log_time)
        if output.tell() != before:
            self._mark()
        else:
            self.flush_if_due()

    def flush_if_due(self) -> None:
        """Close the open chunk if the last one was closed `flush_s` ago."""
        if time.monotonic_ns() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Close the open chunk and hand it to the operating system: a kill of this process no longer loses it."""
        self._opened()
        self._writer.flush()
        self._mark()

    def close(self, end: Mapping[str, str] | None = None) -> None:
        """Write index, summary and metadata.yaml; a closed bag stays closed. `end` is what there is to say about how the recording ended."""
        if self._output is None:
            return
        self._writer.flush()
        self._mark()
        if end:
            self._writer.add_metadata(END_NAME, dict(end))
        information = self._information()
        self._writer.add_metadata("rosbag2", {"serialized_metadata": _yaml(information).strip()})
        self._writer.finish()
        self._mark()
        output, self._output = self._output, None
        output.close()
        aside = self.folder / "metadata.yaml.tmp"
        aside.write_text(_yaml({"rosbag2_bagfile_information": information}), encoding="utf-8")
        aside.replace(self.folder / "metadata.yaml")

    def abort(self) -> None:
        """Give up: keep every chunk that was written whole, without index and metadata.yaml. Never raises."""
        output, self._output = self._output, None
        if output is not None:
            with suppress(OSError):
                output.cut(self._safe)
            with suppress(OSError):
                output.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> Literal[False]:
        if error is not None:
            self.abort()
            return False
        try:
            self.close()
        except BaseException:
            self.abort()
            raise
        return False

    def _opened(self) -> _Output:
        if self._output is None:
            raise BagError(f"{self.folder}: is not open; call open() first, and nothing after close() or abort()")
        return self._output

    def _mark(self) -> None:
        """Note that everything up to here is whole."""
        self.messages_safe = sum(count for _, count in self._topics.values())
        self._safe = self.bytes_written = self._opened().tell()
        self._due = time.monotonic_ns() + self._flush_ns

    def _information(self) -> dict[str, Any]:
        start = self._first or 0
        span = {"starting_time": {"nanoseconds_since_epoch": start}, "duration": {"nanoseconds": max(0, self._last - start)}}
        count = sum(count for _, count in self._topics.values())
        return {
            "version": 9,
            "storage_identifier": "mcap",
            "duration": span["duration"],
            "starting_time": span["starting_time"],
            "message_count": count,
            "topics_with_message_count": [
                {
                    "topic_metadata": {
                        "name": topic,
                        "type": kind.name,
                        "serialization_format": "cdr",
                        "offered_qos_profiles": _QOS,
                        "type_description_hash": kind.digest,
                    },
                    "message_count": topic_count,
                }
                for topic, (kind, topic_count) in self._topics.items()
            ],
            "compression_format": "",
            "compression_mode": "",
            "relative_file_paths": [self.path.name],
            "files": [{"path": self.path.name, **span, "message_count": count}],
            "custom_data": {f"{RECORD_NAME}.{key}": value for key, value in self._facts.items()},
            "ros_distro": os.environ.get("ROS_DISTRO", "unknown"),
        }

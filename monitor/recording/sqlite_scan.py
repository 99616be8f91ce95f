"""Reads the messages of one rosbag2 SQLite file (.db3), through rosbags."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from rosbags.interfaces import MessageDefinitionFormat
from rosbags.rosbag2 import Reader, ReaderError

from monitor.errors import BagError
from monitor.recording.mcap_scan import Damage, RawMessage

_ENCODINGS = {MessageDefinitionFormat.MSG: "ros2msg", MessageDefinitionFormat.IDL: "ros2idl"}


class SqliteFile:
    """One .db3 file. It knows one time per message and no sequence numbers, and its facts stand in metadata.yaml only.

    Raises:
        BagError: the file is no rosbag2 database.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: list[Damage] = []
        self.metadata: dict[str, dict[str, str]] = {}
        try:
            with Reader(path):
                pass
        except (ReaderError, OSError, sqlite3.Error) as error:
            raise BagError(f"{path}: is no rosbag2 database ({error}); give a recording, a folder or a single .mcap or .db3 file") from error

    def messages(self, wanted: Callable[[str], bool]) -> Iterator[RawMessage]:
        """Yield the messages whose type is wanted, in order of time."""
        self.damage.clear()
        count, last = 0, None
        with Reader(self.path) as reader:
            connections = [connection for connection in reader.connections if wanted(connection.msgtype)]
            try:
                for connection, time, data in reader.messages(connections) if connections else ():
                    count, last = count + 1, time
                    encoding = _ENCODINGS.get(connection.msgdef.format, "")
                    yield RawMessage(connection.topic, connection.msgtype, connection.msgdef.data, encoding, time, time, 0, data)
            except (ReaderError, sqlite3.Error) as error:
                text = f"{self.path}: damaged: {error}; {count} messages read"
                self.damage.append(Damage(kind="damaged", file=self.path, text=text, messages=count, last_time=last))

"""Reads the messages of one MCAP file in file order, whatever happened to it: cut, damaged, without index.

The file is walked record by record; the index is used only to find the next whole chunk after a damaged place. Nothing is believed without a
length check, and a chunk whose checksum is wrong is skipped and reported, never half used.
"""

from __future__ import annotations

import io
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import zstandard
from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.records import Channel, Chunk, ChunkIndex, Footer, Header, Message, Metadata, Schema
from mcap.stream_reader import breakup_chunk
from mcap.writer import MCAP0_MAGIC

from monitor.errors import BagError

_HEAD = struct.Struct("<BQ")
_FOOTER_SIZE = _HEAD.size + 20 + len(MCAP0_MAGIC)
_BROKEN = (McapError, ValueError, struct.error, zstandard.ZstdError, EOFError, MemoryError, OverflowError, RuntimeError)


class RawMessage(NamedTuple):
    """A message before its type is looked at. Times in ns since 1970; `definition` is the type's text as the bag has it."""

    topic: str
    type_name: str
    definition: str
    encoding: str
    log_time: int
    publish_time: int
    sequence: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Something that a bag has lost.

    Attributes:
        kind: `cut` (the end is not there), `damaged` (a part is not what was written), `missing` (a file is not there).
        text: one sentence for people.
        messages: messages of the file that were read before this place.
        last_time: log time in ns of the last of them.
        gap: log times in ns between which messages are lost, where known. lost: how many, where known.
    """

    kind: Literal["cut", "damaged", "missing"]
    file: Path
    text: str
    messages: int = 0
    last_time: int | None = None
    gap: tuple[int, int] | None = None
    lost: int | None = None


class _Index:
    """Where the chunks are, from a summary whose checksum was right."""

    def __init__(self, chunks: list[ChunkIndex], data_end: int) -> None:
        self.chunks = sorted(chunks, key=lambda chunk: chunk.chunk_start_offset)
        self._starts = [chunk.chunk_start_offset for chunk in self.chunks]
        self._data_end = data_end

    def at(self, position: int) -> tuple[ChunkIndex | None, int]:
        """The chunk that starts at `position`, if one does, and the place that a record starting there may not cross."""
        i = bisect_left(self._starts, position)
        found = self.chunks[i] if i < len(self.chunks) and self._starts[i] == position else None
        i += found is not None
        return found, self._starts[i] if i < len(self._starts) else self._data_end

    def after(self, position: int) -> int | None:
        """Start of the next chunk behind `position`."""
        i = bisect_right(self._starts, position)
        return self._starts[i] if i < len(self._starts) else None


class McapFile:
    """One MCAP file.

    Raises:
        BagError: the file cannot be opened, or does not even hold an MCAP header.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: list[Damage] = []
        self.metadata: dict[str, dict[str, str]] = {}
        self._schemas: dict[int, Schema] = {}
        self._channels: dict[int, Channel] = {}
        self._messages = 0
        self._last_time: int | None = None
        try:
            self._size = path.stat().st_size
            with path.open("rb") as file:
                self._start = self._check_header(file)
                self._index = self._read_index(file)
                self._read_front(file)
        except OSError as error:
            raise BagError(f"{path}: cannot be read ({error.strerror}); give a recording, a folder or a single .mcap file") from error

    def messages(self, wanted: Callable[[str], bool]) -> Iterator[RawMessage]:
        """Yield the messages whose type is wanted, in the order of the file. Losses are appended to `damage` (emptied at the start)."""
        self.damage.clear()
        self._messages, self._last_time = 0, None
        pending: dict[str, Any] | None = None
        orphans = 0
        with self.path.open("rb") as file:
            position = self._start
            while True:
                head = self._head(file, position)
                if head is None:
                    self._report(pending)
                    pending = None
                    position = self._resume(position)
                    if position == 0:
                        break
                    continue
                opcode, length = head
                if pending is not None:
                    if opcode == Opcode.MESSAGE_INDEX:
                        pending["lost"] = (pending["lost"] or 0) + _index_length(file, position)
                    else:
                        self._report(pending)
                        pending = None
                if opcode == Opcode.DATA_END:
                    self._check_end(file)
                    break
                if opcode == Opcode.METADATA:
                    self._note_metadata(file.read(length))
                records: list[Any] = []
                if opcode in (Opcode.CHUNK, Opcode.SCHEMA, Opcode.CHANNEL, Opcode.MESSAGE):
                    body = file.read(length)
                    try:
                        records = _parse(opcode, body)
                    except _BROKEN as error:
                        pending = self._broken(opcode, body, position, error)
                for record in records:
                    if isinstance(record, Message):
                        raw = self._accept(record, wanted)
                        orphans += raw is False
                        if isinstance(raw, RawMessage):
                            yield raw
                    else:
                        self._learn(record)
                position += _HEAD.size + length
        if orphans:
            self._add("damaged", f"{orphans} messages cannot be read: what defines their topics was lost", lost=orphans)

    def _check_header(self, file: BinaryIO) -> int:
        start = file.read(len(MCAP0_MAGIC) + _HEAD.size)
        if not start:
            raise BagError(f"{self.path}: is empty (0 bytes), expected an MCAP recording; nothing can be recovered, delete it")
        if not MCAP0_MAGIC.startswith(start[: len(MCAP0_MAGIC)]):
            raise BagError(f"{self.path}: starts with {start[:8].hex(' ')}, expected an MCAP recording (89 4d 43 41 50 ...); give another file")
        if len(start) == len(MCAP0_MAGIC) + _HEAD.size:
            opcode, length = _HEAD.unpack(start[len(MCAP0_MAGIC) :])
            if opcode == Opcode.HEADER and length <= self._size - len(start):
                Header.read(ReadDataStream(io.BytesIO(file.read(length))))
                return len(start) + int(length)
        raise BagError(f"{self.path}: {self._size} bytes, too few for an MCAP header; nothing can be recovered, delete it")

    def _read_index(self, file: BinaryIO) -> _Index | None:
        """Chunk positions, schemas and channels from the summary, if there is one and its checksum is right."""
        if self._size < self._start + _FOOTER_SIZE:
            return None
        file.seek(-_FOOTER_SIZE, io.SEEK_END)
        tail = file.read(_FOOTER_SIZE)
        opcode, length = _HEAD.unpack(tail[: _HEAD.size])
        if not tail.endswith(MCAP0_MAGIC) or opcode != Opcode.FOOTER or length != 20:
            return None
        footer = Footer.read(ReadDataStream(io.BytesIO(tail[_HEAD.size :])))
        if not self._start <= footer.summary_start < self._size - _FOOTER_SIZE:
            return None
        file.seek(footer.summary_start)
        summary = file.read(self._size - _FOOTER_SIZE - footer.summary_start)
        if footer.summary_crc and zlib.crc32(tail[: _HEAD.size + 16], zlib.crc32(summary)) != footer.summary_crc:
            return None
        chunks = []
        try:
            for opcode, body in _records(summary):
                if opcode == Opcode.CHUNK_INDEX:
                    chunks.append(ChunkIndex.read(ReadDataStream(io.BytesIO(body))))
                elif opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
                    for record in _parse(opcode, body):
                        self._learn(record)
        except _BROKEN:
            return None
        return _Index(chunks, footer.summary_start)

    def _read_front(self, file: BinaryIO) -> None:
        """Metadata records that stand before the first chunk."""
        position = self._start
        while (head := self._head(file, position)) is not None and head[0] != Opcode.CHUNK:
            opcode, length = head
            if opcode == Opcode.METADATA:
                self._note_metadata(file.read(length))
            if opcode == Opcode.DATA_END:
                return
            position += _HEAD.size + length

    def _note_metadata(self, body: bytes) -> None:
        with suppress(*_BROKEN):
            record = Metadata.read(ReadDataStream(io.BytesIO(body)))
            self.metadata[record.name] = dict(record.metadata)

    def _head(self, file: BinaryIO, position: int) -> tuple[int, int] | None:
        """Opcode and length of the record at `position`; None if it is not whole, or no record can stand there."""
        file.seek(position)
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return None
        opcode, length = _HEAD.unpack(head)
        end = self._size
        if self._index is not None:  # its checksum was right, so it is believed where the record says otherwise
            chunk, end = self._index.at(position)
            if chunk is not None:
                return int(Opcode.CHUNK), chunk.chunk_length - _HEAD.size
        return None if opcode == 0 or position + _HEAD.size + length > end else (opcode, length)

    def _resume(self, position: int) -> int:
        """Where to go on after a place at which no record can be read; 0 to stop. Reports what is lost."""
        if self._index is None:
            self._add("cut", f"ends inside a record at byte {position} of {self._size}")
            return 0
        self._add("damaged", f"no record can be read at byte {position}; reading goes on at the next whole chunk")
        return self._index.after(position) or 0

    def _broken(self, opcode: int, body: bytes, position: int, error: Exception) -> dict[str, Any]:
        gap = None
        if opcode == Opcode.CHUNK and len(body) >= 16:
            gap = struct.unpack_from("<QQ", body)
        chunk = self._index.at(position)[0] if self._index is not None else None
        if chunk is not None:
            gap = (chunk.message_start_time, chunk.message_end_time)
        what = Opcode(opcode).name.lower()
        return {"kind": "damaged", "text": f"{what} at byte {position} is not what was written ({error}) and is left out", "gap": gap, "lost": None}

    def _check_end(self, file: BinaryIO) -> None:
        """See whether the file ends as it should; all messages have been read."""
        if self._index is not None:
            return
        file.seek(-min(self._size, len(MCAP0_MAGIC)), io.SEEK_END)
        if file.read() == MCAP0_MAGIC:
            file.seek(-min(self._size, _FOOTER_SIZE), io.SEEK_END)
            if file.read(_HEAD.size + 8) == _HEAD.pack(Opcode.FOOTER, 20) + bytes(8):
                return  # a legal file without summary
            self._add("damaged", "the index at the end is not what was written; all messages are there", lost=0)
        else:
            self._add("cut", "the end of the index is not there; all messages are", lost=0)

    def _accept(self, message: Message, wanted: Callable[[str], bool]) -> RawMessage | Literal[False] | None:
        """The message if it is wanted, None if not, False if its topic is not defined."""
        channel = self._channels.get(message.channel_id)
        schema = self._schemas.get(channel.schema_id) if channel is not None else None
        if channel is None or schema is None:
            return None if channel is not None and channel.schema_id == 0 else False
        self._messages += 1
        self._last_time = message.log_time
        if not wanted(schema.name):
            return None
        text = schema.data.decode(errors="replace")
        return RawMessage(channel.topic, schema.name, text, schema.encoding, message.log_time, message.publish_time, message.sequence, message.data)

    def _learn(self, record: Schema | Channel) -> None:
        if isinstance(record, Schema):
            self._schemas[record.id] = record
        else:
            self._channels[record.id] = record

    def _report(self, pending: dict[str, Any] | None) -> None:
        if pending is not None:
            self._add(**pending)

    def _add(self, kind: Literal["cut", "damaged"], text: str, gap: tuple[int, int] | None = None, lost: int | None = None) -> None:
        parts = [f"{self.path}: {kind}: {text}"]
        if gap is not None:
            parts.append(f"{'messages' if lost is None else f'{lost} messages'} from {_seconds(gap[0])} to {_seconds(gap[1])} are lost")
        last = "" if self._last_time is None else f", the last at {_seconds(self._last_time)}"
        parts.append(f"{self._messages} messages read{last}")
        self.damage.append(
            Damage(kind=kind, file=self.path, text="; ".join(parts), messages=self._messages, last_time=self._last_time, gap=gap, lost=lost)
        )


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds // 10**9}.{nanoseconds % 10**9:09d} s"


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(data):
        opcode, length = _HEAD.unpack_from(data, position)
        position += _HEAD.size
        yield opcode, data[position : position + length]
        position += length


def _parse(opcode: int, body: bytes) -> list[Any]:
    stream = ReadDataStream(io.BytesIO(body))
    if opcode == Opcode.CHUNK:
        chunk = Chunk.read(stream)
        if stream.count != len(body):
            raise ValueError(f"holds {stream.count} bytes but claims {len(body)}")
        records = breakup_chunk(chunk, validate_crc=True)
        return [record for record in records if isinstance(record, Message | Schema | Channel)]
    if opcode == Opcode.SCHEMA:
        return [Schema.read(stream)]
    if opcode == Opcode.CHANNEL:
        return [Channel.read(stream)]
    return [Message.read(stream, len(body))]


def _index_length(file: BinaryIO, position: int) -> int:
    """Number of messages that the message-index record at `position` lists."""
    file.seek(position + _HEAD.size + 2)
    (size,) = struct.unpack("<I", file.read(4))
    return int(size) // 16

"""D8 (foxglove/mcap 1474, 697, 1390; ros2/rosbag2 2003, 2133): a cut or damaged file gives back everything that is whole, and says what is not."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from mcap.opcode import Opcode

from monitor.errors import BagError
from monitor.recording import BagReader

COUNT = 2000
Layout = list[tuple[int, int, int]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One bag for all tests of this file."""
    return {"folder": tmp_path_factory.mktemp("d8") / "bag"}


@pytest.fixture
def path(whole: dict[str, Path], tmp_path: Path, steps: Callable, write_steps: Callable) -> Path:
    """A copy of a file with 2,000 steps in chunks of 64 KiB."""
    if "file" not in whole:
        whole["file"] = write_steps(whole["folder"], steps(COUNT), chunk_kib=64, flush_s=1e6)
    return Path(shutil.copy(whole["file"], tmp_path / "run.mcap"))


def layout(path: Path) -> Layout:
    """Opcode, position and whole length of every record."""
    data, position, records = path.read_bytes(), 8, []
    while position < len(data) - 8:
        opcode, length = struct.unpack_from("<BQ", data, position)
        records.append((opcode, position, 9 + length))
        position += 9 + length
    return records


def only(records: Layout, opcode: Opcode) -> list[tuple[int, int]]:
    return [(position, length) for code, position, length in records if code == opcode]


def cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def numbers(reader: BagReader) -> list[int]:
    return [step.step for step in reader.steps()]


def messages_by_chunk(path: Path) -> list[int]:
    """Number of messages in each chunk, from the message index behind it."""
    counts: list[int] = []
    data = path.read_bytes()
    for opcode, position, _ in layout(path):
        if opcode == Opcode.CHUNK:
            counts.append(0)
        elif opcode == Opcode.MESSAGE_INDEX:
            counts[-1] += struct.unpack_from("<I", data, position + 11)[0] // 16
    return counts


def test_whole_file_has_no_damage(path: Path) -> None:
    reader = BagReader(path)
    assert numbers(reader) == list(range(COUNT))
    assert reader.damage == []
    assert len(messages_by_chunk(path)) > 5


def test_a_cut_in_a_chunk_index_record_loses_nothing(path: Path) -> None:
    position, length = only(layout(path), Opcode.CHUNK_INDEX)[1]
    cut(path, position + length // 2)
    reader = BagReader(path)
    assert numbers(reader) == list(range(COUNT))
    (damage,) = reader.damage
    assert (damage.kind, damage.messages, damage.last_time, damage.lost) == ("cut", COUNT, (COUNT - 1) * 1_000_000, 0)
    assert "2000 messages read, the last at 1.999000000 s" in damage.text


def test_b_cut_in_the_last_chunk_gives_all_whole_chunks(path: Path) -> None:
    position, length = only(layout(path), Opcode.CHUNK)[-1]
    left = COUNT - messages_by_chunk(path)[-1]
    cut(path, position + length // 2)
    reader = BagReader(path)
    assert numbers(reader) == list(range(left))
    (damage,) = reader.damage
    assert (damage.kind, damage.messages, damage.last_time) == ("cut", left, (left - 1) * 1_000_000)
    assert reader.cut


def test_c_last_eight_bytes_cut_lose_nothing(path: Path) -> None:
    cut(path, path.stat().st_size - 8)
    reader = BagReader(path)
    assert numbers(reader) == list(range(COUNT))
    assert [damage.kind for damage in reader.damage] == ["cut"]


@pytest.mark.parametrize(("size", "found"), [(12, "12 bytes, too few for an MCAP header"), (0, "is empty")])
def test_d_e_next_to_nothing_left_is_an_error_of_one_line(path: Path, size: int, found: str) -> None:
    cut(path, size)
    with pytest.raises(BagError, match=found) as caught:
        BagReader(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert "delete it" in str(caught.value)


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("chunk", [0, 1])
def test_f_flipped_byte_costs_its_chunk_and_the_gap_is_told(path: Path, chunk: int, indexed: bool) -> None:
    position, length = only(layout(path), Opcode.CHUNK)[chunk]
    counts = messages_by_chunk(path)
    first = sum(counts[:chunk])
    if not indexed:
        cut(path, only(layout(path), Opcode.CHUNK)[-1][0])
        counts = counts[:-1]
    flip(path, position + length // 2)
    reader = BagReader(path)
    assert numbers(reader) == [*range(first), *range(first + counts[chunk], sum(counts))]
    damage = reader.damage[0]
    assert (damage.kind, damage.lost, damage.messages) == ("damaged", counts[chunk], first)
    assert damage.gap == (first * 1_000_000, (first + counts[chunk] - 1) * 1_000_000)
    assert [other.kind for other in reader.damage[1:]] == ([] if indexed else ["cut"])


def test_flipped_length_or_opcode_of_a_chunk_is_mended_by_the_index(path: Path) -> None:
    (one, _), (two, _) = only(layout(path), Opcode.CHUNK)[1:3]
    flip(path, one + 2)
    flip(path, two)
    reader = BagReader(path)
    assert numbers(reader) == list(range(COUNT))


def test_flipped_length_between_chunks_costs_no_message(path: Path) -> None:
    position, _ = only(layout(path), Opcode.MESSAGE_INDEX)[1]
    flip(path, position + 5)
    reader = BagReader(path)
    assert numbers(reader) == list(range(COUNT))
    assert [damage.kind for damage in reader.damage] == ["damaged"]


def test_flipped_byte_in_the_index_costs_no_message_and_is_told(path: Path) -> None:
    position, _ = only(layout(path), Opcode.CHUNK_INDEX)[0]
    flip(path, position + 12)
    reader = BagReader(path)
    assert numbers(reader) == list(range(COUNT))
    assert "the index at the end is not what was written" in reader.damage[0].text


def test_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.mcap").write_bytes(b"PK\x03\x04 something else altogether")
    with pytest.raises(BagError, match="starts with 50 4b 03 04"):
        BagReader(tmp_path / "x.mcap")


def test_every_cut_and_every_flip_is_survived(tmp_path: Path, steps: Callable, write_steps: Callable) -> None:
    source = write_steps(tmp_path / "bag", steps(40), chunk_kib=4)
    data, target = source.read_bytes(), tmp_path / "broken.mcap"
    for position in range(0, len(data), 23):
        target.write_bytes(data[:position])
        try:
            reader = BagReader(target)
            got = numbers(reader)
        except BagError:
            continue
        assert got == list(range(len(got)))
        assert reader.damage
    for position in range(0, len(data), 23):
        target.write_bytes(data)
        flip(target, position)
        try:
            reader = BagReader(target)
            got = numbers(reader)
        except BagError:
            assert position < 200
            continue
        assert set(got) <= set(range(40))
        assert len(got) == 40 or reader.damage

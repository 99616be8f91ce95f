"""D9 (pointcloudset 76, rosbag2 395, 2021): a bag without metadata.yaml, or with a wrong one, is read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from rosbags.rosbag2 import Reader, StoragePlugin, Writer

from monitor.errors import BagError
from monitor.recording import BagReader
from monitor.recording.types import STEP, typestore

REBUILT = "metadata rebuilt in memory"


@pytest.fixture
def parts(tmp_path: Path, steps: Callable, write_steps: Callable) -> list[Path]:
    """Two .mcap files with steps 0..4 and 5..9."""
    made = steps(10)
    return [write_steps(tmp_path / "source0", made[:5]), write_steps(tmp_path / "source1", made[5:])]


def numbers(reader: BagReader) -> list[int]:
    return [step.step for step in reader.steps()]


def test_a_lone_file_is_read(parts: list[Path], tmp_path: Path) -> None:
    shutil.copy(parts[0], tmp_path / "run.mcap")
    reader = BagReader(tmp_path / "run.mcap")
    assert numbers(reader) == list(range(5))
    assert len(reader.notices) == 1
    assert REBUILT in reader.notices[0]


def test_b_folder_with_two_files_and_no_yaml_is_read(parts: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "bag"
    folder.mkdir()
    for i, part in enumerate(parts):
        shutil.copy(part, folder / f"bag_{i}.mcap")
    reader = BagReader(folder)
    assert numbers(reader) == list(range(10))
    assert [REBUILT in notice for notice in reader.notices] == [True]
    assert sorted(file.name for file in folder.iterdir()) == ["bag_0.mcap", "bag_1.mcap"]


def test_c_folder_with_a_file_without_number_is_read(parts: list[Path], tmp_path: Path) -> None:
    (tmp_path / "bag").mkdir()
    shutil.copy(parts[0], tmp_path / "bag" / "bag.mcap")
    assert numbers(BagReader(tmp_path / "bag")) == list(range(5))


def test_d_lone_db3_is_read(tmp_path: Path, parts: list[Path], steps: Callable) -> None:
    db3 = convert(parts[0], tmp_path / "db")
    shutil.copy(db3, tmp_path / "run.db3")
    for path in (tmp_path / "run.db3", tmp_path / "db"):
        reader = BagReader(path)
        assert numbers(reader) == list(range(5))
        assert next(reader.steps()).action.tobytes() == next(BagReader(parts[0]).steps()).action.tobytes()


def convert(source: Path, folder: Path) -> Path:
    """The same steps as a SQLite bag, written by rosbags."""
    store = typestore()
    with Writer(folder, version=9, storage_plugin=StoragePlugin.SQLITE3) as writer:
        connection = writer.add_connection("/vla_monitor/policy_step", STEP, typestore=store)
        with Reader(source) as reader:
            for _, time, data in reader.messages():
                writer.write(connection, time, data)
    return folder / f"{folder.name}.db3"


def test_e_file_that_is_listed_but_absent_is_named(parts: list[Path]) -> None:
    folder = parts[0].parent
    metadata = yaml.safe_load((folder / "metadata.yaml").read_text())
    metadata["rosbag2_bagfile_information"]["relative_file_paths"].append("source0_1.mcap")
    (folder / "metadata.yaml").write_text(yaml.safe_dump(metadata))
    reader = BagReader(folder)
    assert numbers(reader) == list(range(5))
    (damage,) = reader.damage
    assert (damage.kind, damage.file.name) == ("missing", "source0_1.mcap")


@pytest.mark.parametrize("text", ["", "{", "rosbag2_bagfile_information: 3", "\x00"])
def test_f_useless_yaml_is_passed_over(parts: list[Path], text: str) -> None:
    (parts[0].parent / "metadata.yaml").write_text(text)
    reader = BagReader(parts[0].parent)
    assert numbers(reader) == list(range(5))
    assert [REBUILT in notice for notice in reader.notices] == [True]
    assert reader.facts().spec.name == "p"


def test_g_splits_are_read_in_number_order(parts: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "bag"
    folder.mkdir()
    shutil.copy(parts[0], folder / "bag_9.mcap")
    shutil.copy(parts[1], folder / "bag_10.mcap")
    reader = BagReader(folder)
    assert [file.name for file in reader.files] == ["bag_9.mcap", "bag_10.mcap"]
    assert numbers(reader) == list(range(10))


def test_one_hopeless_split_does_not_hide_the_others(parts: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "bag"
    folder.mkdir()
    shutil.copy(parts[0], folder / "bag_0.mcap")
    (folder / "bag_1.mcap").write_bytes(b"")
    reader = BagReader(folder)
    assert numbers(reader) == list(range(5))
    assert [(damage.kind, damage.file.name) for damage in reader.damage] == [("damaged", "bag_1.mcap")]


def test_yaml_cannot_name_files_outside_the_folder(parts: list[Path]) -> None:
    folder = parts[0].parent
    metadata = yaml.safe_load((folder / "metadata.yaml").read_text())
    metadata["rosbag2_bagfile_information"]["relative_file_paths"] = ["../source1/source1_0.mcap"]
    (folder / "metadata.yaml").write_text(yaml.safe_dump(metadata))
    reader = BagReader(folder)
    assert [file.parent for file in reader.files] == [folder]
    assert [damage.kind for damage in reader.damage] == ["missing"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), r"holds no \.mcap or \.db3 file"),
        (lambda path: path.write_text("x"), "cannot be read; give a folder"),
    ],
)
def test_path_without_a_recording_is_an_error(tmp_path: Path, make: Callable, message: str) -> None:
    make(tmp_path / "thing")
    with pytest.raises(BagError, match=message):
        BagReader(tmp_path / "thing")

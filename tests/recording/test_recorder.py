"""Recorder: never in the way, never silent about a loss."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from monitor.engine import Monitor
from monitor.errors import BagError
from monitor.messages import EpisodeEvent, EpisodeRecord
from monitor.recording import BagReader, BagWriter, Recorder, new_bag_folder

CHILD = """
import sys, time
from pathlib import Path
import numpy as np
from monitor.config import parse_config
from monitor.policy import PolicySpec
from monitor.recording import BagFacts, Recorder
from monitor.steps import PolicyStep
config = parse_config({"recording": {"min_free_mib": 0}}, "child")
recorder = Recorder(Path(sys.argv[1]), BagFacts(config=config, spec=PolicySpec(name="p")))
recorder.open()
start, logits = time.monotonic(), np.ones((7, 256), np.float32)
for i in range(10**6):
    time.sleep(max(0.0, start + i / 50 - time.monotonic()))
    recorder.record_step(PolicyStep(time=i / 50, episode_id="e", step=i, action=np.zeros(7), token_logits=logits))
    print(i, flush=True)
"""


class BlockedWriter(BagWriter):
    """A disk that takes nothing until `gate` is set."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.gate, self.blocked = threading.Event(), threading.Event()

    def write(self, *args: object, **times: object) -> None:
        self.blocked.set()
        assert self.gate.wait(60)
        super().write(*args, **times)  # type: ignore[arg-type]


class FailingWriter(BagWriter):
    """A disk that refuses the sixth message."""

    error: Exception = OSError(errno.EIO, "Input/output error")

    def write(self, *args: object, **times: object) -> None:
        super().write(*args, **times)  # type: ignore[arg-type]
        if times["sequence"] == 5:
            raise self.error


def run_to_end(recorder: Recorder) -> None:
    recorder._thread.join(60)
    assert not recorder._thread.is_alive()


def test_everything_recorded_comes_back_in_order(tmp_path: Path, steps: Callable, record: Callable) -> None:
    sent = steps(30)
    status = record(tmp_path / "bag", [sent]).status()
    reader = BagReader(tmp_path / "bag")
    assert [step.action.tobytes() for step in reader.steps()] == [step.action.tobytes() for step in sent]
    assert [report.step for report in reader.reports()] == list(range(30))
    assert [episode.event.name for episode in reader.episodes()] == ["STARTED", "ENDED"]
    assert "shaky_action" in {alarm.state.name for alarm in reader.alarms()}
    assert not reader.damage
    assert (status.dropped, status.failed, status.waiting) == (0, 0, 0)
    assert status.written == len(list(reader.messages()))
    assert status.bytes_written == reader.files[0].stat().st_size


def test_killed_recording_loses_less_than_a_second(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path / "bag")], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) == 130:
                break
        child.send_signal(signal.SIGKILL)
        offered = max([130, *(int(line) for line in child.stdout if line.endswith("\n"))]) + 1
    reader = BagReader(tmp_path / "bag")
    got = [step.step for step in reader.steps()]
    assert got == list(range(len(got)))
    assert offered - len(got) < 50
    assert reader.cut
    assert reader.facts().spec.name == "p"


def test_blocked_disk_drops_and_counts_without_blocking_the_caller(tmp_path: Path, make_facts: Callable, steps: Callable) -> None:
    facts = make_facts(queue=10)
    writer = BlockedWriter(tmp_path / "bag", facts)
    recorder = Recorder(tmp_path / "bag", facts, writer=writer)
    recorder.open()
    first, *rest = steps(40)
    assert recorder.record_step(first)
    assert writer.blocked.wait(60)
    kept = [recorder.record_step(step) for step in rest]
    assert kept == [True] * 10 + [False] * 29
    assert (recorder.status().dropped, recorder.status().waiting) == (29, 11)
    writer.gate.set()
    status = recorder.close(60.0)
    assert (status.state, status.written, status.dropped) == ("closed", 11, 29)
    assert [message.sequence for message in BagReader(tmp_path / "bag").messages()] == list(range(11))


def test_dropped_messages_leave_a_hole_in_the_numbers(tmp_path: Path, steps: Callable, record: Callable) -> None:
    record(tmp_path / "bag", [steps(6)], drop_steps=(2, 3))
    numbers = [message.sequence for message in BagReader(tmp_path / "bag").messages() if message.topic == "/vla_monitor/policy_step"]
    assert numbers == [0, 1, 4, 5]


def test_waiting_memory_is_bounded(tmp_path: Path, make_facts: Callable, steps: Callable) -> None:
    facts = make_facts(queue_mib=1)
    writer = BlockedWriter(tmp_path / "bag", facts)
    recorder = Recorder(tmp_path / "bag", facts, writer=writer)
    recorder.open()
    assert recorder.record_step(steps(1)[0])
    assert writer.blocked.wait(60)
    picture = np.zeros((300, 300, 3), np.uint8)
    assert [recorder.record_image("front", 0.0, picture) for _ in range(3)] == [True, False, False]
    assert recorder.record_step(steps(1)[0])
    writer.gate.set()
    recorder.close(60.0)


def test_close_gives_up_on_a_disk_that_hangs(tmp_path: Path, make_facts: Callable, steps: Callable) -> None:
    facts = make_facts()
    writer = BlockedWriter(tmp_path / "bag", facts)
    recorder = Recorder(tmp_path / "bag", facts, writer=writer)
    recorder.open()
    for step in steps(3):
        recorder.record_step(step)
    assert writer.blocked.wait(60)
    status = recorder.close(0.01)
    assert (status.state, status.written, status.dropped) == ("stopped", 0, 3)
    assert "did not take the last messages" in status.reason
    writer.gate.set()
    run_to_end(recorder)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), RuntimeError("a fault")])
def test_write_error_stops_recording_and_keeps_what_was_written(tmp_path: Path, make_facts: Callable, steps: Callable, error: Exception) -> None:
    facts = make_facts(flush_s=1e-9)
    writer = FailingWriter(tmp_path / "bag", facts)
    writer.error = error
    recorder = Recorder(tmp_path / "bag", facts, writer=writer)
    recorder.open()
    for step in steps(6):
        recorder.record_step(step)
    run_to_end(recorder)
    status = recorder.close()
    assert (status.state, status.written + status.dropped) == ("stopped", 6)
    assert str(error.args[-1]) in status.reason
    assert not recorder.record_step(steps(1)[0])
    assert [step.step for step in BagReader(tmp_path / "bag").steps()] == list(range(6))


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A tmpfs; skips where that is not allowed."""
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={size}".encode()) != 0:
        pytest.skip(f"needs the right to mount a tmpfs ({os.strerror(ctypes.get_errno())})")
    try:
        yield
    finally:
        libc.umount2(os.fsencode(folder), 2)


class LimitedWriter(BagWriter):
    """A disk of 256 KiB, simulated where none can be mounted."""

    def open(self) -> None:
        super().open()
        output = self._opened()
        write = output.write

        def limited(data: bytes) -> int:
            room = 262144 - output.tell()
            if len(data) > room:
                write(data[:room])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(data)

        output.write = limited  # type: ignore[method-assign]


def fill(recorder: Recorder, make_steps: Callable) -> int:
    """Record until the disk is full; returns the number offered."""
    recorder.open()
    random, offered = np.random.default_rng(0), 0
    while recorder.status().state == "recording":
        picture = random.integers(0, 255, (64, 64, 3), dtype=np.uint8)
        recorder.record_image("front", 0.0, picture)
        recorder.record_step(make_steps(1)[0])
        offered += 2
    return offered


def check_full(recorder: Recorder, offered: int) -> None:
    status = recorder.close(60.0)
    assert status.state == "stopped"
    assert "No space left on device" in status.reason
    assert status.written + status.dropped == offered
    reader = BagReader(recorder.folder)
    assert len(list(reader.messages())) == status.written > 0
    assert reader.cut


def test_full_disk_stops_recording_and_what_was_written_is_readable(tmp_path: Path, make_facts: Callable, steps: Callable) -> None:
    with small_disk(tmp_path / "disk", "512k"):
        recorder = Recorder(tmp_path / "disk" / "bag", make_facts(images="raw", chunk_kib=64))
        check_full(recorder, fill(recorder, steps))


def test_torn_last_write_of_a_full_disk_is_cut_off(tmp_path: Path, make_facts: Callable, steps: Callable) -> None:
    facts = make_facts(images="raw", chunk_kib=64)
    recorder = Recorder(tmp_path / "bag", facts, writer=LimitedWriter(tmp_path / "bag", facts))
    check_full(recorder, fill(recorder, steps))


def test_too_little_free_space_at_the_start_creates_nothing(tmp_path: Path, make_facts: Callable, steps: Callable) -> None:
    recorder = Recorder(tmp_path / "bag", make_facts(min_free_mib=10**9))
    recorder.open()
    assert not recorder.record_step(steps(1)[0])
    status = recorder.close()
    assert status.state == "stopped"
    assert "less than recording.min_free_mib (1000000000)" in status.reason
    assert not (tmp_path / "bag").exists()


def test_too_little_free_space_later_closes_the_bag_in_good_order(
    tmp_path: Path, make_facts: Callable, steps: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = make_facts(min_free_mib=1)
    writer = BlockedWriter(tmp_path / "bag", facts)
    recorder = Recorder(tmp_path / "bag", facts, writer=writer)
    recorder.open()
    recorder.record_step(steps(1)[0])
    assert writer.blocked.wait(60)
    monkeypatch.setattr("monitor.recording.recorder.shutil.disk_usage", lambda path: type("Usage", (), {"free": 0}))
    recorder._next_space_check = 0.0
    writer.gate.set()
    run_to_end(recorder)
    status = recorder.close()
    assert (status.state, status.written, status.dropped) == ("stopped", 1, 0)
    reader = BagReader(tmp_path / "bag")
    assert len(list(reader.steps())) == 1
    assert not reader.damage
    assert not reader.notices
    assert "less than recording.min_free_mib (1)" in reader.ended_because


def test_record_that_cannot_be_serialised_is_counted_and_the_rest_goes_on(tmp_path: Path, make_facts: Callable) -> None:
    recorder = Recorder(tmp_path / "bag", make_facts())
    recorder.open()
    recorder.record_episode(EpisodeRecord(event=EpisodeEvent.STARTED, time=0.0, episode_id="\ud800"))
    recorder.record_image("front", 0.0, np.zeros((4, 4), np.uint8))
    recorder.record_image("front", float("nan"), np.zeros((4, 4, 3), np.uint8))
    recorder.record_episode(EpisodeRecord(event=EpisodeEvent.STARTED, time=0.0, episode_id="good"))
    status = recorder.close(60.0)
    assert (status.state, status.written, status.failed) == ("closed", 1, 3)


def test_jpeg_pictures_come_back_close_to_what_was_given(tmp_path: Path, make_facts: Callable) -> None:
    recorder = Recorder(tmp_path / "bag", make_facts(images="jpeg"))
    recorder.open()
    picture = np.full((32, 48, 3), (200, 100, 50), np.uint8)
    assert recorder.record_image("wrist-cam", 12.25, picture)
    recorder.close(60.0)
    (message,) = BagReader(tmp_path / "bag").messages()
    assert message.topic == "/vla_monitor/camera/wrist_cam/compressed"
    image = message.record
    assert (image.camera, image.time, image.encoding) == ("wrist-cam", 12.25, "jpeg")  # type: ignore[union-attr]
    assert np.abs(image.pixels().astype(int) - picture).max() < 8  # type: ignore[union-attr]


def test_raw_pictures_come_back_exactly(tmp_path: Path, make_facts: Callable) -> None:
    recorder = Recorder(tmp_path / "bag", make_facts(images="raw"))
    recorder.open()
    picture = np.random.default_rng(0).integers(0, 255, (8, 6, 3), dtype=np.uint8)
    recorder.record_image("front", 1.0, picture)
    recorder.close(60.0)
    (image,) = BagReader(tmp_path / "bag").images()
    assert image.pixels().tolist() == picture.tolist()


def test_pictures_are_left_out_when_the_config_says_so(tmp_path: Path, make_facts: Callable) -> None:
    recorder = Recorder(tmp_path / "bag", make_facts(images="none"))
    recorder.open()
    assert not recorder.record_image("front", 1.0, np.zeros((8, 6, 3), np.uint8))
    status = recorder.close(60.0)
    assert (status.written, status.dropped) == (0, 0)


def test_held_step_is_marked_in_its_report(tmp_path: Path, make_facts: Callable, steps: Callable) -> None:
    facts = make_facts()
    recorder = Recorder(tmp_path / "bag", facts)
    recorder.open()
    recorder.record_report(Monitor(facts.spec, facts.config).update(steps(1)[0]), held=True)
    recorder.close(60.0)
    assert next(BagReader(tmp_path / "bag").reports()).held


def test_recorder_is_opened_once(tmp_path: Path, make_facts: Callable) -> None:
    recorder = Recorder(tmp_path / "bag", make_facts())
    recorder.open()
    with pytest.raises(BagError, match="recorder is recording"):
        recorder.open()
    recorder.close(60.0)


def test_new_bag_name_avoids_those_that_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.recording.recorder.time.strftime", lambda form: "vla_now")
    (tmp_path / "vla_now").mkdir()
    (tmp_path / "vla_now_2").mkdir()
    assert new_bag_folder(tmp_path) == tmp_path / "vla_now_3"

"""The recorder as a sink: whatever happens to the bag, the loop goes on and the operator is told once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from monitor.config import MonitorConfig, RecordingConfig
from monitor.engine import Monitor
from monitor.errors import BagError
from monitor.policy import Observation, PolicySpec
from monitor.recording import BagReader
from monitor.recording.recorder import Recorder
from monitor.ros import sinks
from monitor.ros.sinks import RecorderSink
from monitor.steps import PolicyStep, StepReport

SPEC = PolicySpec(name="p")


class Told:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.stopped: list[str] = []

    def sink(self, folder: Path, **recording: object) -> RecorderSink:
        config = MonitorConfig(recording=RecordingConfig(folder=folder, min_free_mib=0, **recording))
        return RecorderSink(config, SPEC, self.lines.append, lambda reason, report: self.stopped.append(reason))


@pytest.fixture
def told() -> Told:
    return Told()


def feed(sink: RecorderSink, number: int, time: float = 0.0, instruction: str = "go") -> None:
    step = PolicyStep(time=time, episode_id="e", step=number, instruction=instruction, action=np.zeros(7))
    report: StepReport = Monitor(SPEC).update(step)
    sink.step(Observation(time=time, episode_id="e", step=number, instruction=instruction), step, report, False, 0.0)


def test_a_sink_that_was_never_opened_can_be_fed_and_closed(tmp_path: Path, told: Told) -> None:
    sink = told.sink(tmp_path / "bags")
    feed(sink, 0)
    sink.close()
    assert (sink.trouble, told.lines, told.stopped) == ("", [], [])
    assert not (tmp_path / "bags").exists()


def test_no_bag_is_wanted(tmp_path: Path, told: Told) -> None:
    sink = told.sink(tmp_path / "bags", enabled=False)
    sink.start()
    feed(sink, 0)
    sink.close()
    assert (sink.status_text, told.lines, told.stopped) == ("off", [], [])


def test_the_name_is_chosen_at_the_start_and_again_if_another_node_was_faster(tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = sinks.new_bag_folder
    calls = []

    def slow(parent: Path) -> Path:
        folder = chosen(parent)
        calls.append(folder)
        if len(calls) == 1:
            folder.mkdir(parents=True)  # the other node
        return folder

    monkeypatch.setattr(sinks, "new_bag_folder", slow)
    sink = told.sink(tmp_path / "bags")
    assert not calls
    sink.start()
    assert (sink.trouble, told.lines) == ("", [])
    sink.close()
    assert len(calls) == 2
    assert (calls[1] / "metadata.yaml").is_file()


@pytest.mark.parametrize("error", [OSError("no such device"), ValueError("surprise"), BagError("no"), PermissionError(13, "denied")])
def test_nothing_that_goes_wrong_at_the_start_stops_the_node(tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def broken(self: Recorder) -> None:
        raise error

    monkeypatch.setattr(Recorder, "open", broken)
    sink = told.sink(tmp_path)
    sink.start()
    feed(sink, 0)
    sink.close()
    assert str(error) in sink.trouble
    assert len(told.lines) == 1
    assert told.lines[0].startswith("recording is off: ")
    assert told.stopped == [sink.trouble]


@pytest.mark.parametrize("time", [float("nan"), float("inf"), -1.0, 1e300])
def test_a_time_that_no_stamp_holds_does_not_lose_the_step(tmp_path: Path, told: Told, time: float) -> None:
    sink = told.sink(tmp_path / "bags")
    sink.start()
    for number in range(3):
        feed(sink, number, time)
    sink.close()
    (folder,) = (tmp_path / "bags").iterdir()
    assert [step.step for step in BagReader(folder).steps()] == [0, 1, 2]
    assert len(list(BagReader(folder).reports())) == 3
    assert (sink.trouble, sink.dropped, told.lines) == ("", 0, [])


def test_what_cannot_be_written_is_counted_and_told_once(tmp_path: Path, told: Told) -> None:
    sink = told.sink(tmp_path / "bags")
    sink.start()
    for number in range(4):
        feed(sink, number, instruction="\ud800")  # no Unicode
    sink.close()
    assert sink.dropped == 4
    assert "4 messages dropped" in sink.trouble
    assert len(told.lines) == 1
    assert told.lines[0].startswith("bag: ")
    assert told.stopped == [], "recording goes on"


def test_a_full_queue_is_told_as_loss_and_not_as_end(tmp_path: Path, told: Told) -> None:
    sink = told.sink(tmp_path / "bags", queue=1)
    sink.start()
    for number in range(50):
        feed(sink, number)
    sink.close()
    assert sink.dropped > 0
    assert len(told.lines) == 1
    assert "messages dropped" in told.lines[0]
    assert "off" not in told.lines[0]
    assert told.stopped == []


def test_a_disk_that_refuses_is_told_once_with_an_alarm(tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = told.sink(tmp_path / "bags")
    sink.start()
    monkeypatch.setattr(Recorder, "_short_of_space", lambda self: "no room")
    for number in range(100):
        feed(sink, number)
        if told.stopped:
            break
        assert sink._recorder is not None
        sink._recorder._next_space_check = 0.0
        sink._recorder._thread.join(0.1)
    feed(sink, 100)
    sink.close()
    assert told.lines == ["recording is off: no room"]
    assert told.stopped == ["no room"]
    assert sink.trouble == "no room"

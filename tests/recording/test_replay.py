"""Replay: the same numbers, bit for bit; what was lost is named, and never called a difference."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag2 import Reader, StoragePlugin, Writer

from monitor.cli.app import main
from monitor.cli.bag_report import bag_report
from monitor.config import MonitorConfig
from monitor.engine import Monitor
from monitor.errors import BagError
from monitor.messages import Outcome
from monitor.policy import PolicySpec
from monitor.recording import BagFacts, BagReader, Recorder
from monitor.recording.replay import compare, replay
from monitor.recording.types import REPORT, STEP, typestore
from monitor.steps import AlarmPhase, AlarmState


def rewritten(source: Path, folder: Path, order: Callable[[list[Any]], list[Any]], change: Callable[[Any], None] = lambda message: None) -> Path:
    """Steps and reports of a bag as another recorder would have kept them: no facts, no numbers, in another order."""
    with Reader(source) as reader:
        found = [(c.topic, c.msgtype, data) for c, _, data in reader.messages() if c.msgtype in (STEP, REPORT)]
    with Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connections: dict[str, Any] = {}
        for i, (topic, name, data) in enumerate(order(found)):
            message = typestore().deserialize_cdr(data, name)
            change(message)
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, name, typestore=typestore())
            writer.write(connections[topic], i, typestore().serialize_cdr(message, name))
    return folder


def test_replay_gives_the_same_numbers(tmp_path: Path, steps: Callable, record: Callable) -> None:
    record(tmp_path / "bag", [steps(30, "e1"), steps(25, "e2")])
    result = compare(tmp_path / "bag")
    assert result.identical
    assert (result.steps, result.reports, result.compared, result.missing_steps, result.missing_reports) == (55, 55, 55, 0, 0)
    assert result.alarms_compared > 0
    assert [(e.episode_id, e.steps, e.ended, e.outcome, e.cut) for e in result.episodes] == [
        ("e1", 30, True, Outcome.SUCCESS, False),
        ("e2", 25, True, Outcome.SUCCESS, False),
    ]


def test_numbers_are_really_computed(tmp_path: Path, steps: Callable, record: Callable) -> None:
    record(tmp_path / "bag", [steps(20)])
    last = list(replay(tmp_path / "bag"))[-1]
    assert last.recorded is not None
    assert last.recomputed is not None
    assert np.isfinite(last.recorded.values).any()
    assert last.recorded.values.tobytes() == last.recomputed.values.tobytes()


def test_duplicates_and_late_steps_replay_as_they_were(tmp_path: Path, steps: Callable, record: Callable) -> None:
    made = steps(20)
    record(tmp_path / "bag", [[*made[:10], made[9], made[3], made[3], *made[10:]]])
    result = compare(tmp_path / "bag")
    assert result.identical
    assert result.compared == 23


def test_dropped_step_is_named_and_not_a_difference(tmp_path: Path, steps: Callable, record: Callable) -> None:
    record(tmp_path / "bag", [steps(30, "e1"), steps(25, "e2")], drop_steps=(12, 13))
    result = compare(tmp_path / "bag")
    assert result.identical
    assert (result.missing_steps, result.compared, result.not_compared) == (2, 12 + 25, 18)
    assert [(e.steps, e.missing_steps) for e in result.episodes] == [(28, 2), (25, 0)]


def test_dropped_last_step_of_the_bag_is_counted(tmp_path: Path, steps: Callable, record: Callable) -> None:
    record(tmp_path / "bag", [steps(10)], drop_steps=(9,))
    result = compare(tmp_path / "bag")
    assert (result.missing_steps, result.compared, result.not_compared, result.identical) == (1, 9, 1, True)


def test_dropped_first_steps_make_the_episode_not_comparable(tmp_path: Path, steps: Callable, record: Callable) -> None:
    record(tmp_path / "bag", [steps(10, "e1"), steps(10, "e2")], drop_steps=(10,), drop_reports=(10,))
    result = compare(tmp_path / "bag")
    assert (result.missing_steps, result.compared, result.not_compared, result.different) == (1, 10, 9, 0)


def test_dropped_report_is_counted_and_the_rest_compared(tmp_path: Path, steps: Callable, record: Callable) -> None:
    record(tmp_path / "bag", [steps(10)], drop_reports=(4,))
    result = compare(tmp_path / "bag")
    assert (result.missing_reports, result.compared, result.identical) == (1, 9, True)


def test_cut_bag_replays_to_its_last_step_and_the_episode_is_marked(tmp_path: Path, steps: Callable, record: Callable) -> None:
    record(tmp_path / "bag", [steps(20, "e1"), steps(60, "e2")], chunk_kib=4)
    path = Path(shutil.copy(tmp_path / "bag" / "bag_0.mcap", tmp_path / "cut.mcap"))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 6 // 10)
    result = compare(path)
    assert result.cut
    assert result.identical
    assert [(e.episode_id, e.ended, e.cut, e.outcome) for e in result.episodes] == [
        ("e1", True, False, Outcome.SUCCESS),
        ("e2", False, True, Outcome.UNKNOWN),
    ]


def test_first_difference_is_told_with_both_values(tmp_path: Path, steps: Callable, record: Callable) -> None:
    record(tmp_path / "bag", [steps(20)])

    def change(message: Any) -> None:
        if hasattr(message, "metric") and message.step == 11:
            i = int(np.flatnonzero(np.isfinite(message.value))[0])
            message.value = message.value.copy()
            message.value[i] = np.nextafter(message.value[i], np.inf)

    folder = rewritten(tmp_path / "bag", tmp_path / "other", lambda found: found, change)
    config, spec = recorded_facts(tmp_path / "bag")
    result = compare(folder, config=config, spec=spec)
    assert (result.different, result.compared) == (1, 20)
    assert result.first is not None
    assert (result.first.topic, result.first.step) == ("/vla_monitor/report", 11)
    assert result.first.recorded != result.first.recomputed
    assert "step 11" in str(result.first)


def recorded_facts(path: Path) -> tuple[MonitorConfig, PolicySpec]:
    facts = BagReader(path).facts()
    return facts.config, facts.spec


def test_foreign_bag_with_reports_before_steps_is_compared(tmp_path: Path, steps: Callable, record: Callable) -> None:
    record(tmp_path / "bag", [steps(30)])

    def swapped(found: list[Any]) -> list[Any]:
        return [message for i in range(0, len(found), 2) for message in (found[i + 1], found[i])]

    config, spec = recorded_facts(tmp_path / "bag")
    result = compare(rewritten(tmp_path / "bag", tmp_path / "other", swapped), config=config, spec=spec)
    assert (result.compared, result.identical, result.missing_steps) == (30, True, 0)


def test_other_config_is_replayed_but_not_compared(tmp_path: Path, steps: Callable, record: Callable) -> None:
    record(tmp_path / "bag", [steps(20)])
    result = compare(tmp_path / "bag", config=MonitorConfig(window=16))
    assert (result.steps, result.compared, result.not_compared, result.identical) == (20, 0, 20, False)


def test_bag_of_another_program_needs_config_and_policy(tmp_path: Path, steps: Callable, record: Callable) -> None:
    record(tmp_path / "bag", [steps(3)])
    folder = rewritten(tmp_path / "bag", tmp_path / "other", lambda found: found)
    with pytest.raises(BagError, match="give both to replay it"):
        compare(folder)


def test_replay_is_good_when_all_of_it_was_compared(tmp_path: Path, steps: Callable, record: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "bag", [steps(30, "e1"), steps(25, "e2")])
    assert main(["replay", str(tmp_path / "bag")]) == 0
    assert "replay: 55 reports and " in capsys.readouterr().out


def test_replay_with_next_to_nothing_compared_is_not_good(
    tmp_path: Path, steps: Callable, record: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "bag", [steps(100)], drop_steps=(2,))
    assert main(["replay", str(tmp_path / "bag")]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "only 2 of 100 reports were compared" in told
    assert "98 reports" in told
    assert "1 steps were not recorded" in told


@pytest.mark.parametrize(
    ("lost", "count"),
    [
        ({"drop_steps": (4,)}, "missing_steps"),
        ({"drop_reports": (4,)}, "missing_reports"),
        ({"drop_alarms": range(30)}, "missing_alarms"),
    ],
)
def test_replay_of_a_bag_that_lost_something_is_not_good(tmp_path: Path, steps: Callable, record: Callable, lost: dict[str, Any], count: str) -> None:
    record(tmp_path / "bag", [steps(30)], **lost)
    result = compare(tmp_path / "bag")
    assert (result.identical, result.complete, result.good, getattr(result, count) > 0) == (True, False, False, True)


def test_whole_bag_without_a_step_says_so(tmp_path: Path, make_facts: Callable[..., BagFacts], capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(tmp_path / "bag", make_facts())
    recorder.open()
    recorder.close(60.0)
    assert main(["replay", str(tmp_path / "bag")]) == 1
    assert "nothing recorded" in capsys.readouterr().out


def test_cut_bag_is_not_good(tmp_path: Path, steps: Callable, record: Callable) -> None:
    record(tmp_path / "bag", [steps(60)], chunk_kib=4)
    path = Path(shutil.copy(tmp_path / "bag" / "bag_0.mcap", tmp_path / "cut.mcap"))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 6 // 10)
    assert main(["replay", str(path)]) == 1


def test_alarm_that_is_over_with_its_episode_and_back_at_once_is_compared(tmp_path: Path, steps: Callable, record: Callable) -> None:
    first, second = steps(10, "e1"), steps(10, "e2")
    first[-1] = replace(first[-1], action=np.full(7, np.nan))
    second[0] = replace(second[0], action=np.full(7, np.nan))
    record(tmp_path / "bag", [first, second])
    assert [a.state.phase.name for a in BagReader(tmp_path / "bag").alarms() if a.state.name == "invalid_action"][:3] == ["ACTIVE", "QUIET", "ACTIVE"]
    result = compare(tmp_path / "bag")
    assert (result.good, result.first) == (True, None)


def test_end_of_an_alarm_of_an_episode_with_a_gap_is_not_a_difference(tmp_path: Path, steps: Callable, record: Callable) -> None:
    record(tmp_path / "bag", [steps(14, "e1"), steps(14, "e2")], drop_steps=(5,))  # after the gap, the window is never full again
    result = compare(tmp_path / "bag")
    assert (result.different, result.alarms_different, result.missing_alarms) == (0, 0, 0)
    assert result.alarms_not_compared > 0
    assert result.compared == 5 + 14


def test_bag_is_read_once_for_verdict_and_episodes(tmp_path: Path, steps: Callable, record: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path / "bag", [steps(20, "e1"), steps(15, "e2")])
    passes = []
    messages = BagReader.messages
    monkeypatch.setattr(BagReader, "messages", lambda *given: passes.append(given) or messages(*given))
    report = bag_report(tmp_path / "bag")
    assert [(row.summary.episode_id, row.summary.steps, row.record.outcome) for row in report.rows] == [
        ("e1", 20, Outcome.SUCCESS),
        ("e2", 15, Outcome.SUCCESS),
    ]
    assert len(passes) == 1


def test_bag_of_another_program_is_replayed_with_config_and_policy_facts_from_files(
    tmp_path: Path, steps: Callable, record: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "bag", [steps(20)])
    folder = rewritten(tmp_path / "bag", tmp_path / "other", lambda found: found)
    (tmp_path / "config.yaml").write_text("alarms: {shaky_action: {threshold: 0.001}, frozen: null}\n")
    (tmp_path / "facts.json").write_text(recorded_facts(tmp_path / "bag")[1].model_dump_json())
    words = ["replay", str(folder), "--config", str(tmp_path / "config.yaml"), "--policy-facts", str(tmp_path / "facts.json"), "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["good"], told["compared"], told["other_config"]) == (True, 20, False)


def test_other_policy_facts_are_replayed_but_not_compared(
    tmp_path: Path, steps: Callable, record: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "bag", [steps(20)])
    (tmp_path / "facts.yaml").write_text("name: other\ncontrol_hz: 20\n")
    assert main(["replay", str(tmp_path / "bag"), "--policy-facts", str(tmp_path / "facts.yaml")]) == 0
    assert "20 steps with other settings; not compared" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("text", "named"), [("name: p\nhorizont: 4\n", "horizont"), ("- 1\n", "policy facts"), ("{", "neither YAML nor JSON")])
def test_wrong_policy_facts_are_named(tmp_path: Path, text: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "facts.yaml").write_text(text)
    assert main(["replay", str(tmp_path), "--policy-facts", str(tmp_path / "facts.yaml")]) == 2
    assert named in capsys.readouterr().err


def test_recorded_facts_that_cannot_be_read_are_replaced_by_those_given(
    tmp_path: Path, steps: Callable, record: Callable, make_facts: Callable[..., BagFacts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BagFacts, "as_strings", lambda facts: {"config": "{}", "policy": "{}"})
    record(tmp_path / "bag", [steps(10)])
    with pytest.raises(BagError, match="--policy-facts"):
        compare(tmp_path / "bag")
    facts = make_facts()
    assert compare(tmp_path / "bag", config=facts.config, spec=facts.spec).good


def test_steps_and_reports_that_were_dropped_at_the_end_are_counted(tmp_path: Path, steps: Callable, record: Callable) -> None:
    record(tmp_path / "bag", [steps(10)], drop_steps=(8, 9), drop_reports=(8, 9))
    result = compare(tmp_path / "bag")
    assert (result.compared, result.missing_steps, result.good) == (8, 2, False)


def test_recording_that_ended_by_itself_is_not_good(
    tmp_path: Path, steps: Callable, record: Callable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    close = Recorder._close_writer

    def ended(recorder: Recorder) -> None:
        recorder._reason = "the disk is full"
        close(recorder)

    monkeypatch.setattr(Recorder, "_close_writer", ended)
    record(tmp_path / "bag", [steps(10)])
    assert main(["replay", str(tmp_path / "bag")]) == 1
    assert "the recording ended before the run did: the disk is full" in " ".join(capsys.readouterr().out.split())


def test_episode_that_began_late_is_compared_when_nothing_was_lost(tmp_path: Path, steps: Callable, record: Callable) -> None:
    record(tmp_path / "bag", [steps(20)[3:]])  # the policy was not called for the first three
    result = compare(tmp_path / "bag")
    assert (result.compared, result.good) == (17, True)


def test_alarm_that_is_not_the_monitors_is_left_alone(tmp_path: Path, steps: Callable, make_facts: Callable[..., BagFacts]) -> None:
    facts, (step,) = make_facts(), steps(1)
    with contextlib.closing(Recorder(tmp_path / "bag", facts)) as recorder:
        recorder.open()
        report = Monitor(facts.spec, facts.config).update(step)
        recorder.record_step(step)
        recorder.record_report(report)
        recorder.record_alarm(
            AlarmState(
                name="recording_stopped",
                phase=AlarmPhase.ACTIVE,
                metric="",
                value=None,
                threshold=0.0,
                since=0.0,
                calibration="",
                hold=False,
                text="",
            ),
            report,
        )
    result = compare(tmp_path / "bag")
    assert (result.alarms_compared, result.alarms_different, result.good) == (0, 0, True)

"""Replay: the same numbers, bit for bit; what was lost is named, and never called a difference."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag2 import Reader, StoragePlugin, Writer

from monitor.config import MonitorConfig
from monitor.errors import BagError
from monitor.messages import Outcome
from monitor.policy import PolicySpec
from monitor.recording import BagReader
from monitor.recording.replay import compare, replay
from monitor.recording.types import REPORT, STEP, typestore


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

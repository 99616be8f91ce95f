"""`vla-monitor demo` and `replay`, with real processes and a policy and a robot that are small."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from monitor.cli.app import main
from monitor.errors import ConfigError

pytest.importorskip("rclpy")
pytest.importorskip("monitor_msgs.msg")

TINY = Path(__file__).parents[1] / "ros"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The tiny policy and robot of the ROS tests, registered under `tiny` for child processes."""
    site = tmp_path_factory.mktemp("site")
    info = site / "tiny-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[vla_monitor.policies]\ntiny = tiny:TinyPolicy\n[vla_monitor.robots]\ntiny = tiny:TinyRobot\n")
    added = os.pathsep.join([str(site), str(TINY), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": added.rstrip(os.pathsep)}


def demo(folder: Path, *words: str) -> list[str]:
    fixed = ["--policy", "tiny", "--robot", "tiny", "--port", "0", "--out", str(folder)]
    return [sys.executable, "-m", "monitor.cli.app", "demo", *fixed, *words]


class Done:
    def __init__(self, process: subprocess.CompletedProcess[str]) -> None:
        self.code, self.err = process.returncode, process.stderr
        self.told: dict[str, Any] = json.loads(process.stdout)


@pytest.fixture(scope="module")
def done(environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("bags")
    words = demo(
        folder,
        "--episodes",
        "move:1,wait:2:none_really,move:3,wait:4",
        "--json",  # longer than the 3 s that a listener may miss
    )
    return Done(subprocess.run(words, env=environment, capture_output=True, text=True, timeout=200, check=False))


def test_demo_ends_well(done: Done) -> None:
    assert (done.code, done.told["exit_codes"]) == (0, {"vla_monitor": 0, "sim_robot": 0})


def test_demo_replays_its_bag_bit_for_bit(done: Done) -> None:
    replayed = done.told["replay"]
    assert (replayed["identical"], replayed["compared"], replayed["cut"]) == (True, 120, False)


def test_demo_tells_each_episode(done: Done) -> None:
    episodes = done.told["replay"]["episodes"]
    assert [(e["task"], e["perturbation"], e["outcome"], e["steps"]) for e in episodes[:2]] == [
        ("move", None, "success", 30),
        ("wait", "none_really", "success", 30),
    ]


def test_demo_sees_the_metrics_page(done: Done) -> None:
    assert done.told["page_seen"]


def test_demo_watches_the_live_reports(done: Done) -> None:
    assert done.told["reports_seen"] >= 20


def test_demo_says_where_it_is_while_it_runs(done: Done) -> None:
    assert "alarms: uncertain" in done.err


def test_replay_of_the_bag_is_good(done: Done, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", done.told["bag"]]) == 0
    assert "bit for bit" in capsys.readouterr().out


def test_replay_with_another_configuration_is_not_compared(done: Done, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("window: 16\n")
    assert main(["replay", done.told["bag"], "--config", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["other_config"], told["compared"]) == (True, 0)


def test_replay_of_a_cut_bag_is_1(done: Done, tmp_path: Path) -> None:
    whole = next(Path(done.told["bag"]).glob("*.mcap"))
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    assert main(["replay", str(cut)]) == 1


def test_replay_of_nothing_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path / "nothing")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_taken_port_costs_the_page_only(environment: Mapping[str, str], tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        words = demo(tmp_path, "--port", str(holder.getsockname()[1]), "--episodes", "move:1", "--json")
        done = Done(subprocess.run(words, env=environment, capture_output=True, text=True, timeout=200, check=False))
    assert (done.code, done.told["page_seen"], done.told["replay"]["compared"]) == (0, False, 30)
    assert done.err.count("exporter off: 127.0.0.1") == 1


@pytest.fixture
def interrupted(environment: Mapping[str, str], tmp_path: Path) -> tuple[int, str, Path]:
    """A demo that was interrupted after its first steps: exit code, output, folder of the bags."""
    words = demo(tmp_path, "--tasks", "move", "--perturbation", "", "--episodes", ",".join(["move"] * 50))
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "tb_entropy/window" in line:
            break
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    return process.returncode, out, tmp_path


def test_interrupted_demo_keeps_the_bag_and_stops_its_children(interrupted: tuple[int, str, Path]) -> None:
    code, out, folder = interrupted
    assert code == 130
    assert [path.name for path in folder.glob("*/metadata.yaml")] == ["metadata.yaml"]
    assert "bit for bit" in out
    assert f"{sys.executable} -m monitor.cli.app replay {folder}" in out


@pytest.mark.parametrize("codes", [{"vla_monitor": -signal.SIGSEGV, "sim_robot": 0}, {"vla_monitor": 0, "sim_robot": 2}])
def test_crashed_process_is_1(codes: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from monitor.cli import show_demo
    from monitor.ros.demo import DemoOptions, DemoResult

    result = DemoResult(bag=None, page=None, exit_codes=codes, interrupted=False, reports=0)
    monkeypatch.setattr(show_demo, "run_demo", lambda *given, **named: result)
    assert show_demo.show_demo(DemoOptions(episodes=("move",), out=tmp_path), live=False, as_json=True) == 1
    assert "ended with exit code" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("move:1,wait:2:fault", None, 0, ""), ("move:1", "wait:2:fault")),
        ((None, "a, b", 7, "fault"), ("a:7", "b:7", "a:7:fault")),
        ((None, "a", 7, ""), ("a:7",)),
    ],
)
def test_episodes_of_the_options(given: tuple[str | None, str | None, int, str], expected: tuple[str, ...]) -> None:
    from monitor.ros.demo import parse_episodes

    assert parse_episodes(*given) == expected


def test_default_episodes_are_every_task_and_a_fault() -> None:
    from monitor.ros.demo import TASKS, parse_episodes

    episodes = parse_episodes(None, None, 0, "camera_covered")
    assert {episode.split(":")[0] for episode in episodes} == set(TASKS)
    assert [episode.split(":")[2] for episode in episodes if episode.count(":") == 2] == ["camera_covered"]


def test_empty_list_of_tasks_is_refused() -> None:
    from monitor.ros.demo import parse_episodes

    with pytest.raises(ConfigError, match="names nothing"):
        parse_episodes(None, " , ", 0, "")

"""The plan, the launch file that starts it, and `up` that starts it without launch."""

from __future__ import annotations

import importlib.util
import json
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from processes import SIM_PARAMETERS, new_domain

from monitor.config import MonitorConfig
from monitor.errors import ConfigError
from monitor.ros.parameters import flatten, merge
from monitor.ros.plan import BOOTSTRAP_GUARD, OPTIONS, Process, make_plan
from monitor.ros.up import Running, child_environment

HERE = {"PYTHONPATH": str(Path(__file__).parent)}
LAUNCH_FILE = Path(__file__).parents[2] / "launch" / "vla_monitor.launch.py"


def test_defaults_start_node_and_simulated_robot() -> None:
    node, robot = make_plan()
    assert (node.executable, node.module) == ("vla_monitor", "monitor.ros.node")
    assert (robot.executable, robot.remappings, robot.ends_all) == ("sim_robot", {"action": "vla_monitor/action"}, True)
    assert {name: value for name, value in node.parameters.items() if name != "use_sim_time"} == {
        name: value for name, value in SIM_PARAMETERS.items() if name != "export.port"
    }


def test_without_simulation_the_configuration_decides_the_trigger() -> None:
    (node,) = make_plan({"sim": "false", "port": "0", "bags": "my bags", "gate": "hold", "record": "false", "robot": "r1", "policy": "p"})
    assert node.parameters == {
        "use_sim_time": False, "policy.name": "p", "export.robot": "r1", "recording.folder": "my bags", "gate.mode": "hold", "export.port": 0,
        "recording.enabled": False,
    }  # fmt: skip
    config = merge(None, {name: value for name, value in node.parameters.items() if name != "use_sim_time"})
    assert (config.gate.mode, config.policy.name) == ("hold", "p")


def test_parameters_of_the_plan_are_settings() -> None:
    known = {name for name, _, _ in flatten(MonitorConfig())} | {"use_sim_time", "config"}
    node, _ = make_plan({"config": "a.yaml", "robot": "r", "policy": "p", "bags": "b", "record": "true", "gate": "hold", "port": "1"})
    assert set(node.parameters) <= known


def test_options_are_described_and_wrong_ones_refused() -> None:
    assert all(option.description for option in OPTIONS)
    for wrong, message in (({"prot": "1"}, "unknown"), ({"sim": "yes"}, "not one of true, false"), ({"port": "x"}, "not a whole number")):
        with pytest.raises(ConfigError, match=message):
            make_plan(wrong)


def test_texts_reach_rcl_as_texts() -> None:
    process = Process(name="n", executable="n", module="m", parameters={"a": "it's 12", "b": ["x", "y"], "c": 1.0, "d": True})
    arguments = [argument.split(":=", 1) for argument in process.ros_arguments() if ":=" in argument]
    assert {name: yaml.safe_load(text) for name, text in arguments} == process.parameters


def test_children_find_their_own_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BOOTSTRAP_GUARD, "1")
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET")
    environment = child_environment({"ROS_DOMAIN_ID": "5"})
    assert BOOTSTRAP_GUARD not in environment
    assert environment["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "SUBNET", "what a user has set stays"
    assert environment["ROS_DOMAIN_ID"] == "5"


def test_up_ends_all_when_the_last_episode_is_over_or_one_process_fails(tmp_path: Path) -> None:
    said: list[str] = []
    node, _ = make_plan({"bags": str(tmp_path), "policy": "no_such_policy", "port": "0"})
    robot = Process(name="sim_robot", executable="", module="sleeper", ends_all=True)
    running = Running((node, robot), say=said.append, environment={"ROS_DOMAIN_ID": str(new_domain()), **HERE})
    running.start()
    codes = running.wait()
    assert codes["vla_monitor"] == 2
    assert any("no entry 'no_such_policy'" in line for line in said)
    assert all(child.poll() is not None for child in running.children.values())


def test_up_stops_its_children_and_nothing_else(tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        process = Process(name="web", executable="", module="sleeper")
        running, stop = Running((process,), say=lambda line: None, environment=HERE), threading.Event()
        with running:
            assert running.children["web"].poll() is None
            stop.set()
            assert running.wait(stop) == {"web": -signal.SIGTERM}
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
        if stranger.stdin:
            stranger.stdin.close()


def launch_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("vla_monitor_launch", LAUNCH_FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FAKE = """#!{python}
import json, pathlib, sys, time, yaml
args, seen = sys.argv[1:], {{"parameters": {{}}, "remappings": {{}}}}
for flag, value in zip(args, args[1:]):
    if flag == "--params-file":
        for node in yaml.unsafe_load(pathlib.Path(value).read_text()).values():
            seen["parameters"].update(node["ros__parameters"])
    elif flag == "-p":
        name, _, text = value.partition(":=")
        seen["parameters"][name] = yaml.safe_load(text)
    elif flag == "-r" and not value.startswith("__"):
        name, _, target = value.partition(":=")
        seen["remappings"][name] = target
out = pathlib.Path({folder!r}, pathlib.Path(sys.argv[0]).name + ".json")
out.with_suffix(".tmp").write_text(json.dumps(seen))
out.with_suffix(".tmp").rename(out)
while out.stem == "sim_robot" and not out.with_name("vla_monitor.json").exists():
    time.sleep(0.05)  # its end ends all
"""


@pytest.mark.skipif(importlib.util.find_spec("launch_ros") is None, reason="ROS 2's launch_ros is not installed (it is not on PyPI)")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sim": "false", "port": "1234", "gate": "hold"},
        {"episodes": "pick_up:3,put_in:4", "rate_factor": "0"},
        {"episodes": "7:1,8:2", "robot": "7", "bags": "it's on"},
    ],
)
def test_the_launch_file_starts_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> None:
    launch(tmp_path, monkeypatch, FAKE, options)
    plan = make_plan(options)
    assert {file.stem for file in tmp_path.glob("*.json")} == {process.executable for process in plan}
    for process in plan:
        seen = json.loads((tmp_path / f"{process.executable}.json").read_text())
        assert seen == {"parameters": process.parameters, "remappings": process.remappings}


def launch(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str, options: dict[str, str]) -> None:
    """Launch with `program` in place of the nodes, until everything has ended."""
    from launch.actions import IncludeLaunchDescription
    from launch.launch_description_sources import PythonLaunchDescriptionSource

    from launch import LaunchDescription, LaunchService

    prefix = folder / "prefix"
    (prefix / "share/ament_index/resource_index/packages").mkdir(parents=True)
    (prefix / "share/ament_index/resource_index/packages/monitor").touch()
    (prefix / "lib/monitor").mkdir(parents=True)
    for name in ("vla_monitor", "sim_robot"):
        file = prefix / "lib/monitor" / name
        file.write_text(program.format(python=sys.executable, folder=str(folder)))
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(prefix))
    monkeypatch.setenv("ROS_LOG_DIR", str(folder / "log"))
    service = LaunchService(noninteractive=True)
    source = PythonLaunchDescriptionSource(str(LAUNCH_FILE))
    service.include_launch_description(LaunchDescription([IncludeLaunchDescription(source, launch_arguments=list(options.items()))]))
    assert service.run(shutdown_when_idle=True) == 0


FAILING = """#!{python}
import pathlib, signal, sys
if pathlib.Path(sys.argv[0]).name == "vla_monitor":
    sys.exit(2)
signal.signal(signal.SIGALRM, lambda *_: sys.exit(9))
signal.alarm(60)
try:
    signal.pause()
except KeyboardInterrupt:
    pathlib.Path({folder!r}, "stopped").touch()
"""


@pytest.mark.skipif(importlib.util.find_spec("launch_ros") is None, reason="ROS 2's launch_ros is not installed (it is not on PyPI)")
def test_the_launch_file_stops_the_rest_when_one_process_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch(tmp_path, monkeypatch, FAILING, {})
    assert (tmp_path / "stopped").exists()


@pytest.mark.skipif(importlib.util.find_spec("launch_ros") is None, reason="ROS 2's launch_ros is not installed (it is not on PyPI)")
def test_the_launch_file_shows_every_option() -> None:
    arguments = launch_module().generate_launch_description().get_launch_arguments()
    assert [a.name for a in arguments] == [option.name for option in OPTIONS]
    assert all(a.description.startswith(option.description) for a, option in zip(arguments, OPTIONS, strict=True))

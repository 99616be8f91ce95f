"""Real processes for tests: the tiny policy's node and the tiny robot, each with its output in a file."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from monitor.messages import AlarmRecord, EpisodeRecord, ReportRecord
from monitor.ros.plan import Process, Value
from monitor.ros.up import child_environment
from monitor.ros.watch import Watcher

SIM_PARAMETERS: dict[str, Value] = {
    "control.trigger": "observation",
    "control.parts": ["tool_pose", "joint_states", "goal"],
    "control.wait_for_episode": True,
    "control.reliable_input": True,
    "export.port": 0,
}
DEADLINE_S = 60.0
_domains = itertools.count(os.getpid())


def new_domain() -> int:
    """A ROS domain that no other test of this process uses."""
    return 10 + next(_domains) % 90


def until(condition: Callable[[], bool], what: str, timeout_s: float = DEADLINE_S) -> None:
    """Wait for a condition; fail with `what` after the time-out."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.02)


class Child:
    """A child process; `output` is what it has said so far."""

    def __init__(self, kind: str, folder: Path, domain: int, options: Mapping[str, object], parameters: Mapping[str, Value]) -> None:
        remappings = {"action": "vla_monitor/action"} if kind == "robot" else {}
        arguments = Process(name=kind, executable="", module="", parameters=parameters, remappings=remappings).ros_arguments()
        self.log = folder / f"{kind}.log"
        with self.log.open("w") as file:
            self.popen = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("tiny.py")), kind, json.dumps(options), *arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=child_environment({"ROS_DOMAIN_ID": str(domain)}),
                process_group=0,
            )

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def says(self, pattern: str) -> bool:
        return re.search(pattern, self.output) is not None

    def until_says(self, pattern: str) -> None:
        until(lambda: self.says(pattern) or self.popen.poll() is not None, f"{pattern!r} in\n{self.output}")
        assert self.says(pattern), self.output

    def ends(self, timeout_s: float = DEADLINE_S) -> int:
        return self.popen.wait(timeout_s)

    def count(self, name: str) -> int:
        """A total from the robot's last line."""
        found = re.search(rf"done: .*\b{name} (\d+)", self.output)
        assert found, self.output
        return int(found.group(1))


class Heard:
    """Everything the node has published."""

    def __init__(self) -> None:
        self.connected: Callable[[], bool] = lambda: False
        self.reports: list[ReportRecord] = []
        self.alarms: list[AlarmRecord] = []
        self.episodes: list[EpisodeRecord] = []


@contextmanager
def listening(domain: int) -> Iterator[Heard]:
    """Collect what the node in a domain says."""
    heard, stop = Heard(), threading.Event()
    watcher = Watcher(heard.reports.append, heard.alarms.append, heard.episodes.append, domain_id=domain)
    heard.connected = lambda: watcher.connected
    thread = threading.Thread(target=watcher.run, args=(stop,))
    thread.start()
    try:
        yield heard
    finally:
        stop.set()
        thread.join()
        watcher.close()


class Pair:
    """A node and a robot in one domain; both are gone at the end of the `with` block."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.domain = folder, new_domain()
        self.bags = folder / "bags"
        self._children: list[Child] = []

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *exc: object) -> None:
        for child in self._children:
            if child.popen.poll() is None:
                child.popen.kill()
                child.popen.wait()

    def node(self, options: Mapping[str, object] | None = None, **parameters: Value) -> Child:
        dotted = {name.replace("__", "."): value for name, value in parameters.items()}
        return self._start("node", options, {**SIM_PARAMETERS, "recording.folder": str(self.bags), **dotted})

    def robot(self, options: Mapping[str, object] | None = None, **parameters: Value) -> Child:
        return self._start("robot", options, {"episodes": ["move:3"], **parameters})

    def bag(self) -> Path:
        (folder,) = self.bags.iterdir()
        return folder

    def _start(self, kind: str, options: Mapping[str, object] | None, parameters: Mapping[str, Value]) -> Child:
        child = Child(kind, self.folder, self.domain, options or {}, parameters)
        self._children.append(child)
        return child

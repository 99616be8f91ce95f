"""Starts a plan with plain child processes: what `ros2 launch` does, where it is not installed. Ends only what it started. No rclpy in here."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from monitor.ros.plan import BOOTSTRAP_GUARD, LOCAL_DDS, Process, make_plan
from monitor.ros.signals import stop_on_signals

GRACE_S = 15.0  # a bag is closed in this time
POLL_S = 0.1
_NOISE = re.compile(r"RTPS_TRANSPORT_SHM|^\s*$")
_LEVEL = re.compile(r"^\[(INFO|WARN|ERROR|FATAL)\] \[[\d.]+\] \[[^\]]*\]: ")

Say = Callable[[str], None]


class Running:
    """Processes of a plan. Use as a context manager, or call `stop`.

    Args:
        plan: what to start.
        say: takes each line of output, without its line end.
        environment: added to this process's own.
        local: keep DDS on this machine (see `LOCAL_DDS`), unless the environment says otherwise.
        quiet: pass on warnings and errors only.
    """

    def __init__(
        self,
        plan: Sequence[Process],
        *,
        say: Say | None = None,
        environment: Mapping[str, str] | None = None,
        local: bool = True,
        quiet: bool = False,
    ) -> None:
        self._say = say or _to_stderr
        self._quiet = quiet
        self._plan = tuple(plan)
        self._ending = {process.name for process in plan if process.ends_all}
        self._environment = child_environment(environment, local=local)
        self.children: dict[str, subprocess.Popen[str]] = {}
        self._readers: list[threading.Thread] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start all processes, each in a process group of its own so that a key press in the terminal reaches this process only."""
        for process in self._plan:
            child = subprocess.Popen(
                [sys.executable, "-m", process.module, *process.ros_arguments()],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
                env=self._environment,
                process_group=0,
            )
            self.children[process.name] = child
            assert child.stdout is not None
            reader = threading.Thread(target=self._read, args=(process.name, child.stdout), name=f"read-{process.name}", daemon=True)
            reader.start()
            self._readers.append(reader)

    def wait(self, stop: threading.Event | None = None) -> dict[str, int]:
        """Until a process that ends all has ended, any has failed, or `stop` is set; then stop the rest. Returns exit codes by name."""
        while stop is None or not stop.is_set():
            codes = {name: child.poll() for name, child in self.children.items()}
            if any(code is not None and (code != 0 or name in self._ending) for name, code in codes.items()) or None not in codes.values():
                break
            time.sleep(POLL_S)
        return self.stop()

    def stop(self) -> dict[str, int]:
        """SIGTERM to those that run, SIGKILL to those that do not end in time. Returns exit codes by name; negative: ended by that signal."""
        for child in self.children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        for name, child in self.children.items():
            try:
                child.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._line(name, f"does not end within {GRACE_S:g} s and is killed")
                child.kill()
                child.wait()
        for reader in self._readers:
            reader.join(timeout=2.0)
        return {name: int(child.returncode) for name, child in self.children.items()}

    def __enter__(self) -> Running:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _read(self, name: str, pipe: IO[str]) -> None:
        with pipe:
            for raw in pipe:
                line = raw.rstrip("\n")
                level = _LEVEL.match(line)
                if _NOISE.search(line) or (self._quiet and level is not None and level.group(1) == "INFO"):
                    continue
                prefix = f"{level.group(1).lower()}: " if level is not None and level.group(1) != "INFO" else ""
                self._line(name, prefix + (line[level.end() :] if level is not None else line))

    def _line(self, name: str, text: str) -> None:
        with self._lock:
            self._say(f"[{name}] {text}")


def child_environment(extra: Mapping[str, str] | None = None, *, local: bool = True) -> dict[str, str]:
    """Environment for a child that uses rclpy."""
    environment = {**os.environ, **(extra or {})}
    environment.pop(BOOTSTRAP_GUARD, None)
    environment.setdefault("PYTHONUNBUFFERED", "1")
    if local:
        for name, value in LOCAL_DDS.items():
            environment.setdefault(name, value)
    return environment


def up(options: Mapping[str, str] | None = None, *, say: Say | None = None, quiet: bool = False, local: bool = True) -> int:
    """Start the plan, run until it is over or SIGINT or SIGTERM comes, stop everything. Main thread only.

    Returns 0 when all ended well, 130 or 143 after a signal that all took well, else the first exit code that is not 0 (1 for a crash).

    Raises:
        ConfigError: an option is wrong.
    """
    running = Running(make_plan(options), say=say, quiet=quiet, local=local)
    with stop_on_signals() as stop, running:
        codes = running.wait(stop)
    bad = [code for code in codes.values() if code != 0]
    if bad:
        return bad[0] if bad[0] > 0 else 1
    return 0 if stop.received is None else 128 + stop.received


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()

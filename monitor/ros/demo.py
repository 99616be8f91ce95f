"""The demo: the node and the simulated robot as real processes, watched over ROS topics. Prints nothing."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from monitor.config import ExportConfig
from monitor.errors import ConfigError
from monitor.export.page import fetch
from monitor.messages import AlarmRecord, EpisodeRecord, ReportRecord
from monitor.ros.plan import Process, make_plan
from monitor.ros.signals import stop_on_signals
from monitor.ros.up import Running
from monitor.ros.watch import Watcher
from monitor.steps import PolicyStep

TASKS = ("pick_up", "move_near", "put_on", "put_in")
PLAIN_EPISODES = ("pick_up:1", "move_near:2", "put_on:1", "put_in:1")
PERTURBED_EPISODE = "put_on:3"
DRAIN_S = 0.1
PAGE_AT = 15  # reports after which the page is fetched: windows are full by then
Record = PolicyStep | ReportRecord | AlarmRecord | EpisodeRecord


def own_domain() -> int:
    """Choose a ROS domain that others are not likely to use; ROS_DOMAIN_ID if it is set."""
    given = os.environ.get("ROS_DOMAIN_ID", "")
    return int(given) if given.isdigit() else 30 + os.getpid() % 60


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What to show.

    `episodes`: TASK[:SEED[:PERTURBATION]]. `fast`: as fast as the policy answers. `domain_id`: a ROS domain of its own, so that no real robot takes
    the demo's actions.
    """

    episodes: tuple[str, ...]
    port: int = ExportConfig().port
    out: Path = Path("bags")
    policy: str = ""
    robot: str = "sim"
    fast: bool = False
    domain_id: int = field(default_factory=own_domain)

    @property
    def plan(self) -> tuple[Process, ...]:
        """What is started for that; the robot waits until the view hears it, too."""
        options = {
            "episodes": ",".join(self.episodes),
            "port": str(self.port),
            "bags": str(self.out),
            "record": "true",
            "policy": self.policy,
            "sim_robot": self.robot,
            "rate_factor": "0" if self.fast else "1.0",
        }
        node, robot = make_plan(options)
        return node, replace(robot, parameters={**robot.parameters, "listeners": 1})


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """What came of it: the new bag, the metrics page as it was during the run, exit codes by process, and whether somebody stopped it."""

    bag: Path | None
    page: str | None
    exit_codes: dict[str, int]
    interrupted: bool
    reports: int

    @property
    def good(self) -> bool:
        """True when both processes ended well."""
        return all(code == 0 for code in self.exit_codes.values())


def parse_episodes(episodes: str | None, tasks: str | None, seed: int, perturbation: str) -> tuple[str, ...]:
    """Episodes from the options: those named; else each task once and the first again with the perturbation; else the default mix.

    Raises:
        ConfigError: a list holds nothing.
    """
    if episodes is not None:
        return _words("--episodes", episodes)
    if tasks is None:
        return (*PLAIN_EPISODES, f"{PERTURBED_EPISODE}:{perturbation}") if perturbation else PLAIN_EPISODES
    named = _words("--tasks", tasks)
    plain = tuple(f"{task}:{seed}" for task in named)
    return (*plain, f"{named[0]}:{seed}:{perturbation}") if perturbation else plain


def _words(option: str, text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise ConfigError(f"{option} {text!r}: names nothing; tasks of the simulated robot: {', '.join(TASKS)}")
    return words


def free_port() -> int:
    """Find a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def page_url(port: int) -> str:
    """Tell where the page is."""
    return f"http://127.0.0.1:{port}/metrics"


def port_is_free(port: int) -> bool:
    """True when the metrics page can be served there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def run_demo(options: DemoOptions, on_record: Callable[[Record | None], None], *, say: Callable[[str], None], quiet: bool = True) -> DemoResult:
    """Run the episodes to their end, or until SIGINT or SIGTERM; the bag is kept in every case. Main thread only.

    Args:
        options: what to run.
        on_record: called in this thread with every step, report, alarm and episode event, and with None when what had come is done.
        say: takes the processes' lines, from any thread.
        quiet: pass on warnings and errors only.
    """
    before, ours = _bags(options.out), port_is_free(options.port)
    records: queue.SimpleQueue[Record] = queue.SimpleQueue()
    reports, page = 0, None
    running = Running(options.plan, say=say, environment={"ROS_DOMAIN_ID": str(options.domain_id)}, quiet=quiet)
    with stop_on_signals() as stop, _watching(records, options, ours), running, ThreadPoolExecutor(1, "demo-wait") as pool:
        ending = pool.submit(running.wait, stop)
        try:
            while not ending.done() or not records.empty():
                for record in _drain(records):
                    on_record(record)
                    if isinstance(record, ReportRecord):
                        reports += 1
                        if reports == PAGE_AT and ours:
                            page = _page(options.port)
                on_record(None)
        finally:
            interrupted = stop.is_set()
            stop.set()
    return DemoResult(bag=_newest(_bags(options.out) - before), page=page, exit_codes=ending.result(), interrupted=interrupted, reports=reports)


def _drain(records: queue.SimpleQueue[Record]) -> Iterator[Record]:
    """What has come, waiting a moment for the first."""
    try:
        yield records.get(timeout=DRAIN_S)
        while True:
            yield records.get_nowait()
    except queue.Empty:
        return


@contextmanager
def _watching(records: queue.SimpleQueue[Record], options: DemoOptions, ours: bool) -> Iterator[None]:
    """Put what the node publishes into the queue, from a thread.

    A listener that joins after the node is mostly known to it at once; one that was there before often waits for DDS's next announcement, 3 s. So it
    waits for the page, which the node opens before it listens to the robot; and the robot waits for it. What the view misses all the same is in the
    bag.
    """
    stop = threading.Event()

    def listen() -> None:
        while ours and not _answers(options.port) and not stop.wait(0.05):
            pass
        if stop.is_set():
            return
        put = records.put
        watcher = Watcher(put, put, put, put, domain_id=options.domain_id)
        try:
            watcher.run(stop)
        finally:
            watcher.close()

    thread = threading.Thread(target=listen, name="demo-watch")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.5).close()
    except OSError:
        return False
    return True


def _page(port: int) -> str | None:
    try:
        return fetch(page_url(port))
    except OSError:
        return None


def _bags(folder: Path) -> set[Path]:
    return {path for path in folder.iterdir() if path.is_dir()} if folder.is_dir() else set()


def _newest(folders: set[Path]) -> Path | None:
    return max(folders, key=lambda folder: folder.stat().st_mtime, default=None)

"""The node in this process, fed by hand: timer, plain robots without episode events, a clock that jumps back, bad pictures, diagnostics."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import PoseStamped
from monitor_msgs.msg import Action, StepReport
from processes import new_domain, until
from rclpy.context import Context
from rclpy.node import Node
from sensor_msgs.msg import Image
from std_msgs.msg import String
from tiny import TinyPolicy

from monitor.ros import conversions, qos
from monitor.ros.node import VlaMonitorNode
from monitor.ros.runtime import local_dds, spin

S = 1_000_000_000
START = 1_700_000_000 * S
PERIOD = S // 20


class Bench:
    """A node, and a second one that feeds it and hears it."""

    def __init__(self, folder: Path) -> None:
        local_dds()
        self.folder = folder
        self.context = Context()
        self.context.init(args=[], domain_id=new_domain())
        self.hand = Node("hand", context=self.context, use_global_arguments=False)
        self.poses = self.hand.create_publisher(PoseStamped, "tool_pose", qos.SENSOR_RELIABLE)
        self.images = self.hand.create_publisher(Image, "camera/front/image_raw", qos.SENSOR_RELIABLE)
        self.instructions = self.hand.create_publisher(String, "instruction", qos.LATCHED)
        self.reports: list[StepReport] = []
        self.actions: list[Action] = []
        self.diagnostics: dict[str, DiagnosticStatus] = {}
        self.hand.create_subscription(StepReport, "vla_monitor/report", self.reports.append, qos.REPORT)
        self.hand.create_subscription(Action, "vla_monitor/action", self.actions.append, qos.ACTION)
        self.hand.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.node: VlaMonitorNode | None = None

    def start(self, policy: TinyPolicy, **parameters: Any) -> VlaMonitorNode:
        dotted = {name.replace("__", "."): value for name, value in parameters.items()}
        overrides = {"export.port": 0, "recording.folder": str(self.folder), "control.parts": ["tool_pose"], **dotted}
        self.node = VlaMonitorNode(policy, overrides=overrides, context=self.context, use_global_arguments=False)
        self.node.start()
        for node in (self.node, self.hand):
            thread = threading.Thread(target=spin, args=(node, self._stop))
            thread.start()
            self._threads.append(thread)
        until(lambda: self.poses.get_subscription_count() == 1 and self.hand.count_publishers("/vla_monitor/report") == 1, "they have met")
        return self.node

    def pose(self, stamp_ns: int) -> None:
        self.poses.publish(conversions.pose_message(np.array([0.4, 0, 0.1]), np.array([1.0, 0, 0, 0]), conversions.to_stamp(stamp_ns)))

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self.node is not None:
            self.node.close()
            self.node.destroy_node()
        self.hand.destroy_node()
        self.context.try_shutdown()

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            self.diagnostics[status.name] = status


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "bags")
    yield made
    made.close()


def feed(bench: Bench, stamps: list[int]) -> None:
    """One observation after the other, each when the one before is answered."""
    for stamp in stamps:
        before = len(bench.reports)
        bench.pose(stamp)
        until(lambda before=before: len(bench.reports) > before, f"a report for {stamp}")


def test_a_clock_that_jumps_back_does_not_stop_the_node(bench: Bench) -> None:
    bench.start(TinyPolicy(cameras=()), control__trigger="observation", control__reliable_input=True)
    feed(bench, [START + i * PERIOD for i in range(5)])
    feed(bench, [START - 100 * S + i * PERIOD for i in range(5)])
    assert [report.step for report in bench.reports] == list(range(10))
    assert {report.verdict for report in bench.reports} == {"accepted"}
    assert "time_backwards" in bench.reports[5].issue_codes
    bench.pose(START - 100 * S)  # late, not a jump
    feed(bench, [START - 90 * S])
    assert bench.reports[-1].step == 10
    assert bench.node is not None
    assert bench.node.totals()["late_observation"] == 1


def test_a_robot_without_episode_events_gets_an_episode_per_instruction(bench: Bench) -> None:
    policy = TinyPolicy(cameras=())
    bench.start(policy, control__trigger="observation", control__reliable_input=True)
    feed(bench, [START])
    bench.instructions.publish(String(data="pick it up"))
    until(lambda: bench.node is not None and bench.node._instruction == "pick it up", "the instruction")
    feed(bench, [START + PERIOD, START + 2 * PERIOD])
    assert [report.step for report in bench.reports] == [0, 0, 1]
    assert len({report.episode_id for report in bench.reports}) == 2
    assert policy.resets == ["", "pick it up"]
    assert conversions.to_nanoseconds(bench.actions[-1].header.stamp) == START + 2 * PERIOD


def test_the_timer_calls_the_policy_at_its_rate_with_the_newest_parts(bench: Bench) -> None:
    policy = TinyPolicy(cameras=())
    bench.start(policy, control__rate_hz=50.0)
    until(lambda: bench.node is not None and bench.node.counters["skipped"] >= 2, "ticks without observation are skipped")
    assert not policy.seen
    bench.pose(START)
    until(lambda: len(bench.reports) >= 10, "10 reports")
    times = np.array([report.time for report in bench.reports])
    assert np.median(np.diff(times)) == pytest.approx(0.02, rel=0.5)


@pytest.mark.parametrize("trouble", ["empty", "absent"])
def test_bad_and_absent_pictures_are_told(bench: Bench, trouble: str) -> None:
    policy = TinyPolicy()
    bench.start(policy, control__trigger="observation", control__reliable_input=True)
    until(lambda: bench.images.get_subscription_count() == 1, "the camera is heard")
    if trouble == "empty":
        bench.images.publish(Image(height=2, width=2, encoding="rgb8", step=6))
    bench.pose(START)
    assert bench.node is not None
    node = bench.node
    until(lambda: node.counters["skipped"] == 1, "the step is skipped")
    assert node.counters["bad_picture"] == (trouble == "empty")
    assert not policy.seen
    until(lambda: b"\x02" in levels(bench, "steps"), "every step is lost: ERROR")
    picture = np.zeros((4, 4, 3), np.uint8)
    bench.images.publish(conversions.image_message(picture, "front", conversions.to_stamp(START + PERIOD)))
    feed(bench, [START + PERIOD])
    assert bench.reports[0].step == 0, "the attempt begins with its first whole observation"


def levels(bench: Bench, task: str) -> list[bytes]:
    return [status.level for name, status in bench.diagnostics.items() if name == f"vla_monitor: {task}"]


def test_diagnostics_tell_of_page_and_bag(bench: Bench) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        bench.folder.write_text("a file where the folder of bags should be")
        bench.start(TinyPolicy(cameras=()), control__trigger="observation", control__reliable_input=True, export__port=holder.getsockname()[1])
        feed(bench, [START, START + PERIOD])
        until(lambda: len(bench.diagnostics) == 3, "diagnostics")
        page, bag = bench.diagnostics["vla_monitor: page"], bench.diagnostics["vla_monitor: bag"]
        assert (page.level, bag.level) == (DiagnosticStatus.WARN, DiagnosticStatus.WARN)
        assert page.message.startswith("exporter off: ")
        assert str(bench.folder) in bag.message
        until(lambda: levels(bench, "steps") == [DiagnosticStatus.OK] or levels(bench, "steps") == [DiagnosticStatus.STALE], "steps are told")

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
from monitor_msgs.msg import Action, Alarm, Episode, StepReport
from processes import new_domain, until
from rclpy.context import Context
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import Image
from std_msgs.msg import String
from std_srvs.srv import Trigger
from tiny import TinyPolicy

from monitor.messages import EpisodeEvent, EpisodeRecord, alarm_from
from monitor.recording import BagReader
from monitor.ros import conversions, qos
from monitor.ros.latched import listen_latched
from monitor.ros.loop import Teller
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
        self.instructions = self.hand.create_publisher(String, "instruction", qos.INSTRUCTION)
        self.episodes = self.hand.create_publisher(Episode, "episode", 10)  # keeps nothing for late joiners
        self.reports: list[StepReport] = []
        self.actions: list[Action] = []
        self.diagnostics: dict[str, DiagnosticStatus] = {}
        self.hand.create_subscription(StepReport, "vla_monitor/report", self.reports.append, qos.REPORT)
        self.hand.create_subscription(Action, "vla_monitor/action", self.actions.append, qos.ACTION)
        self.hand.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.node: VlaMonitorNode | None = None

    def start(self, policy: TinyPolicy, instruction: str = "go", **parameters: Any) -> VlaMonitorNode:
        dotted = {name.replace("__", "."): value for name, value in parameters.items()}
        overrides = {"export.port": 0, "recording.folder": str(self.folder), "control.parts": ["tool_pose"], **dotted}
        self.node = VlaMonitorNode(policy, overrides=overrides, context=self.context, use_global_arguments=False)
        self.node.start()
        for node in (self.node, self.hand):
            thread = threading.Thread(target=spin, args=(node, self._stop))
            thread.start()
            self._threads.append(thread)
        until(lambda: self.poses.get_subscription_count() == 1 and self.hand.count_publishers("/vla_monitor/report") == 1, "they have met")
        until(lambda: self.episodes.get_subscription_count() == 1, "episodes are heard")
        if instruction:
            self.instruct(instruction)
        return self.node

    def instruct(self, text: str) -> None:
        """Publish, and wait until the node has it."""
        node = self.node
        assert node is not None
        self.instructions.publish(String(data=text))
        until(lambda: node._instruction == text, "the instruction")

    def episode(self, event: EpisodeEvent, episode_id: str, instruction: str = "", stamp_ns: int = START) -> None:
        record = EpisodeRecord(event=event, time=conversions.to_seconds(stamp_ns), episode_id=episode_id, instruction=instruction)
        self.episodes.publish(conversions.episode_message(record, conversions.to_stamp(stamp_ns)))

    def pose(self, stamp_ns: int) -> None:
        self.poses.publish(conversions.pose_message(np.array([0.4, 0, 0.1]), np.array([1.0, 0, 0, 0]), conversions.to_stamp(stamp_ns)))

    def close(self) -> None:
        if self._stop.is_set():
            return
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


SIM: dict[str, Any] = {"control__trigger": "observation", "control__reliable_input": True}


def feed(bench: Bench, stamps: list[int]) -> None:
    """One observation after the other, each when the one before is answered."""
    for stamp in stamps:
        before = len(bench.reports)
        bench.pose(stamp)
        until(lambda before=before: len(bench.reports) > before, f"a report for {stamp}")


def test_a_clock_that_jumps_back_does_not_stop_the_node(bench: Bench) -> None:
    bench.start(TinyPolicy(cameras=()), **SIM)
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
    bench.start(policy, **SIM)
    feed(bench, [START])
    bench.instruct("pick it up")
    feed(bench, [START + PERIOD, START + 2 * PERIOD])
    assert [report.step for report in bench.reports] == [0, 0, 1]
    assert len({report.episode_id for report in bench.reports}) == 2
    assert policy.resets == ["go", "pick it up"]
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
    assert bench.node is not None
    assert bench.node.totals()["late_observation"] == 0


def test_a_rate_of_its_own_holds_for_policy_monitor_and_bag(bench: Bench) -> None:
    node = bench.start(TinyPolicy(cameras=()), control__rate_hz=50.0)
    assert (node.policy.spec.control_hz, node.spec.control_hz, node.monitor.spec.control_hz) == (20.0, 50.0, 50.0)
    bench.pose(START)
    until(lambda: len(bench.reports) >= 2, "reports")
    bench.close()
    (folder,) = bench.folder.iterdir()
    spec = BagReader(folder).facts().spec
    assert spec is not None
    assert spec.control_hz == 50.0


def test_without_instruction_the_policy_is_not_called(bench: Bench) -> None:
    policy = TinyPolicy(cameras=())
    node = bench.start(policy, instruction="", **SIM)
    said: list[str] = []
    node.teller = Teller(said.append)
    bench.pose(START)
    until(lambda: node.counters["skipped"] == 1, "the step is skipped")
    assert not policy.seen
    assert not policy.resets
    assert any("missing: instruction" in line for line in said)
    bench.instruct("go")
    feed(bench, [START + PERIOD])
    assert policy.seen[0].instruction == "go"


def test_an_instruction_that_comes_after_the_start_completes_the_episode(bench: Bench) -> None:
    policy = TinyPolicy(cameras=())
    node = bench.start(policy, instruction="", **SIM)
    bench.episode(EpisodeEvent.STARTED, "mine")
    until(lambda: node._episode is not None, "the start")
    bench.instruct("pick it up")
    feed(bench, [START, START + PERIOD])
    bench.instruct("no, the other one")
    feed(bench, [START + 2 * PERIOD])
    assert {report.episode_id for report in bench.reports} == {"mine"}
    assert [report.step for report in bench.reports] == [0, 1, 2]
    assert [seen.instruction for seen in policy.seen] == ["pick it up", "pick it up", "no, the other one"]
    bench.episode(EpisodeEvent.ENDED, "mine", stamp_ns=START + 3 * PERIOD)
    until(lambda: node._episode is None, "the end")
    bench.close()
    (folder,) = bench.folder.iterdir()
    assert [(e.event, e.episode_id) for e in BagReader(folder).episodes()] == [(EpisodeEvent.STARTED, "mine"), (EpisodeEvent.ENDED, "mine")]
    assert next(iter(BagReader(folder).episodes())).instruction == "pick it up"


def test_the_end_of_another_episode_is_counted_and_told(bench: Bench) -> None:
    node = bench.start(TinyPolicy(cameras=()), **SIM)
    said: list[str] = []
    node.teller = Teller(said.append)
    bench.episode(EpisodeEvent.STARTED, "mine", "go")
    until(lambda: node._episode is not None, "the start")
    feed(bench, [START])
    bench.episode(EpisodeEvent.ENDED, "yours")
    until(lambda: node.counters["bad_message"] == 1, "it is counted")
    assert any("'yours'" in line and "'mine'" in line for line in said)
    feed(bench, [START + PERIOD])
    assert [report.episode_id for report in bench.reports] == ["mine", "mine"]


def test_plain_publishers_of_instructions_are_heard(bench: Bench) -> None:
    plain = bench.hand.create_publisher(String, "instruction", 10)
    node = bench.start(TinyPolicy(cameras=()), instruction="", **SIM)
    until(lambda: plain.get_subscription_count() == 1, "it is heard once")
    plain.publish(String(data="plain"))
    until(lambda: node._instruction == "plain", "the instruction")


def test_latched_topics_give_each_message_once_and_in_order(bench: Bench) -> None:
    depth = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    latched = bench.hand.create_publisher(String, "talk", depth)
    plain = bench.hand.create_publisher(String, "talk", 10)
    latched.publish(String(data="before"))
    heard: list[str] = []
    node = bench.start(TinyPolicy(cameras=()), **SIM)
    listen_latched(node, String, "talk", lambda message: heard.append(message.data), qos.EPISODE)
    until(lambda: latched.get_subscription_count() == 2 and plain.get_subscription_count() == 1, "both are matched")
    until(lambda: heard == ["before"], "what was kept")
    for number in range(5):
        latched.publish(String(data=f"l{number}"))
        plain.publish(String(data=f"p{number}"))
    until(lambda: len(heard) >= 11, "all")
    plain.publish(String(data="p4"))
    until(lambda: heard[-1] == "p4" and len(heard) == 12, "the same text again is another message")
    assert [text for text in heard if text.startswith("l")] == [f"l{number}" for number in range(5)]
    assert [text for text in heard if text.startswith("p")] == [*(f"p{number}" for number in range(5)), "p4"]


@pytest.mark.parametrize(("fault", "value"), [("short", 7.0), ("nan", 7.0)])
def test_bad_actions_in_report_mode_are_told(bench: Bench, fault: str, value: float) -> None:
    node = bench.start(TinyPolicy({2: fault}, cameras=()), **SIM)
    feed(bench, [START + i * PERIOD for i in range(4)])
    reports = [dict(zip(report.metric, report.value, strict=True)) for report in bench.reports]
    assert [report["invalid/action"] for report in reports] == [0, 0, value, 0]
    assert "invalid_action" in bench.reports[2].active_alarms
    assert {len(action.action) for action in bench.actions} == {7}, "never of a wrong length"
    assert [action.step for action in bench.actions] == ([0, 1, 3] if fault == "short" else [0, 1, 2, 3])
    assert node.totals()["not_sent"] == (fault == "short")
    assert node.totals()["step_failed"] == 0


def test_withholding_is_released_by_the_service(bench: Bench) -> None:
    bench.start(TinyPolicy({2: "nan"}, cameras=()), gate__mode="hold", **SIM)
    client = bench.hand.create_client(Trigger, "vla_monitor/release")
    assert client.wait_for_service(30)
    feed(bench, [START + i * PERIOD for i in range(6)])
    assert [report.held for report in bench.reports] == [False, False, True, True, True, True]
    answer = client.call_async(Trigger.Request())
    until(answer.done, "the answer")
    assert answer.result().success
    assert "invalid_action" in answer.result().message
    feed(bench, [START + 6 * PERIOD])
    assert not bench.reports[-1].held
    again = client.call_async(Trigger.Request())
    until(again.done, "the answer")
    assert (again.result().success, again.result().message) == (True, "nothing was withheld")


def test_a_recording_that_stopped_is_an_alarm(bench: Bench) -> None:
    bench.folder.write_text("a file where the folder of bags should be")
    alarms: list[Alarm] = []
    bench.hand.create_subscription(Alarm, "vla_monitor/alarm", alarms.append, qos.ALARM)
    bench.start(TinyPolicy(cameras=()), **SIM)
    feed(bench, [START, START + PERIOD])
    until(lambda: bool(alarms), "the alarm")
    assert [(alarm.name, alarm.phase) for alarm in alarms] == [("recording_stopped", Alarm.ACTIVE)]
    assert str(bench.folder) in alarms[0].text
    assert alarm_from(alarms[0]).state.value is None


@pytest.mark.parametrize("trouble", ["empty", "absent"])
def test_bad_and_absent_pictures_are_told(bench: Bench, trouble: str) -> None:
    policy = TinyPolicy()
    bench.start(policy, **SIM)
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
        bench.start(TinyPolicy(cameras=()), export__port=holder.getsockname()[1], **SIM)
        feed(bench, [START, START + PERIOD])
        until(lambda: len(bench.diagnostics) == 3, "diagnostics")
        page, bag = bench.diagnostics["vla_monitor: page"], bench.diagnostics["vla_monitor: bag"]
        assert (page.level, bag.level) == (DiagnosticStatus.WARN, DiagnosticStatus.WARN)
        assert page.message.startswith("exporter off: ")
        assert str(bench.folder) in bag.message
        until(lambda: levels(bench, "steps") == [DiagnosticStatus.OK] or levels(bench, "steps") == [DiagnosticStatus.STALE], "steps are told")

"""Node `vla_monitor`: wraps a policy, sends its actions, and says every step how sure it is.

Subscribes (relative names): `camera/NAME/image_raw`, `tool_pose`, `joint_states`, `goal`, `instruction`, `episode`.
Publishes (private names): `~/action`, `~/policy_step`, `~/report`, `~/alarm`; and `/diagnostics` once a second. Service: `~/release`.

The executor's thread only collects; policy, monitor, recorder and exporter work in the loop's thread.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseStamped
from monitor_msgs.msg import Action, Alarm, Episode, PolicyStep, StepReport
from monitor_msgs.msg import Goal as GoalMsg
from rclpy.clock import Clock, ClockType  # type: ignore[attr-defined]
from rclpy.node import Node
from rclpy.parameter import Parameter
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import String
from std_srvs.srv import Trigger

from monitor import steps
from monitor.config import MonitorConfig
from monitor.engine import Monitor
from monitor.errors import MonitorError, StepError
from monitor.messages import EpisodeEvent, EpisodeRecord, episode_from
from monitor.policy import Observation, Policy, PolicySpec, load_policy
from monitor.ros import conversions, qos
from monitor.ros.assembly import Assembled, Assembler, Skipped
from monitor.ros.diagnostics import Diagnostics
from monitor.ros.gate import Gate
from monitor.ros.latched import listen_latched
from monitor.ros.loop import ControlLoop, Teller
from monitor.ros.parameters import read_parameters
from monitor.ros.runtime import python_log, ros, spin
from monitor.ros.sinks import ExporterSink, RecorderSink
from monitor.steps import AlarmState, Float

NAME = "vla_monitor"


class VlaMonitorNode(Node):
    """The node. `start` begins to act; `close` finishes what waits and closes the bag.

    Args:
        policy: instead of the one that the parameters name.
        overrides: parameters, over those of the command line.

    Raises:
        ConfigError: a parameter or the file is wrong.
        PolicyError, MissingPartError: the policy cannot be loaded.
    """

    def __init__(self, policy: Policy | None = None, *, overrides: Mapping[str, Any] | None = None, **node_options: Any) -> None:
        given = [Parameter(name, value=value) for name, value in (overrides or {}).items()]
        super().__init__(NAME, parameter_overrides=given, automatically_declare_parameters_from_overrides=True, **node_options)
        self.config: MonitorConfig = read_parameters(self)
        control = self.config.control
        self.policy = policy if policy is not None else load_policy(self.config.policy.name, **self.config.policy.options)
        rate = {} if control.rate_hz is None else {"control_hz": control.rate_hz}
        self.spec: PolicySpec = self.policy.spec.model_copy(update=rate)  # one rate for policy, monitor, bag and page
        self.monitor = Monitor(self.spec, self.config)
        self.config = self.monitor.config  # with the calibrated thresholds in it, so that the bag needs no other file
        warm_up(self.spec, self.config)
        self.teller = Teller(self._say)
        self.counters: Counter[str] = Counter(skipped=0, bad_picture=0, bad_message=0)
        self._period_s = 1.0 / self.spec.control_hz
        grace_s, timer = min(self._period_s, control.image_timeout_s), control.trigger == "timer"
        self._assembler = Assembler(control.parts, self.spec.cameras, control.image_timeout_s, grace_s, timer=timer)
        self._episode: EpisodeRecord | None = None
        self._instructed = True  # False: the episode takes its instruction from the topic
        self._begun = False
        self._step = 0
        self._runs = 0
        self._instruction = ""
        self._last: tuple[Assembled, float] | None = None
        self._make_publishers()
        self.recorder = RecorderSink(self.config, self.spec, self._say, self._recording_stopped)
        self._gate = Gate(self.config.gate, self.spec)
        self.loop = ControlLoop(self.policy, self.monitor, self._gate, self, say=self._say)
        self.exporter = ExporterSink(self.config, self.monitor, self.spec, self.totals)
        self.loop.sinks = (self.recorder, self.exporter)

    def start(self) -> None:
        """Open bag and page, subscribe, and act."""
        self.exporter.start()
        self.recorder.start()
        self.loop.start()
        self._subscribe()
        self.create_service(Trigger, "~/release", self._on_release)
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        if self.config.control.trigger == "timer":
            self.create_timer(self._period_s, self._tick)
        else:
            self.create_timer(self._period_s / 4, self._advance, clock=steady)
        self._diagnostics = Diagnostics(self)
        self.create_timer(1.0, self._diagnostics.publish, clock=steady)
        page = self.exporter.status_text
        self.get_logger().info(f"ready: policy {self.spec.name}, trigger {self.config.control.trigger}, page {page}, bag {self.recorder.status_text}")

    def close(self) -> None:
        """End the episode, do what waits, close bag and page, and say how it went."""
        self._end_unknown()
        if not self.loop.stop():
            self.get_logger().error("the policy does not return; its last step is lost")
        self.recorder.close()
        self.exporter.close()
        median, tail = self.loop.latency_s(0.5), self.loop.latency_s(0.99)
        spent = "" if median is None or tail is None else f", observation to action {median * 1e3:.1f} ms (median), {tail * 1e3:.1f} ms (p99)"
        lost = {name: count for name, count in self.totals().items() if count and name != "done"}
        self.get_logger().info(f"ended after {self.loop.counters['done']} steps{spent}{''.join(f', {n} {c}' for n, c in lost.items())}")

    def totals(self) -> dict[str, int]:
        """Running totals of node, loop and recorder by name; a closed set."""
        return {**self.counters, **self.loop.counters, "late_observation": self._assembler.late, "not_recorded": self.recorder.dropped}

    def action(self, episode_id: str, step: int, action: Float, held: bool, stamp_ns: int) -> None:
        """Publish an action. Loop's thread."""
        self._actions.publish(conversions.action_message(episode_id, step, action, held, conversions.to_stamp(stamp_ns)))

    def result(self, step: steps.PolicyStep, report: steps.StepReport, held: bool, stamp_ns: int) -> None:
        """Publish a step and its report. Loop's thread."""
        stamp = self.get_clock().now().to_msg()
        self._steps.publish(conversions.step_message(step, stamp))
        self._reports.publish(conversions.report_message(report, held, stamp))

    def alarm(self, alarm: AlarmState, report: steps.StepReport, stamp_ns: int) -> None:
        """Publish an alarm. Loop's thread."""
        self._alarms.publish(conversions.alarm_message(alarm, report, self.get_clock().now().to_msg()))

    def _recording_stopped(self, reason: str, report: steps.StepReport | None) -> None:
        """Tell the operator. Main thread or loop's."""
        now = self.get_clock().now()
        seconds = conversions.to_seconds(now.nanoseconds)
        self._alarms.publish(conversions.recording_stopped_message(reason, report, seconds, now.to_msg()))

    def _say(self, text: str) -> None:
        self.get_logger().warning(text)

    def _make_publishers(self) -> None:
        self._actions = self.create_publisher(Action, "~/action", qos.ACTION)
        self._steps = self.create_publisher(PolicyStep, "~/policy_step", qos.REPORT)
        self._reports = self.create_publisher(StepReport, "~/report", qos.REPORT)
        self._alarms = self.create_publisher(Alarm, "~/alarm", qos.ALARM)

    def _subscribe(self) -> None:
        sensor = qos.SENSOR_RELIABLE if self.config.control.reliable_input else qos.SENSOR
        listen_latched(self, Episode, "episode", self._on_episode, qos.EPISODE)  # first: of two messages that wait, the executor takes this one
        listen_latched(self, String, "instruction", self._on_instruction, qos.INSTRUCTION_HEARD)
        self.create_subscription(PoseStamped, "tool_pose", self._on_pose, sensor)
        self.create_subscription(JointState, "joint_states", self._on_joints, sensor)
        self.create_subscription(GoalMsg, "goal", self._on_goal, sensor)
        for camera in self.spec.cameras:
            self.create_subscription(Image, conversions.camera_topic(camera), partial(self._on_image, camera), sensor)

    def _on_release(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success, response.message = True, self._gate.release()
        self.get_logger().info(f"gate: {response.message}")
        return response

    def _on_image(self, camera: str, message: Image) -> None:
        try:
            picture = conversions.image_array(message)
        except StepError as error:
            self.counters["bad_picture"] += 1
            self.teller.tell("picture", f"camera {camera}: {error}")
            return
        self._put(f"camera/{camera}", message, picture)

    def _on_pose(self, message: PoseStamped) -> None:
        self._put("tool_pose", message, conversions.pose_arrays(message))

    def _on_joints(self, message: JointState) -> None:
        control = self.config.control
        self._put("joint_states", message, conversions.joints_arrays(message, control.gripper_joint, control.gripper_closed, control.gripper_open))

    def _on_goal(self, message: GoalMsg) -> None:
        self._put("goal", message, conversions.goal_record(message))

    def _put(self, name: str, message: Any, value: object) -> None:
        pushed = self._assembler.put(name, conversions.to_nanoseconds(message.header.stamp), value, time.monotonic())
        if self.config.control.trigger == "observation":
            if pushed is not None:
                self._skip(pushed)
            self._advance()

    def _on_instruction(self, message: String) -> None:
        self._instruction = message.data
        if self._episode is None or self._episode.instruction == message.data:
            return
        if not self._instructed:
            self._episode = replace(self._episode, instruction=message.data)
        elif not self.config.control.wait_for_episode:
            self._end_unknown()  # the next observation begins a new attempt

    def _on_episode(self, message: Episode) -> None:
        try:
            record = episode_from(message)
        except StepError as error:
            self.counters["bad_message"] += 1
            self.teller.tell("episode", f"episode event ignored: {error}")
            return
        if record.event is EpisodeEvent.ENDED:
            if self._episode is not None and self._episode.episode_id == record.episode_id:
                self._finish(record, conversions.to_nanoseconds(message.header.stamp))
            else:
                self.counters["bad_message"] += 1
                running = "none" if self._episode is None else repr(self._episode.episode_id)
                self.teller.tell("episode", f"end of episode {record.episode_id!r} ignored: it is not the running one ({running})")
        elif self._episode is None or self._episode.episode_id != record.episode_id:
            self._end_unknown()
            self._instructed = bool(record.instruction.strip())
            self._episode = record if self._instructed else replace(record, instruction=self._instruction)
            self._begun, self._step = False, 0
            begin_ns, early = conversions.to_nanoseconds(message.header.stamp), self._last
            self._assembler.reset(begin_ns)
            if early is not None and early[0].stamp_ns >= begin_ns > 0:
                self._dispatch(*early)  # its first observation came before this event
            elif self.config.control.trigger == "observation":
                self._advance()

    def _end_unknown(self) -> None:
        """End an episode whose outcome nobody told."""
        episode = self._episode
        if episode is not None:
            ended = EpisodeRecord(
                event=EpisodeEvent.ENDED,
                time=conversions.to_seconds(self._last[0].stamp_ns) if self._last else episode.time,
                episode_id=episode.episode_id,
                task=episode.task,
                instruction=episode.instruction,
                perturbation=episode.perturbation,
                seed=episode.seed,
                steps=self._step,
            )
            self._finish(ended, 0)

    def _finish(self, ended: EpisodeRecord, end_ns: int) -> None:
        """End the episode; an observation that waits and is younger belongs to the next one."""
        if self._begun:
            self.loop.episode(ended)
        self._episode, self._begun = None, False
        self._assembler.reset(end_ns)

    def _advance(self) -> None:
        """Act on an observation that is complete, or give it up."""
        if self._episode is None and self.config.control.wait_for_episode:
            return
        now = time.monotonic()
        found = self._assembler.ready(now)
        if isinstance(found, Skipped):
            self._skip(found)
        elif found is not None:
            self._dispatch(found, now)

    def _tick(self) -> None:
        if self._episode is None and self.config.control.wait_for_episode:
            return
        now = time.monotonic()
        found = self._assembler.latest(self.get_clock().now().nanoseconds, now)
        if isinstance(found, Skipped):
            self._skip(found)
        else:
            self._dispatch(found, now)

    def _skip(self, skipped: Skipped) -> None:
        self.counters["skipped"] += 1
        if self._episode is not None:
            self._step += 1
        self.teller.tell("skipped", f"a step was skipped, the policy was not called. {skipped.reason}")

    def _dispatch(self, found: Assembled, now: float) -> None:
        """Make the observation and hand it over."""
        self._last = (found, now)
        instruction = self._instruction if self._episode is None else self._episode.instruction
        if not instruction.strip():
            self._skip(Skipped(found.stamp_ns, "missing: instruction"))
            return
        seconds = conversions.to_seconds(found.stamp_ns)
        if self._episode is None:
            self._runs += 1
            name = f"run-{found.stamp_ns // conversions.NANOSECONDS}-{self._runs}"
            self._episode = EpisodeRecord(event=EpisodeEvent.STARTED, time=seconds, episode_id=name, instruction=instruction)
            self._instructed, self._begun, self._step = True, False, 0
        if not self._begun:
            self._begun = True
            self.loop.episode(self._episode)
        self.loop.offer(self._observation(found, self._episode, seconds), found.stamp_ns, now)
        self._step += 1

    def _observation(self, found: Assembled, episode: EpisodeRecord, seconds: float) -> Observation:
        parts = found.parts
        pictures = {camera: parts[f"camera/{camera}"] for camera in self.spec.cameras}
        position, quaternion = parts["tool_pose"][1] if "tool_pose" in parts else (None, None)
        joints, gripper = parts["joint_states"][1] if "joint_states" in parts else (None, None)
        return Observation(
            time=seconds,
            episode_id=episode.episode_id,
            step=self._step,
            instruction=episode.instruction,
            images={camera: picture for camera, (_, picture) in pictures.items()},
            image_times={camera: conversions.to_seconds(stamp) for camera, (stamp, _) in pictures.items()},
            tcp_position=position,
            tcp_quaternion=quaternion,
            joints=joints,
            gripper=gripper,
            goal=parts["goal"][1] if "goal" in parts else None,
        )


def warm_up(spec: PolicySpec, config: MonitorConfig) -> None:
    """Run a monitor of its own over a few steps, so that kernels are compiled before the first real one."""
    monitor = Monitor(spec, config)
    start, stop = spec.token_support or (0, 0)
    logits = np.zeros((spec.action_dim, stop - start), np.float32) if spec.token_kind == "per_dimension" else None
    for i in range(config.window + 1):
        monitor.update(
            steps.PolicyStep(
                time=i / spec.control_hz,
                episode_id="warm-up",
                step=i,
                action=np.full(spec.action_dim, 0.001 * i),
                token_logits=logits,
                token_ids=None if logits is None else np.full(len(logits), start),
                tcp_position=np.full(3, 0.001 * i),
                tcp_quaternion=np.array([1.0, 0.0, 0.0, 0.0]),
                joints=np.full(7, 0.001 * i),
                gripper=0.5,
            )
        )


def run(policy: Policy | None = None, arguments: Sequence[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM. Returns 0, or 2 when settings or policy are wrong."""
    with ros(arguments) as stop:
        try:
            node = VlaMonitorNode(policy)
        except MonitorError as error:
            sys.stderr.write(f"{NAME}: {error}\n")
            return 2
        with python_log(node):
            try:
                node.start()
                spin(node, stop)
            finally:
                node.close()
        node.destroy_node()
    return 0


if __name__ == "__main__":
    sys.exit(run())

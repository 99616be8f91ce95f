"""Node `sim_robot`: plays a registered robot over ROS topics, one episode after the other, and ends.

Publishes `camera/NAME/image_raw`, `tool_pose`, `joint_states`, `goal`, `instruction`, `episode`; subscribes to `action`. All parts of one step carry
one stamp (a delayed picture carries its own, older one), and an action answers the stamp that it repeats. An action that does not come in time is
replaced by standing still; the robot goes on without a monitor.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseStamped
from monitor_msgs.msg import Action, Episode
from monitor_msgs.msg import Goal as GoalMsg
from rcl_interfaces.msg import ParameterDescriptor
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.publisher import Publisher
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import String

from monitor.errors import ConfigError, MonitorError
from monitor.messages import EpisodeEvent, EpisodeRecord, Outcome
from monitor.policy import Observation, Robot, load_robot
from monitor.ros import conversions, qos
from monitor.ros.runtime import ros, spin
from monitor.steps import Float

NAME = "sim_robot"
MISSES_BEFORE_DEAD = 3  # then the robot no longer waits longer than a control period
CAMERA_GRACE_S = 2.0
LISTENERS_S = 10.0
EPISODE_GAP_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One episode to run."""

    task: str
    seed: int = 0
    perturbation: str | None = None


def parse_attempt(text: str) -> Attempt:
    """`TASK[:SEED[:PERTURBATION]]`. Raises ConfigError for anything else."""
    task, seed, perturbation, *rest = [*text.split(":"), "", ""]
    try:
        if not task or any(rest):
            raise ValueError
        return Attempt(task, int(seed or 0), perturbation or None)
    except ValueError:
        raise ConfigError(f"episode {text!r}: expected TASK[:SEED[:PERTURBATION]], for example pick_up:3:weak_gripper") from None


class SimRobotNode(Node):
    """The node. `play` runs in the main thread (it owns the renderer), callbacks in another.

    Args:
        robot: instead of the one that the parameters name.
    """

    def __init__(self, robot: Robot | None = None, **node_options: Any) -> None:
        super().__init__(NAME, **node_options)
        self._robot_name: str = self._parameter("robot", "sim", "robot, by the name it is registered under")
        self._episodes: list[str] = self._parameter("episodes", [""], "TASK[:SEED[:PERTURBATION]] each; empty: each task once")
        self._rate_factor: float = self._parameter("rate_factor", 1.0, "speed against real time; 0 as fast as actions come")
        self._timeout_s: float = self._parameter("action_timeout_s", 2.0, "s; longest wait for an action")
        self._first_timeout_s: float = self._parameter(
            "first_action_timeout_s", 30.0, "s; the same at an episode's first step, when policies warm up"
        )
        self._monitor_timeout_s: float = self._parameter("monitor_timeout_s", 120.0, "s; longest wait for somebody who sends actions, at start")
        self._action_size: int = self._parameter("action_size", 7, "numbers in an action; the last one is the gripper's opening")
        self._listeners: int = self._parameter(
            "listeners", 0, "nodes beside vla_monitor that must hear the episodes before the first begins, if they come in 10 s"
        )
        self._clock_on: bool = self._parameter("publish_clock", False, "publish /clock with the stamps of the observations")
        self._robot = robot if robot is not None else load_robot(self._robot_name)
        self.counters: Counter[str] = Counter(steps=0, no_action=0, not_finite=0, wrong_length=0, held=0, episodes=0, success=0)
        self._answer: Action | None = None
        self._answered = threading.Condition()
        self._awaited = (-1, "")
        self._misses = 0
        self._stop = threading.Event()
        self._gripper: float | None = None  # as it was last told
        self._last_ns = 0
        self._stem = time.strftime("%Y%m%d-%H%M%S")
        self._publish = {
            "tool_pose": self.create_publisher(PoseStamped, "tool_pose", qos.SENSOR_RELIABLE),
            "joint_states": self.create_publisher(JointState, "joint_states", qos.SENSOR_RELIABLE),
            "goal": self.create_publisher(GoalMsg, "goal", qos.SENSOR_RELIABLE),
        }
        self._cameras: dict[str, Publisher[Image]] = {}
        self._instruction = self.create_publisher(String, "instruction", qos.INSTRUCTION)
        self._episode = self.create_publisher(Episode, "episode", qos.EPISODE)
        self._clock_out = self.create_publisher(Clock, "/clock", 10) if self._clock_on else None
        self.create_subscription(Action, "action", self._on_action, qos.ACTION)

    def attempts(self) -> list[Attempt]:
        """What to run. Raises ConfigError for a text that is no episode, or a task or perturbation that the robot lacks."""
        texts = [text for text in self._episodes if text]
        attempts = [parse_attempt(text) for text in texts] or [Attempt(task) for task in self._robot.tasks]
        for attempt in attempts:
            if attempt.task not in self._robot.tasks:
                raise ConfigError(f"episode: robot {self._robot_name!r} has no task {attempt.task!r}; tasks: {', '.join(self._robot.tasks)}")
            if attempt.perturbation and attempt.perturbation not in self._robot.perturbations:
                known = ", ".join(self._robot.perturbations)
                raise ConfigError(f"episode: robot {self._robot_name!r} has no perturbation {attempt.perturbation!r}; perturbations: {known}")
        return attempts

    def stop(self) -> None:
        """End `play` soon. Any thread."""
        self._stop.set()
        with self._answered:
            self._answered.notify_all()

    def play(self) -> bool:
        """Run all episodes. False if nobody came to send actions."""
        attempts = self.attempts()
        first = self._robot.reset(attempts[0].task, attempts[0].seed, perturbation=attempts[0].perturbation)
        self._cameras = {name: self.create_publisher(Image, conversions.camera_topic(name), qos.SENSOR_RELIABLE) for name in first.images}
        if not self._wait_for_monitor():
            self.get_logger().error(f"nobody sends actions after {self._monitor_timeout_s:g} s; is vla_monitor running in this domain?")
            return False
        for number, attempt in enumerate(attempts):
            if self._stop.is_set():
                break
            self._run(attempt, f"{self._stem}-{number + 1:03d}")
        self.get_logger().info("done: " + ", ".join(f"{name} {count}" for name, count in self.counters.items()))
        return True

    def flush(self) -> None:
        """Wait until the last episode event has arrived everywhere."""
        self._episode.wait_for_all_acked(Duration(seconds=2))

    def close(self) -> None:
        """Free the robot."""
        self._robot.close()

    def _parameter(self, name: str, default: Any, text: str) -> Any:
        return self.declare_parameter(name, default, ParameterDescriptor(description=text, read_only=True)).value

    def _wait_for_monitor(self) -> bool:
        """Until somebody hears the robot and sends actions: what is published before would be lost. A camera may stay unheard."""
        heard = [*self._publish.values(), self._episode]
        action = self.resolve_topic_name("action")
        if not self._until(lambda: self.count_publishers(action) > 0 and all(p.get_subscription_count() for p in heard), self._monitor_timeout_s):
            return self._stop.is_set()
        self._until(lambda: all(p.get_subscription_count() for p in self._cameras.values()), CAMERA_GRACE_S)
        self._until(lambda: self._hearing() > self._listeners, LISTENERS_S)
        return True

    def _hearing(self) -> int:
        """Nodes that hear the episodes."""
        return len({(end.node_namespace, end.node_name) for end in self.get_subscriptions_info_by_topic(self._episode.topic_name)})

    def _until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for the condition, the time-out or the end."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline or self._stop.wait(0.05):
                return False
        return True

    def _run(self, attempt: Attempt, episode_id: str) -> None:
        observation = self._robot.reset(attempt.task, attempt.seed, perturbation=attempt.perturbation, episode_id=episode_id)
        base_ns = max(self.get_clock().now().nanoseconds if not self._clock_on else 0, self._last_ns + EPISODE_GAP_NS)
        started = EpisodeRecord(
            event=EpisodeEvent.STARTED,
            time=conversions.to_seconds(base_ns),
            episode_id=episode_id,
            task=attempt.task,
            instruction=observation.instruction,
            perturbation=attempt.perturbation or "",
            seed=attempt.seed,
        )
        self._gripper = None
        self._instruction.publish(String(data=observation.instruction))
        self._episode.publish(conversions.episode_message(started, conversions.to_stamp(base_ns)))
        due = time.monotonic()
        period_s = 1.0 / self._robot.control_hz / self._rate_factor if self._rate_factor > 0 else 0.0
        steps = 0
        while not self._robot.done and not self._stop.is_set():
            stamp_ns = base_ns + round(observation.time * 1e9)
            action = self._ask(observation, episode_id, stamp_ns, base_ns, self._first_timeout_s if steps == 0 else self._timeout_s)
            due = max(due + period_s, time.monotonic() - period_s)
            self._stop.wait(max(0.0, due - time.monotonic()))
            observation = self._robot.step(action)
            steps += 1
            self._last_ns = stamp_ns
        finished = self._robot.done
        outcome = (Outcome.SUCCESS if self._robot.success else Outcome.FAILURE) if finished else Outcome.UNKNOWN
        end_ns = base_ns + round(observation.time * 1e9)
        ended = replace(started, event=EpisodeEvent.ENDED, time=conversions.to_seconds(end_ns), outcome=outcome, steps=steps)
        self._episode.publish(conversions.episode_message(ended, conversions.to_stamp(end_ns)))
        self._last_ns = end_ns
        self.counters["episodes"] += 1
        self.counters["success"] += outcome is Outcome.SUCCESS
        self.get_logger().info(f"episode {episode_id} ({attempt.task}, seed {attempt.seed}): {outcome.name.lower()} after {steps} steps")

    def _ask(self, observation: Observation, episode_id: str, stamp_ns: int, base_ns: int, timeout_s: float) -> Float:
        """Publish the observation and wait for its action."""
        with self._answered:
            self._answer, self._awaited = None, (stamp_ns, episode_id)
        self._observe(observation, stamp_ns, base_ns)
        if self._misses >= MISSES_BEFORE_DEAD:
            timeout_s = 1.0 / self._robot.control_hz
        answer = self._wait_for_answer(timeout_s)
        self.counters["steps"] += 1
        if answer is None:
            self._misses += 1
            self.counters["no_action"] += 1
            text = f"no action within {timeout_s:g} s at step {observation.step} of {episode_id}: standing still"
            self.get_logger().warning(text, throttle_duration_sec=5.0)
            return self._stand_still(observation)
        self._misses = 0
        self.counters["held"] += answer.held
        action = conversions.action_array(answer)
        wrong = self._fault(action)
        if wrong:
            self.counters[wrong] += 1
            text = f"action of step {observation.step} is {wrong.replace('_', ' ')} ({len(action)} numbers): standing still"
            self.get_logger().warning(text, throttle_duration_sec=5.0)
            return self._stand_still(observation)
        self._gripper = float(action[-1])
        return action

    def _fault(self, action: Float) -> str:
        """Why an action cannot be carried out, as the name of a counter; empty if it can."""
        if len(action) != self._action_size:
            return "wrong_length"
        return "" if np.isfinite(action).all() else "not_finite"

    def _stand_still(self, observation: Observation) -> Float:
        """No motion, the gripper as it was told, else as it is."""
        still = np.zeros(self._action_size)
        gripper = observation.gripper if self._gripper is None else self._gripper
        if gripper is not None and np.isfinite(gripper):
            still[-1] = gripper
        return still

    def _wait_for_answer(self, timeout_s: float) -> Action | None:
        with self._answered:
            self._answered.wait_for(lambda: self._answer is not None or self._stop.is_set(), timeout_s)
            return self._answer

    def _observe(self, observation: Observation, stamp_ns: int, base_ns: int) -> None:
        stamp = conversions.to_stamp(stamp_ns)
        for camera, picture in observation.images.items():
            taken = base_ns + round(observation.image_times.get(camera, observation.time) * 1e9)
            if camera in self._cameras:
                self._cameras[camera].publish(conversions.image_message(picture, camera, conversions.to_stamp(taken)))
        if self._clock_out is not None:
            self._clock_out.publish(Clock(clock=stamp))
        if observation.joints is not None:
            self._publish["joint_states"].publish(conversions.joints_message(observation.joints, observation.gripper, stamp))
        if observation.goal is not None:
            self._publish["goal"].publish(conversions.goal_message(observation.goal, stamp))
        if observation.tcp_position is not None and observation.tcp_quaternion is not None:
            self._publish["tool_pose"].publish(conversions.pose_message(observation.tcp_position, observation.tcp_quaternion, stamp))

    def _on_action(self, message: Action) -> None:
        with self._answered:
            if (conversions.to_nanoseconds(message.header.stamp), message.episode_id) == self._awaited:
                self._answer = message
                self._answered.notify_all()


def run(robot: Robot | None = None, arguments: Sequence[str] | None = None) -> int:
    """Play until the last episode or a signal. Returns 0; 1 when nobody sent actions; 2 when settings are wrong."""
    with ros(arguments) as stop:
        try:
            node = SimRobotNode(robot)
            node.attempts()
        except MonitorError as error:
            sys.stderr.write(f"{NAME}: {error}\n")
            return 2
        ended = threading.Event()
        spinner = threading.Thread(target=spin, args=(node, ended), name="sim-robot-spin")
        watcher = threading.Thread(target=_stop_after, args=(stop, node), name="sim-robot-stop", daemon=True)
        spinner.start()
        watcher.start()
        try:
            good = node.play()
            node.flush()
        finally:
            ended.set()
            spinner.join()
            node.close()
            node.destroy_node()
    return 0 if good else 1


def _stop_after(stop: threading.Event, node: SimRobotNode) -> None:
    stop.wait()
    node.stop()


if __name__ == "__main__":
    sys.exit(run())

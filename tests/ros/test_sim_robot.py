"""The simulated robot's node in this process: bad answers, and whom it waits for."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from geometry_msgs.msg import PoseStamped
from monitor_msgs.msg import Action, Episode
from monitor_msgs.msg import Goal as GoalMsg
from processes import listening, new_domain, until
from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from tiny import TinyRobot

from monitor.ros import conversions, qos
from monitor.ros.runtime import local_dds, spin
from monitor.ros.sim_robot import SimRobotNode


class Stage:
    """The robot's node, and one that answers its observations with what it is told."""

    def __init__(self) -> None:
        local_dds()
        self.domain = new_domain()
        self.context = Context()
        self.context.init(args=[], domain_id=self.domain)
        self.answers: list[list[float] | None] = []
        self.hand = Node("hand", context=self.context, use_global_arguments=False)
        self.actions = self.hand.create_publisher(Action, "action", qos.ACTION)
        self.episodes: list[Episode] = []
        self.poses = 0
        self.hand.create_subscription(PoseStamped, "tool_pose", self._on_pose, qos.SENSOR_RELIABLE)
        self.hand.create_subscription(JointState, "joint_states", lambda message: None, qos.SENSOR_RELIABLE)
        self.hand.create_subscription(GoalMsg, "goal", lambda message: None, qos.SENSOR_RELIABLE)
        self.hand.create_subscription(Episode, "episode", self.episodes.append, qos.EPISODE)
        self.stop = threading.Event()
        self.threads: list[threading.Thread] = []
        self.node: SimRobotNode | None = None

    def start(self, robot: TinyRobot, **parameters: object) -> SimRobotNode:
        given = {"episodes": ["move:3"], "rate_factor": 0.0, "action_timeout_s": 0.3, "first_action_timeout_s": 5.0, **parameters}
        overrides = [Parameter(name, value=value) for name, value in given.items()]
        self.node = SimRobotNode(robot, context=self.context, parameter_overrides=overrides, use_global_arguments=False)
        for node in (self.node, self.hand):
            self.run(spin, node, self.stop)
        return self.node

    def run(self, *call: object) -> threading.Thread:
        thread = threading.Thread(target=call[0], args=call[1:])  # type: ignore[arg-type]
        thread.start()
        self.threads.append(thread)
        return thread

    def close(self) -> None:
        self.stop.set()
        if self.node is not None:
            self.node.stop()
        for thread in self.threads:
            thread.join()
        if self.node is not None:
            self.node.destroy_node()
        self.hand.destroy_node()
        self.context.try_shutdown()

    def _on_pose(self, message: PoseStamped) -> None:
        number, self.poses = self.poses, self.poses + 1
        answer = self.answers[number] if number < len(self.answers) else [0.0] * 7
        if answer is not None and self.node is not None:
            self.actions.publish(conversions.action_message(self.node._awaited[1], number, np.array(answer), False, message.header.stamp))


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


def test_bad_answers_make_the_robot_stand_still_with_its_gripper_as_it_is(stage: Stage) -> None:
    good = [0.01, 0, 0, 0, 0, 0, 0.9]
    stage.answers = [[], [0.1, 0.2], [0.1] * 9, None, [float("nan")] * 7, good, [], good]
    robot = TinyRobot(steps=8)
    node = stage.start(robot)
    assert node.play()
    assert (node.counters["wrong_length"], node.counters["not_finite"], node.counters["no_action"]) == (4, 1, 1)
    measured, told = [0, 0, 0, 0, 0, 0, 0.5], [0, 0, 0, 0, 0, 0, 0.9]
    assert [action.tolist() for action in robot.actions] == [measured] * 5 + [good, told, good]
    assert node.counters["success"] == 1


def test_the_robot_waits_for_the_listeners_that_it_is_told_of(stage: Stage) -> None:
    node = stage.start(TinyRobot(steps=3), listeners=1)
    playing = stage.run(node.play)
    until(lambda: stage.hand.count_publishers("camera/front/image_raw") == 1, "it has begun to wait")
    playing.join(3.0)
    assert playing.is_alive()
    assert not stage.episodes
    with listening(stage.domain) as heard:
        playing.join(30)
        assert not playing.is_alive()
        until(lambda: len(heard.episodes) == 2, "both events")

"""The scripted expert: it succeeds, recovers, and what it does is measured truthfully."""

import json

import numpy as np
import pytest

from policies.sim import ACTION_HIGH, ACTION_LOW, Expert, SimRobot
from policies.sim.measure import main, measure_expert
from policies.sim.tasks import FRAMES, LIFT, TASKS


@pytest.fixture(scope="module")
def robot():
    return SimRobot(render=False)


@pytest.mark.parametrize("task", TASKS)
def test_it_succeeds(task):
    result = measure_expert(task, 10)
    assert result.failed == []
    assert 10 <= result.steps <= 45


@pytest.mark.parametrize("task", TASKS)
def test_it_recovers_from_disturbed_actions(task):
    assert measure_expert(task, 6, noise=0.1).success >= 5 / 6


def test_its_actions_respect_the_limits_and_use_the_gripper(robot):
    expert = Expert(robot)
    robot.reset("put_in", 1)
    actions = []
    while not robot.done:
        actions.append(expert.act())
        robot.step(actions[-1])
    taken = np.array(actions)
    assert (taken >= ACTION_LOW).all()
    assert (taken <= ACTION_HIGH).all()
    assert set(taken[:, 6]) == {0.0, 1.0}


def test_success_comes_after_five_lifted_frames_with_a_grasp(robot):
    expert = Expert(robot)
    start = robot.reset("pick_up", 4)
    lifted = []
    while not robot.done:
        observation = robot.step(expert.act())
        lifted.append(observation.goal.object_position[2] - start.goal.object_position[2] >= LIFT)
    assert not start.goal.grasped
    assert observation.goal.grasped
    assert lifted[-FRAMES["pick_up"] :] == [True] * FRAMES["pick_up"]
    assert sum(lifted) == FRAMES["pick_up"]


def test_it_fetches_a_dropped_object_again(robot):
    expert = Expert(robot)
    observation = robot.reset("put_on", 0)
    while not (observation.goal.grasped and observation.goal.object_position[2] > 0.09):
        observation = robot.step(expert.act())
    for _ in range(4):
        observation = robot.step([0, 0, 0, 0, 0, 0, 1])
    assert not observation.goal.grasped
    while not robot.done:
        robot.step(expert.act())
    assert robot.success


def test_the_target_is_part_of_the_goal(robot):
    goal = robot.reset("put_in", 0).goal
    np.testing.assert_allclose(goal.target_position[:2], robot.scene.places["tray"][:2])
    np.testing.assert_allclose(goal.object_position[:2], robot.scene.places[robot.scene.object][:2])
    assert robot.reset("pick_up", 0).goal.target_position is None


def test_measure_prints_json(capsys):
    main(["--seeds", "2", "--tasks", "pick_up", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["expert"][0]["success"] == 1.0
    assert set(answer["cost"]) == {"step_ms", "picture_ms"}

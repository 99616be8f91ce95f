"""Each perturbation does what its description says, from its step on, and nothing before."""

import numpy as np
import pytest

from policies.sim import Expert, SimRobot
from policies.sim.perturbations import PERTURBATIONS, draw
from policies.sim.tasks import TASKS

STAY = np.array([0.0, 0, 0, 0, 0, 0, 1])


@pytest.fixture(scope="module")
def robot():
    made = SimRobot(image_size=48)
    yield made
    made.close()


def watch(robot, name, seed=3, task="put_on", steps=18):
    """Observations of an attempt whose hand moves slowly."""
    seen = [robot.reset(task, seed, perturbation=name)]
    seen += [robot.step([0.004, 0.004, 0.002, 0, 0, 0, 1]) for _ in range(steps)]
    return seen


def test_they_are_listed_seeded_and_named_in_the_episode(robot):
    assert robot.perturbations == PERTURBATIONS
    for name in PERTURBATIONS:
        assert draw(name, 4) == draw(name, 4) != draw(name, 5)
        assert robot.reset("pick_up", 1, perturbation=name).episode_id == f"pick_up-1-{name}"


def test_the_next_attempt_is_clean_again(robot):
    clean = watch(robot, None)
    for name in ("light_changed", "weak_gripper", "camera_covered"):
        watch(robot, name)
        again = watch(robot, None)
        np.testing.assert_array_equal(again[-1].images["front"], clean[-1].images["front"])
        np.testing.assert_array_equal(again[-1].tcp_position, clean[-1].tcp_position)


@pytest.mark.parametrize("task", TASKS)
def test_object_moved(robot, task):
    for seed in range(4):
        positions = np.array([seen.goal.object_position for seen in watch(robot, "object_moved", seed, task)])
        jumps = np.linalg.norm(np.diff(positions, axis=0), axis=1)
        start = robot.perturbation.start
        assert 6 <= start <= 12
        assert 0.04 < jumps[start - 1] < 0.11
        assert np.delete(jumps, start - 1).max() < 0.002
        others = [place for name, place in robot.positions().items() if name != robot.scene.object]
        assert all(np.hypot(*(place - positions[-1])[:2]) > 0.09 for place in others)


def test_camera_covered(robot):
    seen = watch(robot, "camera_covered")
    start = robot.perturbation.start
    assert [observation.images["front"].max() == 0 for observation in seen] == [step >= start for step in range(len(seen))]
    assert all(observation.images["wrist"].max() > 0 for observation in seen)


def test_light_changed(robot):
    clean, seen = watch(robot, None), watch(robot, "light_changed")
    start = robot.perturbation.start
    for step, (a, b) in enumerate(zip(clean, seen, strict=True)):
        ratio = b.images["front"].mean() / a.images["front"].mean()
        assert ratio < 0.45 if step >= start else ratio == 1


@pytest.mark.parametrize("task", TASKS)
def test_wrong_instruction(robot, task):
    for seed in range(10):
        observation = robot.reset(task, seed, perturbation="wrong_instruction")
        assert robot.scene.object not in observation.instruction
        assert any(name in observation.instruction for name in robot.scene.distractors)
        np.testing.assert_allclose(observation.goal.object_position[:2], robot.scene.places[robot.scene.object][:2])


def test_delayed_observations(robot):
    clean, seen = watch(robot, None), watch(robot, "delayed_observations")
    delay = robot.perturbation.delay
    assert 4 <= delay <= 6
    for step, observation in enumerate(seen):
        taken = max(step - delay, 0)
        assert observation.image_times["front"] == pytest.approx(taken / 10)
        np.testing.assert_array_equal(observation.images["front"], clean[taken].images["front"])
        np.testing.assert_array_equal(observation.tcp_position, clean[step].tcp_position)


def test_frozen_observations(robot):
    clean, seen = watch(robot, None), watch(robot, "frozen_observations")
    start = robot.perturbation.start
    for step, observation in enumerate(seen):
        taken = min(step, start)
        assert observation.image_times["wrist"] == pytest.approx(taken / 10)
        np.testing.assert_array_equal(observation.images["wrist"], clean[taken].images["wrist"])


def test_weak_gripper_makes_the_expert_fail_often():
    robot = SimRobot(render=False)
    expert = Expert(robot)
    succeeded = 0
    for seed in range(8):
        robot.reset("put_on", seed, perturbation="weak_gripper")
        while not robot.done:
            robot.step(expert.act())
        succeeded += robot.success
    assert succeeded <= 5

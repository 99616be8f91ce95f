"""SimRobot: protocol, observations, control, determinism and errors."""

import numpy as np
import pytest

from monitor.policy import Robot
from policies.sim import ACTION_HIGH, ACTION_LOW, SimRobot
from policies.sim.control import REACH_HIGH, REACH_LOW, rotation_error, yaw_quaternion

STAY = np.array([0.0, 0, 0, 0, 0, 0, 1])


@pytest.fixture(scope="module")
def robot():
    made = SimRobot(render=False)
    yield made
    made.close()


def test_it_is_a_robot(robot):
    assert isinstance(robot, Robot)
    assert robot.control_hz == 10.0
    assert robot.tasks == ("pick_up", "move_near", "put_on", "put_in")


def test_every_field_is_filled():
    robot = SimRobot(image_size=64)
    observation = robot.reset("put_on", 3)
    for step in range(3):
        assert (observation.step, observation.time, observation.episode_id) == (step, step / 10, "put_on-3")
        assert observation.instruction == robot.scene.instruction
        assert set(observation.images) == {"front", "wrist"}
        assert all(image.shape == (64, 64, 3) and image.dtype == np.uint8 and image.std() > 5 for image in observation.images.values())
        assert observation.image_times == {"front": observation.time, "wrist": observation.time}
        assert observation.tcp_position.shape == (3,)
        assert observation.joints.shape == (7,)
        assert np.linalg.norm(observation.tcp_quaternion) == pytest.approx(1)
        assert observation.gripper == pytest.approx(1, abs=0.01)
        observation = robot.step(STAY)
    robot.close()


def test_pictures_are_optional():
    assert SimRobot(render=False).reset("pick_up", 0).images == {}
    only_front = SimRobot(cameras=("front",), image_size=32)
    assert list(only_front.reset("pick_up", 0).images) == ["front"]
    only_front.close()
    with pytest.raises(ValueError, match="unknown cameras"):
        SimRobot(cameras=("back",))


def test_the_object_is_visible_in_its_colour():
    robot = SimRobot(cameras=("front",))
    seed = next(s for s in range(50) if robot.reset("pick_up", s).instruction == "pick up the red cube")
    image = robot.reset("pick_up", seed).images["front"].astype(int)
    robot.close()
    red = (image[..., 0] > 2 * image[..., 1]) & (image[..., 0] > 2 * image[..., 2])
    rows, columns = np.nonzero(red)
    assert np.ptp(columns) + 1 >= 6
    assert np.ptp(rows) + 1 >= 6


def test_same_task_seed_and_actions_give_the_same_states(robot):
    actions = np.random.default_rng(0).uniform(ACTION_LOW, ACTION_HIGH, (25, 7))

    def run(one):
        one.reset("put_in", 5)
        return np.array([(one.step(action), one.state())[1] for action in actions])

    first = run(robot)
    robot.reset("move_near", 1, perturbation="weak_gripper")
    for action in actions:
        robot.step(action)
    np.testing.assert_array_equal(run(robot), first)
    np.testing.assert_array_equal(run(SimRobot(render=False)), first)


def test_the_hand_moves_by_the_sum_of_the_actions(robot):
    start = robot.reset("pick_up", 2)
    action = np.array([0.02, -0.01, -0.005, 0, 0, 0.05, 1])
    for _ in range(5):
        robot.step(action)
    for _ in range(3):
        end = robot.step(STAY)
    np.testing.assert_allclose(end.tcp_position - start.tcp_position, 5 * action[:3], atol=0.002)
    np.testing.assert_allclose(rotation_error(end.tcp_quaternion, start.tcp_quaternion), [0, 0, 0.25], atol=0.01)


def test_the_start_pose_is_varied_and_points_down(robot):
    starts = [robot.reset("pick_up", seed) for seed in range(20)]
    assert np.ptp([s.tcp_position for s in starts], axis=0).min() > 0.03
    yaws = [rotation_error(s.tcp_quaternion, yaw_quaternion(0)) for s in starts]
    assert np.abs(np.array(yaws)[:, :2]).max() < 0.01
    assert 0.15 < np.abs(np.array(yaws)[:, 2]).max() <= 0.31


def test_a_hand_pressed_on_the_table_stays_calm(robot):
    robot.reset("pick_up", 2)
    for _ in range(20):
        robot.step([0, 0, -0.05, 0, 0, 0, 0])
    positions = np.array([robot.step([0, 0, -0.05, 0, 0, 0, 0]).tcp_position for _ in range(10)])
    assert np.ptp(positions, axis=0).max() < 0.001
    risen = robot.step([0, 0, 0.05, 0, 0, 0, 0]).tcp_position
    assert risen[2] - positions[-1, 2] > 0.03


def test_wild_actions_leave_a_hand_that_still_obeys(robot):
    """Random actions at the limits: the hand stays in its box and then follows a calm command."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        robot.reset("pick_up", seed)
        for _ in range(40):
            robot.step(rng.choice([ACTION_LOW, ACTION_HIGH]))
        for _ in range(6):
            before = robot.step([0, 0, 0.05, 0, 0, 0, 1])
        for _ in range(4):
            after = robot.step([0, 0, -0.03, 0, 0, 0, 1])
        assert (after.tcp_position >= REACH_LOW - 0.03).all()
        assert (after.tcp_position <= REACH_HIGH + 0.03).all()
        change = after.tcp_position - before.tcp_position
        assert np.abs(change[:2]).max() < 0.02
        assert -0.14 < change[2] < -0.03  # slow in the corner nearest to the base


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (np.zeros(6), r"shape \(6,\), expected \(7,\)"),
        (np.zeros((1, 7)), r"shape \(1, 7\), expected"),
        ([0, np.nan, 0, 0, 0, 0, 1], "not finite in dy"),
        ([0, 0, 0, 0, 0, np.inf, 1], "not finite in drz"),
    ],
)
def test_a_bad_action_is_refused_and_changes_nothing(robot, action, text):
    robot.reset("pick_up", 0)
    before = robot.state()
    with pytest.raises(ValueError, match=text):
        robot.step(action)
    np.testing.assert_array_equal(robot.state(), before)


def test_an_action_beyond_the_limits_is_clipped(robot):
    robot.reset("pick_up", 0)
    robot.step([1, 0, 0, 0, 0, 0, 5])
    wild = robot.state()
    robot.reset("pick_up", 0)
    robot.step([0.05, 0, 0, 0, 0, 0, 1])
    np.testing.assert_array_equal(robot.state(), wild)


def test_a_step_before_reset_and_unknown_names_are_refused():
    robot = SimRobot(render=False)
    with pytest.raises(RuntimeError, match="call reset"):
        robot.step(STAY)
    with pytest.raises(ValueError, match="unknown task 'fly'"):
        robot.reset("fly", 0)
    with pytest.raises(ValueError, match="unknown perturbation 'storm'"):
        robot.reset("pick_up", 0, perturbation="storm")


def test_an_attempt_ends_without_success_at_max_steps():
    robot = SimRobot(render=False, max_steps=5)
    robot.reset("pick_up", 0, episode_id="mine")
    for _ in range(5):
        assert not robot.done
        observation = robot.step(STAY)
    assert robot.done
    assert not robot.success
    assert observation.episode_id == "mine"


def test_without_gym_hil_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("policies.sim.scene.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'vla-monitor\[sim\]'"):
        SimRobot(render=False)

"""The practical detectors on the simulated robot: each perturbation that they are made for makes them speak, and a clean run leaves them quiet."""

from functools import cache

import pytest

from monitor import Monitor, PolicySpec, PolicyStep, StepReport
from monitor.config import parse_config
from monitor.steps import image_facts

pytest.importorskip("policies.sim", reason="the extra `sim` is not installed")

from policies.sim import ACTION_HIGH, ACTION_LOW, Expert, SimRobot

SPEC = PolicySpec(name="expert", action_low=tuple(ACTION_LOW), action_high=tuple(ACTION_HIGH), cameras=("front", "wrist"))
CONFIG = parse_config({"gripper": {"high_means": "open"}, "alarms": {"camera_stale": {"threshold": 0.25}}}, "here")
"""As for a robot at 10 Hz that may act on pictures of two periods ago."""
SEEDS = (1, 2, 3)


def played(task: str, seed: int, perturbation: str | None) -> list[StepReport]:
    """The scripted expert acts; it knows the truth and does not look, so that only what the cameras show changes."""
    robot = SimRobot()
    expert, monitor, reports = Expert(robot), Monitor(SPEC, CONFIG), []
    seen = robot.reset(task, seed, perturbation=perturbation)
    while not robot.done:
        action = expert.act()
        reports.append(
            monitor.update(
                PolicyStep(
                    time=seen.time,
                    episode_id=seen.episode_id,
                    step=seen.step,
                    instruction=seen.instruction,
                    action=action,
                    inference_id=seen.step,
                    tcp_position=seen.tcp_position,
                    tcp_quaternion=seen.tcp_quaternion,
                    gripper=seen.gripper,
                    goal=seen.goal,
                    image_times=seen.image_times,
                    image_facts={camera: image_facts(picture) for camera, picture in seen.images.items()},
                )
            )
        )
        seen = robot.step(action)
    robot.close()
    return reports


@cache
def alarms(perturbation: str | None) -> list[set[str]]:
    """Names of the alarms that became active, one set a run."""
    return [{a.name for report in played(task, seed, perturbation) for a in report.active_alarms} for task in ("put_on", "put_in") for seed in SEEDS]


@pytest.mark.parametrize(
    ("perturbation", "alarm"),
    [("camera_covered", "camera_dark"), ("frozen_observations", "camera_stale"), ("delayed_observations", "camera_stale")],
)
def test_a_fault_of_the_camera_raises_its_alarm_in_every_run(perturbation: str, alarm: str) -> None:
    assert all(alarm in run for run in alarms(perturbation)), alarms(perturbation)


@pytest.mark.parametrize("perturbation", [None, "object_moved", "wrong_instruction"])
def test_what_is_no_fault_of_sensors_or_scale_leaves_their_alarms_quiet(perturbation: str | None) -> None:
    practical = {"camera_dark", "camera_stale", "camera_frozen", "unnormalised", "gripper_disagrees", "chunk_jump", "chunk_jump_inside", "blocked"}
    assert not set().union(*alarms(perturbation)) & practical, alarms(perturbation)


def test_dimmed_light_shows_in_the_exposure() -> None:
    """It is no alarm of its own: a dim room is not a broken camera."""
    clean = max(report["image/exposure"].value or 0.0 for report in played("put_on", 1, None))
    dimmed = max(report["image/exposure"].value or 0.0 for report in played("put_on", 1, "light_changed"))
    assert dimmed > 1.5 * clean

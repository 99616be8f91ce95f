"""Messages and records: nothing is lost on the way there and back."""

from __future__ import annotations

import numpy as np
import pytest
from geometry_msgs.msg import PoseStamped
from monitor_msgs.msg import PolicyStep as PolicyStepMsg
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import Image, JointState

from monitor.errors import StepError
from monitor.messages import EpisodeEvent, EpisodeRecord, Outcome, alarm_from, episode_from, report_from, step_fields, step_from
from monitor.ros import conversions
from monitor.steps import AlarmPhase, AlarmState, Family, Goal, Issue, MetricInfo, PolicyStep, StepReport

STAMP = conversions.to_stamp(1_700_000_000_123_456_789)


def full_step() -> PolicyStep:
    rng = np.random.default_rng(1)
    return PolicyStep(
        time=12.3,
        episode_id="e-ä",
        step=7,
        instruction="pick up the cube",
        action=[0.1, np.nan, np.inf, -0.0, 1e-300, 5, 1],
        raw_action=rng.standard_normal(7),
        chunk=rng.standard_normal((4, 7)),
        chunk_offset=2,
        inference_id=3,
        token_logits=rng.standard_normal((7, 256)),
        token_logsumexp=rng.standard_normal(7),
        token_ids=np.arange(7) + 2**40,
        samples=rng.standard_normal((3, 4, 7)),
        tcp_position=rng.standard_normal(3),
        tcp_quaternion=[1, 0, 0, 0],
        joints=rng.standard_normal(7),
        gripper=0.25,
        goal=Goal(task="put", object_position=np.ones(3), target_position=np.zeros(3), grasped=True),
        image_times={"front": 12.2, "wrist": 12.1},
        inference_seconds=0.02,
    )


def over_the_wire(message: object) -> object:
    return deserialize_message(serialize_message(message), type(message))


@pytest.mark.parametrize("step", [full_step(), PolicyStep(time=0.0, episode_id="", step=0, action=[])], ids=["full", "bare"])
def test_step_round_trip_is_exact(step: PolicyStep) -> None:
    message = over_the_wire(conversions.step_message(step, STAMP))
    assert isinstance(message, PolicyStepMsg)
    assert conversions.to_nanoseconds(message.header.stamp) == 1_700_000_000_123_456_789
    before, after = step_fields(step), step_fields(step_from(message))
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(np.asarray(after[name]), np.asarray(value), err_msg=name)


def test_report_and_alarm_round_trip() -> None:
    info = MetricInfo(id="m", variant="full", label="M", family=Family.TOKEN, unit="1", low=0, high=1, higher_means="x", formula="", source="")
    alarm = AlarmState(
        name="uncertain", phase=AlarmPhase.ACTIVE, metric="m/full", value=None, threshold=0.5, since=1.0, calibration="static", hold=True, text="!"
    )
    report = StepReport(
        time=1.5, episode_id="e", step=3, verdict="accepted", infos=(info,), values=np.array([np.nan]), statuses=np.array([2], np.uint8),
        alarms=(alarm,), issues=(Issue("gap", "steps 1 to 2 are missing"),),
    )  # fmt: skip
    record = report_from(over_the_wire(conversions.report_message(report, True, STAMP)))
    assert (record.metrics, record.held, record.active_alarms, record.issues) == (("m/full",), True, ("uncertain",), report.issues)
    assert np.isnan(record.values[0])
    assert record.statuses.tolist() == [2]
    told = alarm_from(over_the_wire(conversions.alarm_message(alarm, report, STAMP)))
    assert (told.step, told.state.phase, told.state.value, told.state.hold) == (3, AlarmPhase.ACTIVE, None, True)


def test_episode_round_trip() -> None:
    episode = EpisodeRecord(
        event=EpisodeEvent.ENDED,
        time=3.5,
        episode_id="e",
        task="put",
        instruction="put it",
        perturbation="weak",
        seed=-4,
        outcome=Outcome.SUCCESS,
        steps=9,
    )
    assert episode_from(over_the_wire(conversions.episode_message(episode, STAMP))) == episode


@pytest.mark.parametrize(
    ("encoding", "channels", "order"), [("rgb8", 3, [0, 1, 2]), ("bgr8", 3, [2, 1, 0]), ("bgra8", 4, [2, 1, 0]), ("mono8", 1, [0, 0, 0])]
)
def test_images_with_padded_rows(encoding: str, channels: int, order: list[int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, channels), dtype=np.uint8)
    rows = np.pad(pixels.reshape(5, 4 * channels), ((0, 0), (0, 3)))
    message = Image(height=5, width=4, encoding=encoding, step=rows.shape[1], data=rows.tobytes())
    np.testing.assert_array_equal(conversions.image_array(message), pixels[:, :, order])


def test_image_round_trip() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    np.testing.assert_array_equal(conversions.image_array(over_the_wire(conversions.image_message(picture, "front", STAMP))), picture)


@pytest.mark.parametrize(
    "message", [Image(), Image(height=2, width=2, encoding="rgb8", step=6, data=b"12"), Image(encoding="jpeg", height=1, width=1)]
)
def test_bad_pictures_are_refused(message: Image) -> None:
    with pytest.raises(StepError, match=r"encoding|empty or cut off"):
        conversions.image_array(message)


def test_pose_and_joints() -> None:
    pose = over_the_wire(conversions.pose_message(np.array([1.0, 2, 3]), np.array([0.5, 0.1, 0.2, 0.3]), STAMP))
    assert isinstance(pose, PoseStamped)
    position, quaternion = conversions.pose_arrays(pose)
    assert (position.tolist(), quaternion.tolist()) == ([1, 2, 3], [0.5, 0.1, 0.2, 0.3])
    joints = over_the_wire(conversions.joints_message(np.arange(7.0), 0.25, STAMP))
    assert isinstance(joints, JointState)
    angles, opening = conversions.joints_arrays(joints, "gripper", 0.0, 1.0)
    assert (angles.tolist(), opening) == (list(range(7)), 0.25)
    assert conversions.joints_arrays(joints, "gripper", 1.0, 0.0)[1] == 0.75
    assert conversions.joints_arrays(joints, "absent", 0.0, 1.0)[1] is None


@pytest.mark.parametrize("target", [None, np.array([1.0, 2, 3])])
def test_goal(target: np.ndarray | None) -> None:
    goal = conversions.goal_record(over_the_wire(conversions.goal_message(Goal(task="t", object_position=np.ones(3), target_position=target), STAMP)))
    assert goal.task == "t"
    np.testing.assert_array_equal(goal.target_position, target)


def test_topic_words() -> None:
    assert [conversions.topic_word(name) for name in ("front", "Wrist-Left", "3d")] == ["front", "wrist_left", "c_3d"]

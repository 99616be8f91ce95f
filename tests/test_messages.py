"""Records to message fields and back, bit for bit, directly and through CDR."""

from __future__ import annotations

import array
import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from monitor.errors import StepError
from monitor.messages import (
    EpisodeEvent,
    EpisodeRecord,
    Outcome,
    alarm_fields,
    alarm_from,
    episode_fields,
    episode_from,
    report_fields,
    report_from,
    step_fields,
    step_from,
)
from monitor.recording.types import ALARM, EPISODE, REPORT, STEP, typestore
from monitor.steps import AlarmPhase, AlarmState, Family, Goal, ImageFacts, Issue, MetricInfo, PolicyStep, StepReport

FLOATS = st.floats(width=64)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def arrays(dtype: type, axes: int) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(dtype, hnp.array_shapes(min_dims=axes, max_dims=axes, min_side=0, max_side=5))


def maybe(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | strategy


GOALS = st.builds(Goal, task=TEXT, object_position=arrays(np.float64, 1), target_position=maybe(arrays(np.float64, 1)), grasped=st.booleans())
FACTS = st.builds(ImageFacts, hash64=INT64, mean=FLOATS, dark=FLOATS, saturated=FLOATS, bytes=st.integers(0, 2**63 - 1))
STEPS = st.builds(
    PolicyStep,
    time=FLOATS,
    episode_id=TEXT,
    step=INT64,
    action=arrays(np.float64, 1),
    instruction=TEXT,
    raw_action=maybe(arrays(np.float64, 1)),
    chunk=maybe(arrays(np.float64, 2)),
    chunk_offset=st.integers(-(2**31), 2**31 - 1),
    inference_id=INT64,
    token_logits=maybe(arrays(np.float32, 2)),
    token_logsumexp=maybe(arrays(np.float32, 1)),
    token_probs=maybe(arrays(np.float32, 2)),
    token_topk=maybe(arrays(np.float32, 2)),
    token_ids=maybe(arrays(np.int64, 1)),
    samples=maybe(arrays(np.float32, 3)),
    tcp_position=maybe(arrays(np.float64, 1)),
    tcp_quaternion=maybe(arrays(np.float64, 1)),
    joints=maybe(arrays(np.float64, 1)),
    gripper=maybe(FLOATS),
    goal=maybe(GOALS),
    image_times=st.dictionaries(TEXT, FLOATS, max_size=3),
    image_facts=st.dictionaries(TEXT, FACTS, max_size=3),
    inference_seconds=maybe(FLOATS),
)


def same(one: object, other: object) -> bool:
    """Bit for bit, but any NaN equals any NaN."""
    if isinstance(one, np.ndarray):
        if not isinstance(other, np.ndarray) or one.dtype != other.dtype or one.shape != other.shape:
            return False
        if one.dtype.kind != "f":
            return one.tobytes() == other.tobytes()
        nan = np.isnan(one)
        return bool((nan == np.isnan(other)).all()) and one[~nan].tobytes() == other[~nan].tobytes()
    if isinstance(one, float) and isinstance(other, float):
        return same(np.array([one]), np.array([other]))
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if dataclasses.is_dataclass(one):
        return type(one) is type(other) and all(same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    return type(one) is type(other) and one == other


def through_cdr(fields: dict[str, object], name: str) -> object:
    store = typestore()
    header = store.types["std_msgs/msg/Header"](stamp=store.types["builtin_interfaces/msg/Time"](sec=0, nanosec=0), frame_id="")
    return store.deserialize_cdr(store.serialize_cdr(store.types[name](header=header, **fields), name), name)


def report(**changes: object) -> StepReport:
    info = MetricInfo(
        id="tb_entropy", variant="full", label="TB-E", family=Family.TOKEN, unit="1", low=0, high=1, higher_means="less sure", formula="", source=""
    )
    alarm = AlarmState(
        name="uncertain",
        phase=AlarmPhase.ACTIVE,
        metric="tb_entropy/full",
        value=0.75,
        threshold=0.5,
        since=1.5,
        calibration="static",
        hold=True,
        text="x",
    )
    given: dict[str, object] = {
        "time": 2.5,
        "episode_id": "e1",
        "step": 3,
        "verdict": "accepted",
        "infos": (info,),
        "values": np.array([-0.0]),
        "statuses": np.array([0], np.uint8),
        "alarms": (alarm,),
        "issues": (Issue("gap", "step 2 is missing"),),
    }
    return StepReport(**{**given, **changes})  # type: ignore[arg-type]


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_step_comes_back_bit_for_bit_from_fields(step: PolicyStep) -> None:
    assert same(step_from(SimpleNamespace(**step_fields(step))), step)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_step_comes_back_bit_for_bit_through_cdr(step: PolicyStep) -> None:
    assert same(step_from(through_cdr(step_fields(step), STEP)), step)


def test_fields_are_those_of_the_message_definition() -> None:
    step = PolicyStep(time=0.0, episode_id="e", step=0, action=[0.0])
    alarm = report().alarms[0]
    episode = EpisodeRecord(event=EpisodeEvent.STARTED, time=0.0, episode_id="e")
    made = {STEP: step_fields(step), REPORT: report_fields(report()), ALARM: alarm_fields(alarm, report()), EPISODE: episode_fields(episode)}
    for name, fields in made.items():
        declared = {field for field, _ in typestore().fielddefs[name][1]}
        assert set(fields) == declared - {"header"}, name


def test_missing_arrays_are_empty_and_missing_numbers_nan() -> None:
    fields = step_fields(PolicyStep(time=0.0, episode_id="e", step=0, action=[1.0]))
    assert fields["token_logits"].size == 0  # type: ignore[attr-defined]
    assert fields["token_rows"] == 0
    assert math.isnan(fields["gripper"])  # type: ignore[arg-type]
    assert fields["given"] == []


def test_arrays_of_rclpy_are_taken() -> None:
    fields = step_fields(PolicyStep(time=0.0, episode_id="e", step=0, action=[1.0], chunk=[[1.0, 2.0], [3.0, 4.0]]))
    fields["chunk"] = array.array("d", fields["chunk"].tobytes())  # type: ignore[attr-defined]
    step = step_from(SimpleNamespace(**fields))
    assert step.chunk is not None
    assert step.chunk.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_step_does_not_share_memory_with_the_message() -> None:
    action = np.array([1.0, 2.0])
    step = step_from(SimpleNamespace(time=0.0, episode_id="e", step=0, action=action))
    action[:] = 9.0
    assert step.action.tolist() == [1.0, 2.0]


def test_older_message_without_optional_fields_is_read() -> None:
    step = step_from(SimpleNamespace(time=1.0, episode_id="e", step=4, action=[0.5]))
    assert same(step, PolicyStep(time=1.0, episode_id="e", step=4, action=[0.5]))


def test_message_without_action_is_refused_by_name() -> None:
    with pytest.raises(StepError, match="no field 'action'"):
        step_from(SimpleNamespace(time=1.0, episode_id="e", step=4))


def test_array_that_does_not_fit_its_rows_is_refused() -> None:
    message = SimpleNamespace(time=1.0, episode_id="e", step=4, action=[0.5], chunk=[1.0, 2.0, 3.0], chunk_rows=2)
    with pytest.raises(StepError, match=r"chunk has 3 numbers, which do not fit the shape \(2, -1\)"):
        step_from(message)


def test_unequal_camera_lists_are_refused() -> None:
    message = SimpleNamespace(time=1.0, episode_id="e", step=4, action=[0.5], image_names=["front"], image_times=[])
    with pytest.raises(StepError, match="1 image_names but 0 image_times"):
        step_from(message)


def test_image_facts_of_unequal_length_are_refused() -> None:
    message = SimpleNamespace(time=1.0, episode_id="e", step=4, action=[0.5], image_fact_names=["front"], image_hashes=[1])
    with pytest.raises(StepError, match="another number of mean, dark, saturated, bytes"):
        step_from(message)


def test_garbled_given_is_refused() -> None:
    with pytest.raises(StepError, match="chunk:x"):
        step_from(SimpleNamespace(time=1.0, episode_id="e", step=4, action=[0.5], given=["chunk:x"]))


@settings(max_examples=100, deadline=None)
@given(hnp.arrays(np.float64, st.just(1)), st.integers(0, 5), st.booleans())
def test_report_comes_back_bit_for_bit(values: np.ndarray, status: int, held: bool) -> None:
    sent = report(values=values, statuses=np.array([status], np.uint8))
    back = report_from(through_cdr(report_fields(sent, held), REPORT))
    assert same(back.values, values)
    assert back.statuses.tolist() == [status]
    assert back.statuses.dtype == np.uint8
    assert (back.time, back.episode_id, back.step, back.verdict, back.metrics) == (2.5, "e1", 3, "accepted", ("tb_entropy/full",))
    assert (back.active_alarms, back.issues, back.held) == (("uncertain",), (Issue("gap", "step 2 is missing"),), held)


def test_report_with_lists_of_different_length_is_refused() -> None:
    fields = {**report_fields(report()), "value": np.zeros(2)}
    with pytest.raises(StepError, match="1 metric names, 2 values"):
        report_from(SimpleNamespace(**fields))


@given(maybe(st.floats(allow_nan=False)), FLOATS, st.sampled_from(AlarmPhase))
def test_alarm_comes_back_bit_for_bit(value: float | None, threshold: float, phase: AlarmPhase) -> None:
    alarm = dataclasses.replace(report().alarms[0], value=value, threshold=threshold, phase=phase, changed=True)
    back = alarm_from(through_cdr(alarm_fields(alarm, report()), ALARM))
    assert same(back.state, alarm)
    assert (back.time, back.episode_id, back.step) == (2.5, "e1", 3)


def test_alarm_in_unknown_phase_is_refused() -> None:
    fields = {**alarm_fields(report().alarms[0], report()), "phase": 9}
    with pytest.raises(StepError, match="phase 9, expected one of 0 QUIET"):
        alarm_from(SimpleNamespace(**fields))


@given(
    st.builds(
        EpisodeRecord,
        event=st.sampled_from(EpisodeEvent),
        time=FLOATS,
        episode_id=TEXT,
        task=TEXT,
        instruction=TEXT,
        perturbation=TEXT,
        seed=INT64,
        outcome=st.sampled_from(Outcome),
        steps=INT64,
    )
)
def test_episode_comes_back_bit_for_bit(episode: EpisodeRecord) -> None:
    assert same(episode_from(through_cdr(episode_fields(episode), EPISODE)), episode)


def test_episode_with_unknown_outcome_is_refused() -> None:
    with pytest.raises(StepError, match="outcome 7"):
        episode_from(SimpleNamespace(event=1, outcome=7, episode_id="e"))

"""Our records as flat message fields and back: the one place that knows the layout of monitor_msgs.

The same dictionaries fill rclpy messages and bag records; the same readers take both (anything with the attributes of the .msg file). Arrays are
1-D numpy in the message's dtype; everything else is str, int, float, bool or list of str. The header is the caller's business.

Round trips are exact, bit for bit, with one exception: the payload of a NaN. What a message cannot hold by itself (an array that was given but
is empty, a gripper measured as NaN, a goal without a name) is told by the field `given`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.errors import StepError
from monitor.steps import AlarmPhase, AlarmState, Float, Goal, ImageFacts, Issue, PolicyStep, StepReport

# name, dtype, fields that hold the leading axes (the last axis follows from the length)
_STEP_ARRAYS: tuple[tuple[str, type[np.generic], tuple[str, ...]], ...] = (
    ("raw_action", np.float64, ()),
    ("chunk", np.float64, ("chunk_rows",)),
    ("token_logits", np.float32, ("token_rows",)),
    ("token_logsumexp", np.float32, ()),
    ("token_probs", np.float32, ("token_prob_rows",)),
    ("token_topk", np.float32, ("token_topk_rows",)),
    ("token_ids", np.int64, ()),
    ("samples", np.float32, ("sample_count", "sample_rows")),
    ("tcp_position", np.float64, ()),
    ("tcp_quaternion", np.float64, ()),
    ("joints", np.float64, ()),
)

_IMAGE_FACTS: tuple[tuple[str, str, type[np.generic]], ...] = (
    ("image_hashes", "hash64", np.int64),
    ("image_means", "mean", np.float64),
    ("image_dark", "dark", np.float64),
    ("image_saturated", "saturated", np.float64),
    ("image_bytes", "bytes", np.int64),
)


class EpisodeEvent(IntEnum):
    """What an episode record tells."""

    STARTED = 0
    ENDED = 1


class Outcome(IntEnum):
    """How an episode ended. UNKNOWN is not a failure."""

    UNKNOWN = 0
    SUCCESS = 1
    FAILURE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRecord:
    """Beginning or end of one task attempt.

    `time` in s on the control clock; `perturbation` and `seed` for simulated scenes only; `outcome` and `steps` at the end only.
    """

    event: EpisodeEvent
    time: float
    episode_id: str
    task: str = ""
    instruction: str = ""
    perturbation: str = ""
    seed: int = 0
    outcome: Outcome = Outcome.UNKNOWN
    steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRecord:
    """A StepReport as it was published: what a bag can give back.

    `metrics[i]` (id/variant), `values[i]` (NaN: no number) and `statuses[i]` (uint8, see Status) belong together.
    """

    time: float
    episode_id: str
    step: int
    verdict: str
    metrics: tuple[str, ...]
    values: Float
    statuses: NDArray[np.uint8]
    active_alarms: tuple[str, ...]
    issues: tuple[Issue, ...]
    held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRecord:
    """An alarm's state at the step at which its phase changed (so `state.changed` is True)."""

    time: float
    episode_id: str
    step: int
    state: AlarmState


def step_fields(step: PolicyStep) -> dict[str, object]:
    """Fields of PolicyStep.msg without the header. Arrays may share memory with the step."""
    given: list[str] = []
    fields: dict[str, object] = {
        "time": float(step.time),
        "episode_id": step.episode_id,
        "step": int(step.step),
        "instruction": step.instruction,
        "action": step.action,
        "chunk_offset": int(step.chunk_offset),
        "inference_id": int(step.inference_id),
        "gripper": _float_or_nan("gripper", step.gripper, given),
        "inference_seconds": _float_or_nan("inference_seconds", step.inference_seconds, given),
        "image_names": list(step.image_times),
        "image_times": np.array(list(step.image_times.values()), dtype=np.float64),
        "image_fact_names": list(step.image_facts),
    }
    for name, part, kind in _IMAGE_FACTS:
        fields[name] = np.array([getattr(facts, part) for facts in step.image_facts.values()], dtype=kind)
    for name, dtype, axes in _STEP_ARRAYS:
        fields.update(_flatten(name, getattr(step, name), dtype, axes, given))
    goal = step.goal
    fields.update(_flatten("goal_object", None if goal is None else goal.object_position, np.float64, (), given))
    fields.update(_flatten("goal_target", None if goal is None else goal.target_position, np.float64, (), given))
    fields["goal_task"] = "" if goal is None else goal.task
    fields["goal_grasped"] = goal is not None and bool(goal.grasped)
    if goal is not None and not goal.task:
        given.append("goal")
    fields["given"] = given
    return fields


def step_from(message: object) -> PolicyStep:
    """The step a PolicyStep message holds, from rclpy or from a bag. Fields that an older message lacks are taken as not given.

    Raises:
        StepError: time, episode_id, step or action is missing, or an array does not fit the sizes beside it.
    """
    given = _parse_given(getattr(message, "given", ()))
    arrays = {name: _unflatten(message, name, dtype, axes, given) for name, dtype, axes in _STEP_ARRAYS}
    task = str(getattr(message, "goal_task", ""))
    goal = None
    if task or "goal" in given:
        position = _unflatten(message, "goal_object", np.float64, (), given)
        goal = Goal(
            task=task,
            object_position=np.zeros(0) if position is None else position,
            target_position=_unflatten(message, "goal_target", np.float64, (), given),
            grasped=bool(getattr(message, "goal_grasped", False)),
        )
    names, times = list(getattr(message, "image_names", ())), getattr(message, "image_times", ())
    if len(names) != len(times):
        raise StepError(f"PolicyStep message: {len(names)} image_names but {len(times)} image_times; give one time per camera")
    return PolicyStep(
        time=float(_required(message, "time")),
        episode_id=str(_required(message, "episode_id")),
        step=int(_required(message, "step")),
        instruction=str(getattr(message, "instruction", "")),
        action=np.array(_required(message, "action"), dtype=np.float64),
        chunk_offset=int(getattr(message, "chunk_offset", 0)),
        inference_id=int(getattr(message, "inference_id", 0)),
        gripper=_none_if_nan(message, "gripper", given),
        inference_seconds=_none_if_nan(message, "inference_seconds", given),
        goal=goal,
        image_times={str(name): float(time) for name, time in zip(names, times, strict=True)},
        image_facts=_image_facts_from(message),
        **arrays,
    )


def _image_facts_from(message: object) -> dict[str, ImageFacts]:
    names = [str(name) for name in getattr(message, "image_fact_names", ())]
    columns = {part: list(getattr(message, name, ())) for name, part, _ in _IMAGE_FACTS}
    short = [part for part, column in columns.items() if len(column) != len(names)]
    if short:
        raise StepError(f"PolicyStep message: {len(names)} image_fact_names, but another number of {', '.join(short)}; give one per camera")
    return {
        name: ImageFacts(
            hash64=int(columns["hash64"][i]),
            mean=float(columns["mean"][i]),
            dark=float(columns["dark"][i]),
            saturated=float(columns["saturated"][i]),
            bytes=int(columns["bytes"][i]),
        )
        for i, name in enumerate(names)
    }


def report_fields(report: StepReport, held: bool = False) -> dict[str, object]:
    """Fields of StepReport.msg without the header; `held` tells that the gate withheld the action of this step."""
    return {
        "time": float(report.time),
        "episode_id": report.episode_id,
        "step": int(report.step),
        "verdict": report.verdict,
        "metric": [info.key for info in report.infos],
        "value": np.ascontiguousarray(report.values, dtype=np.float64),
        "status": np.ascontiguousarray(report.statuses, dtype=np.uint8),
        "active_alarms": [alarm.name for alarm in report.active_alarms],
        "issue_codes": [issue.code for issue in report.issues],
        "issue_details": [issue.detail for issue in report.issues],
        "held": bool(held),
    }


def report_from(message: object) -> ReportRecord:
    """The report a StepReport message holds.

    Raises:
        StepError: time, episode_id or step is missing, or lists that belong together differ in length.
    """
    metrics = tuple(str(key) for key in getattr(message, "metric", ()))
    values = np.array(getattr(message, "value", ()), dtype=np.float64)
    statuses = _bytes(getattr(message, "status", ()))
    codes, details = list(getattr(message, "issue_codes", ())), list(getattr(message, "issue_details", ()))
    if not len(metrics) == len(values) == len(statuses) or len(codes) != len(details):
        raise StepError(
            f"StepReport message: {len(metrics)} metric names, {len(values)} values, {len(statuses)} statuses, {len(codes)} issue codes, "
            f"{len(details)} issue details; lists that belong together must be equally long"
        )
    return ReportRecord(
        time=float(_required(message, "time")),
        episode_id=str(_required(message, "episode_id")),
        step=int(_required(message, "step")),
        verdict=str(getattr(message, "verdict", "")),
        metrics=metrics,
        values=values,
        statuses=statuses,
        active_alarms=tuple(str(name) for name in getattr(message, "active_alarms", ())),
        issues=tuple(Issue(str(code), str(detail)) for code, detail in zip(codes, details, strict=True)),
        held=bool(getattr(message, "held", False)),
    )


def alarm_fields(alarm: AlarmState, report: StepReport) -> dict[str, object]:
    """Fields of Alarm.msg without the header; the report says at which step the alarm was in that state."""
    return {
        "time": float(report.time),
        "episode_id": report.episode_id,
        "step": int(report.step),
        "name": alarm.name,
        "phase": int(alarm.phase),
        "metric": alarm.metric,
        "value": math.nan if alarm.value is None else float(alarm.value),
        "threshold": float(alarm.threshold),
        "since": float(alarm.since),
        "calibration": alarm.calibration,
        "hold": bool(alarm.hold),
        "text": alarm.text,
    }


def alarm_from(message: object) -> AlarmRecord:
    """The alarm an Alarm message holds; a NaN value is None. Raises StepError for a missing name, time or step and for an unknown phase."""
    phase = int(_required(message, "phase"))
    if phase not in set(AlarmPhase):
        raise StepError(f"Alarm message: phase {phase}, expected one of {', '.join(f'{p.value} {p.name}' for p in AlarmPhase)}")
    value = float(getattr(message, "value", math.nan))
    return AlarmRecord(
        time=float(_required(message, "time")),
        episode_id=str(_required(message, "episode_id")),
        step=int(_required(message, "step")),
        state=AlarmState(
            name=str(_required(message, "name")),
            phase=AlarmPhase(phase),
            metric=str(getattr(message, "metric", "")),
            value=None if math.isnan(value) else value,
            threshold=float(getattr(message, "threshold", math.nan)),
            since=float(getattr(message, "since", math.nan)),
            calibration=str(getattr(message, "calibration", "")),
            hold=bool(getattr(message, "hold", False)),
            text=str(getattr(message, "text", "")),
            changed=True,
        ),
    )


def episode_fields(episode: EpisodeRecord) -> dict[str, object]:
    """Fields of Episode.msg without the header."""
    return {
        "event": int(episode.event),
        "time": float(episode.time),
        "episode_id": episode.episode_id,
        "task": episode.task,
        "instruction": episode.instruction,
        "perturbation": episode.perturbation,
        "seed": int(episode.seed),
        "outcome": int(episode.outcome),
        "steps": int(episode.steps),
    }


def episode_from(message: object) -> EpisodeRecord:
    """The event an Episode message holds. Raises StepError for a missing episode_id and for an unknown event or outcome."""
    event, outcome = int(_required(message, "event")), int(getattr(message, "outcome", 0))
    if event not in set(EpisodeEvent) or outcome not in set(Outcome):
        raise StepError(f"Episode message: event {event}, outcome {outcome}; expected event 0 or 1 and outcome 0, 1 or 2")
    return EpisodeRecord(
        event=EpisodeEvent(event),
        time=float(getattr(message, "time", math.nan)),
        episode_id=str(_required(message, "episode_id")),
        task=str(getattr(message, "task", "")),
        instruction=str(getattr(message, "instruction", "")),
        perturbation=str(getattr(message, "perturbation", "")),
        seed=int(getattr(message, "seed", 0)),
        outcome=Outcome(outcome),
        steps=int(getattr(message, "steps", 0)),
    )


def _required(message: object, name: str) -> Any:
    try:
        return getattr(message, name)
    except AttributeError:
        raise StepError(f"{type(message).__name__} message: no field {name!r}; it was made with another definition of monitor_msgs") from None


def _float_or_nan(name: str, number: float | None, given: list[str]) -> float:
    if number is None:
        return math.nan
    if math.isnan(number):
        given.append(name)
    return float(number)


def _none_if_nan(message: object, name: str, given: Mapping[str, tuple[int, ...]]) -> float | None:
    number = float(getattr(message, name, math.nan))
    return None if math.isnan(number) and name not in given else number


def _flatten(name: str, array: NDArray[Any] | None, dtype: type[np.generic], axes: tuple[str, ...], given: list[str]) -> dict[str, object]:
    """One array as flat data and the sizes of its leading axes; notes in `given` a shape that those do not tell."""
    if array is None:
        return {name: np.zeros(0, dtype), **dict.fromkeys(axes, 0)}
    array = np.ascontiguousarray(array, dtype=dtype)
    if array.size == 0 or array.ndim != len(axes) + 1:
        given.append(f"{name}:{','.join(str(size) for size in array.shape)}")
        return {name: array.reshape(-1), **dict.fromkeys(axes, 0)}
    return {name: array.reshape(-1), **dict(zip(axes, array.shape, strict=False))}


def _unflatten(
    message: object, name: str, dtype: type[np.generic], axes: tuple[str, ...], given: Mapping[str, tuple[int, ...]]
) -> NDArray[Any] | None:
    flat = np.array(getattr(message, name, ()), dtype=dtype)
    if name not in given and flat.size == 0:
        return None
    sizes = given[name] if name in given else (*(int(_required(message, axis)) for axis in axes), -1)
    try:
        return flat.reshape(sizes)
    except ValueError:
        raise StepError(f"PolicyStep message: {name} has {flat.size} numbers, which do not fit the shape {sizes}; its sender is at fault") from None


def _parse_given(entries: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """`name` or `name:shape` -> shape."""
    parsed: dict[str, tuple[int, ...]] = {}
    for entry in entries:
        name, _, shape = str(entry).partition(":")
        try:
            parsed[name] = tuple(int(size) for size in shape.split(",") if size)
        except ValueError:
            raise StepError(f"PolicyStep message: entry {entry!r} of `given`; expected `name` or `name:shape` as in `samples:0,8,7`") from None
    return parsed


def _bytes(data: Any) -> NDArray[np.uint8]:
    """uint8[] of a message: numpy from bags, bytes or a list from rclpy."""
    return np.frombuffer(bytes(data), dtype=np.uint8).copy()

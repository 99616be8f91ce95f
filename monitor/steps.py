"""The records that flow: PolicyStep in, StepReport out.

Arrays are numpy, made canonical once, when the record is built: float64 for actions and poses, float32 for logits and samples. Nothing here
judges the numbers (NaN passes); the engine does, and answers with a status.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.errors import StepError

Float = NDArray[np.float64]
Float32 = NDArray[np.float32]
DARK, SATURATED = 5, 250
"""Of 255: values up to and from which a picture counts as dark and as saturated."""


class Status(IntEnum):
    """What a metric value is worth. Everything but OK means "no statement", never "low"."""

    OK = 0
    WARMING_UP = 1
    UNAVAILABLE = 2
    UNINFORMATIVE = 3
    INVALID = 4
    STALE = 5


class AlarmPhase(IntEnum):
    """States of an alarm."""

    QUIET = 0
    PENDING = 1
    ACTIVE = 2
    COOLING_DOWN = 3


class Family(StrEnum):
    """Metric families; labels of tables, dashboards and votes."""

    TOKEN = "token"
    ACTION = "action"
    TOOL = "tool"
    MOTION = "motion"
    VALIDITY = "validity"
    GOAL = "goal"
    SAMPLING = "sampling"
    PLAN = "plan"
    TIMING = "timing"
    CAMERA = "camera"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Ground truth of the task, where a simulator or a tracker knows it. Positions (3,) in m, fixed frame."""

    task: str
    object_position: Float
    target_position: Float | None = None
    grasped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """What the monitor keeps of a picture; see `image_facts`.

    `hash64` of the bytes (int64). `mean` of the values, 0 to 255. `dark`, `saturated`: share of values near black and near white. `bytes`: 0 for an
    empty or unreadable picture.
    """

    hash64: int
    mean: float
    dark: float
    saturated: float
    bytes: int


def image_facts(picture: ArrayLike | None) -> ImageFacts:
    """Facts of a picture (H, W, 3) uint8; None or an empty one has 0 bytes. The hash sees every byte, the shares every fourth row and column."""
    pixels = np.zeros(0, np.uint8) if picture is None else np.ascontiguousarray(picture, dtype=np.uint8)
    if pixels.size == 0:
        return ImageFacts(hash64=0, mean=0.0, dark=0.0, saturated=0.0, bytes=0)
    seen = pixels[::4, ::4] if pixels.ndim > 1 else pixels
    return ImageFacts(
        hash64=int.from_bytes(hashlib.blake2b(pixels.data, digest_size=8).digest(), "little", signed=True),
        mean=float(seen.mean()),
        dark=float((seen <= DARK).mean()),
        saturated=float((seen >= SATURATED).mean()),
        bytes=int(pixels.size),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStep:
    """One control step of a policy. Missing parts are None.

    Attributes:
        time: seconds, monotonic within an episode.
        episode_id: name of the task attempt.
        step: control step inside the episode, from 0.
        instruction: the sentence given to the policy.
        action: (D,) as sent to the controller.
        raw_action: (D,) as the policy gave it, before ensembling, scaling, gripper logic or a gate that holds.
        chunk: (H, D) the plan this action comes from; `chunk_offset` is the action's row in it.
        inference_id: counts policy calls; equal for all steps that execute one chunk.
        token_logits: (n, K) float32, one row per action token; K is the support or the whole head (see PolicySpec).
        token_logsumexp: (n,) log of the sum of exp over the whole head, when token_logits hold the support only.
        token_probs: (n, K) instead of logits.
        token_topk: (n, k) log-probabilities of the k likeliest ids, descending, when nothing more is known.
        token_ids: (n,) generated ids, in the numbering of the whole head.
        samples: (B, H, D) float32 further plans for the same observation.
        tcp_position: (3,) m. tcp_quaternion: (4,) w, x, y, z. joints: (N,) rad. gripper: 0 closed to 1 open (measured).
        image_times: camera -> seconds at which the picture was taken.
        image_facts: camera -> facts of the picture, made where the picture is at hand.
        inference_seconds: wall time of the policy call; None for steps that only execute an earlier chunk.

    Raises:
        StepError: a field is not numeric or has the wrong number of axes.
    """

    time: float
    episode_id: str
    step: int
    action: Float
    instruction: str = ""
    raw_action: Float | None = None
    chunk: Float | None = None
    chunk_offset: int = 0
    inference_id: int = 0
    token_logits: Float32 | None = None
    token_logsumexp: Float32 | None = None
    token_probs: Float32 | None = None
    token_topk: Float32 | None = None
    token_ids: NDArray[np.int64] | None = None
    samples: Float32 | None = None
    tcp_position: Float | None = None
    tcp_quaternion: Float | None = None
    joints: Float | None = None
    gripper: float | None = None
    goal: Goal | None = None
    image_times: Mapping[str, float] = field(default_factory=dict)
    image_facts: Mapping[str, ImageFacts] = field(default_factory=dict)
    inference_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, dtype, axes in _CANONICAL:
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, _canonical(name, given, dtype, axes))


_CANONICAL: tuple[tuple[str, type[np.generic], int], ...] = (
    ("action", np.float64, 1),
    ("raw_action", np.float64, 1),
    ("chunk", np.float64, 2),
    ("token_logits", np.float32, 2),
    ("token_logsumexp", np.float32, 1),
    ("token_probs", np.float32, 2),
    ("token_topk", np.float32, 2),
    ("token_ids", np.int64, 1),
    ("samples", np.float32, 3),
    ("tcp_position", np.float64, 1),
    ("tcp_quaternion", np.float64, 1),
    ("joints", np.float64, 1),
)


def _canonical(name: str, given: ArrayLike, dtype: type[np.generic], axes: int) -> NDArray[Any]:
    try:
        array = np.array(given, dtype=dtype, order="C")  # a copy: the caller may use its buffer again while the recorder still holds this
    except (TypeError, ValueError) as error:
        raise StepError(f"PolicyStep.{name}: {type(given).__name__} is not numeric; give an array of {dtype.__name__}") from error
    if array.ndim != axes:
        raise StepError(f"PolicyStep.{name}: shape {array.shape} has {array.ndim} axes, expected {axes}")
    return array


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricInfo:
    """What a metric says about itself; tables, dashboards and docs are made from this.

    Attributes:
        id: for example `tb_entropy`. variant: `full`, `p`, `o`, `gripper`, `max`, `window`, ...
        label: the papers' name, for example `TB-E`.
        low, high: bounds of the value (inf where there is none).
        higher_means: one or two words, for example "less certain".
        source: where the formula comes from.
    """

    id: str
    variant: str
    label: str
    family: Family
    unit: str
    low: float
    high: float
    higher_means: str
    formula: str
    source: str

    @property
    def key(self) -> str:
        """`id/variant`, the name used in configs, tables and bags."""
        return f"{self.id}/{self.variant}"

    @property
    def title(self) -> str:
        """Label and variant for people; the label alone where it says it all."""
        return self.label if self.variant == "flag" or self.variant in self.label.lower().split() else f"{self.label} {self.variant}"


class MetricValue(NamedTuple):
    """A number that is never alone: value is None unless status is OK or UNINFORMATIVE."""

    key: str
    value: float | None
    status: Status
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmState:
    """One alarm at one step.

    `value` is what was compared with `threshold`; None when the metric made no statement. `since` is the time at which the phase began, and
    `changed` is True at the step at which it did.
    """

    name: str
    phase: AlarmPhase
    metric: str
    value: float | None
    threshold: float
    since: float
    calibration: str
    hold: bool
    text: str
    changed: bool = False


class Issue(NamedTuple):
    """Something wrong with one step's data: a closed set of codes, and a sentence."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What the monitor says about one step.

    `values[i]` belongs to `infos[i]`; it is NaN where `statuses[i]` makes no statement, except for
    UNINFORMATIVE, which keeps the number. `alarms` holds those that are not quiet and those that
    have just become so. `issues` is empty for a clean step. `verdict` tells what became of the step: "accepted", or why it was ignored.
    """

    time: float
    episode_id: str
    step: int
    verdict: Literal["accepted", "duplicate", "late", "failed"]
    infos: tuple[MetricInfo, ...]
    values: Float
    statuses: NDArray[np.uint8]
    alarms: tuple[AlarmState, ...] = ()
    issues: tuple[Issue, ...] = ()

    def __iter__(self) -> Iterator[MetricValue]:
        for i in range(len(self.infos)):
            yield self._at(i)

    def __getitem__(self, key: str) -> MetricValue:
        """The value of `id/variant`. Raises KeyError, naming the known keys, for an unknown one."""
        for i, info in enumerate(self.infos):
            if info.key == key:
                return self._at(i)
        raise KeyError(f"{key!r} is not computed; known: {', '.join(info.key for info in self.infos)}")

    def _at(self, i: int) -> MetricValue:
        info, value = self.infos[i], float(self.values[i])
        return MetricValue(info.key, None if np.isnan(value) else value, Status(int(self.statuses[i])), info.unit)

    @property
    def active_alarms(self) -> tuple[AlarmState, ...]:
        """Alarms in phase ACTIVE."""
        return tuple(alarm for alarm in self.alarms if alarm.phase is AlarmPhase.ACTIVE)

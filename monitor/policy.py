"""What the monitor knows of policies and robots: records and protocols, written beside their user.

Adapters live in the package `policies` (or in anybody's package) and are found through the entry-point groups
`vla_monitor.policies` and `vla_monitor.robots`; the monitor never imports them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from typing import Any, Literal, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from monitor.errors import ConfigError, MissingPartError
from monitor.steps import Goal, PolicyStep, image_facts

POLICY_GROUP = "vla_monitor.policies"
ROBOT_GROUP = "vla_monitor.robots"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a policy sees at one control step.

    Attributes:
        time: seconds on the control clock.
        episode_id: name of the task attempt.
        step: control step inside the episode, from 0.
        instruction: the sentence given to the policy.
        images: camera name -> (H, W, 3) uint8 RGB.
        image_times: camera name -> seconds on the control clock at which the picture was taken.
        tcp_position: (3,) m, fixed frame.
        tcp_quaternion: (4,) w, x, y, z.
        joints: (N,) rad.
        gripper: measured opening, 0 closed to 1 open.
        goal: ground truth of the task where somebody knows it (simulators).
    """

    time: float
    episode_id: str
    step: int
    instruction: str
    images: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    image_times: Mapping[str, float] = field(default_factory=dict)
    tcp_position: NDArray[np.float64] | None = None
    tcp_quaternion: NDArray[np.float64] | None = None
    joints: NDArray[np.float64] | None = None
    gripper: float | None = None
    goal: Goal | None = None


class PolicySpec(BaseModel):
    """Facts about a policy that decide which metrics apply and how they are scaled.

    `token_support` is the half-open range of the vocabulary ids that stand for actions; `token_logits` of a step hold either exactly those
    columns or the whole head (`vocab_size` columns). `token_kind` is `per_dimension` (OpenVLA), `chunk` (SpatialVLA, pi0-FAST) or `none`
    (flow and diffusion policies). `groups` names action dimensions; for `per_dimension` policies the same indices name tokens.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    version: str = "0"
    action_names: tuple[str, ...] = ("dx", "dy", "dz", "drx", "dry", "drz", "gripper")
    groups: dict[str, tuple[int, ...]] = Field(default_factory=lambda: {"p": (0, 1, 2), "o": (3, 4, 5), "gripper": (6,)})
    action_kind: Literal["delta", "absolute"] = "delta"
    action_low: tuple[float, ...] | None = Field(default=None, description="per dimension, q01 of the policy's statistics or the controller's limit")
    action_high: tuple[float, ...] | None = Field(default=None, description="per dimension, q99 or limit")
    token_kind: Literal["per_dimension", "chunk", "none"] = "none"
    token_support: tuple[int, int] | None = None
    vocab_size: int | None = None
    logits_source: Literal["raw", "filtered"] = "raw"
    horizon: int = Field(default=1, ge=1, description="actions predicted per inference")
    executed: int = Field(default=1, ge=1, description="actions executed per inference")
    samples: int = Field(default=0, ge=0, description="action samples per inference that the policy can give")
    control_hz: float = Field(default=10.0, gt=0)
    cameras: tuple[str, ...] = ()

    @property
    def action_dim(self) -> int:
        """Number of action dimensions D."""
        return len(self.action_names)

    @model_validator(mode="after")
    def _consistent(self) -> PolicySpec:
        dim = self.action_dim
        for name in ("action_low", "action_high"):
            limits = getattr(self, name)
            if limits is not None and len(limits) != dim:
                raise ValueError(f"{name} has {len(limits)} numbers, but the policy has {dim} action dimensions ({', '.join(self.action_names)})")
        for group, indices in self.groups.items():
            if any(not 0 <= i < dim for i in indices):
                raise ValueError(f"group {group!r} names dimension {max(indices)}, but the policy has {dim} action dimensions")
        if self.token_kind != "none":
            if self.token_support is None or self.vocab_size is None:
                raise ValueError("a policy that emits action tokens must declare token_support and vocab_size")
            start, stop = self.token_support
            if not 0 <= start < stop <= self.vocab_size:
                raise ValueError(f"token_support {start}..{stop} does not fit a vocabulary of {self.vocab_size}")
        return self


@runtime_checkable
class Policy(Protocol):
    """A policy behind an adapter. Used from one thread."""

    @property
    def spec(self) -> PolicySpec:
        """Facts about the policy; constant."""
        ...

    def reset(self, instruction: str) -> None:
        """Forget the past episode and take a new instruction."""
        ...

    def act(self, observation: Observation) -> PolicyStep:
        """Choose the next action. The step carries the observation's episode, step, time and pose."""
        ...


@runtime_checkable
class Robot(Protocol):
    """A robot, real or simulated, that runs task attempts."""

    tasks: tuple[str, ...]
    perturbations: tuple[str, ...]
    control_hz: float
    max_steps: int

    def reset(self, task: str, seed: int, *, perturbation: str | None = None, episode_id: str | None = None) -> Observation:
        """Start an attempt; the same task, seed and perturbation give the same scene."""
        ...

    def step(self, action: NDArray[np.float64]) -> Observation:
        """Apply one action for one control period and observe."""
        ...

    @property
    def success(self) -> bool:
        """True once the task's success rule has held."""
        ...

    @property
    def done(self) -> bool:
        """True on success or when `max_steps` have passed."""
        ...

    def close(self) -> None:
        """Free the simulator or the connection."""
        ...


def with_image_facts(step: PolicyStep, observation: Observation) -> PolicyStep:
    """The step with times and facts of the pictures that the policy saw, where the adapter gave none."""
    if step.image_facts or not observation.images:
        return step
    facts = {camera: image_facts(picture) for camera, picture in observation.images.items()}
    return replace(step, image_times=step.image_times or observation.image_times, image_facts=facts)


def load_policy(name: str, **options: Any) -> Policy:
    """Make the policy that is registered under `name`.

    Raises:
        ConfigError: nothing is registered under that name, or what is registered is no policy.
        MissingPartError: the adapter's own dependencies are not installed.
    """
    made = _load(POLICY_GROUP, name, options)
    if not isinstance(made, Policy):
        raise ConfigError(f"policy {name!r}: {type(made).__name__} lacks one of spec, reset, act (see monitor.policy.Policy)")
    return made


def load_robot(name: str, **options: Any) -> Robot:
    """Make the robot that is registered under `name`. Raises as `load_policy`."""
    return cast(Robot, _load(ROBOT_GROUP, name, options))


def _load(group: str, name: str, options: Mapping[str, Any]) -> object:
    known = {point.name: point for point in entry_points(group=group)}
    if name not in known:
        raise ConfigError(
            f"no entry {name!r} in {group}; installed: {', '.join(sorted(known)) or 'none'}. Install the package that has it, or correct the name."
        )
    try:
        make = cast(Callable[..., object], known[name].load())
    except ModuleNotFoundError as error:
        extra = {POLICY_GROUP: "policies", ROBOT_GROUP: "sim"}[group]
        raise MissingPartError(f"{name!r} needs the module {error.name!r}, which is not installed: pip install 'vla-monitor[{extra}]'") from error
    return make(**options)

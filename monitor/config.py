"""MonitorConfig: one YAML file, one tree of settings. ROS parameters map one to one (dots between levels)."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from monitor.errors import ConfigError
from monitor.policy import PolicySpec

SCHEMA_VERSION = 1


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TokenConfig(_Section):
    """Token metrics (TB-E, TB-TP, TB-PCS, TB-D, leak)."""

    support: Literal["restricted", "full"] = Field(
        default="restricted", description="softmax over the action ids only, or over the whole head (what the papers' package does)"
    )
    topk_tail: Literal["unavailable", "uniform"] = Field(
        default="unavailable", description="what to assume of the rest when only top-k log-probabilities are known"
    )
    filter_by_id: bool = Field(default=True, description="count only tokens whose generated id is an action id")
    tokens_per_action: int | None = Field(
        default=None,
        ge=1,
        description="chunk policies: tokens of one action, one for each of the policy's groups in order; default: no values per group",
    )
    weights: tuple[float, ...] | None = Field(default=None, description="per action dimension, in tb_entropy/weighted; default: all 1")
    motion_kappa: float = Field(default=0.3, ge=0, lt=1, description="tb_entropy/weighted: 1 + kappa where the action reverses, else 1 - kappa")
    motion_eps: float = Field(default=0.05, ge=0, description="share of the range of an action below which its sign does not count")
    sliding: Literal["full", "weighted"] = Field(default="full", description="which TB-E goes into tb_entropy/sw_max")


class ActionConfig(_Section):
    """Action metrics (A-PI, A-VI, A-AI)."""

    low: tuple[float, ...] | None = Field(default=None, description="per dimension; default: the policy's own statistics")
    high: tuple[float, ...] | None = None
    source: Literal["executed", "raw"] = Field(default="executed", description="measure the action sent to the controller or the policy's own")
    reversal_eps: float = Field(default=0.01, ge=0, description="share of the range below which a change of the action does not count as a reversal")


class MotionConfig(_Section):
    """Tool metrics (TCP-PI, TCP-VI, TCP-AI, TI) and the standing-still detector."""

    length_scale_m: float = Field(default=1.0, gt=0, description="metres per radian in TCP-* full")
    frozen_path_m: float = Field(default=0.002, gt=0, description="path over the window below which the tool stands still")
    frozen_rotation_rad: float = Field(default=0.01, gt=0, description="rotation over the window below which the tool stands still")
    frozen_gripper: float = Field(default=0.05, gt=0, description="spread of the opening over the window, in strokes")
    frozen_steps: int | None = Field(default=None, ge=1, description="steps that the condition must hold; default: the window")
    blocked_command: float | None = Field(
        default=None,
        gt=0,
        description="commanded path over the window above which a still tool is blocked; unit of the action; default: 5 x frozen_path_m",
    )
    max_gap: float = Field(
        default=3.0, ge=0, le=100, description="control periods up to which lost poses are filled in between their neighbours; 0: never"
    )
    resample: bool = Field(default=False, description="tool metrics on a uniform time grid; for poses that arrive unevenly")


class GoalConfig(_Section):
    """Progress towards the goal (OT); needs ground-truth positions."""

    d_max_m: float | None = Field(default=None, gt=0, description="largest distance of the cell; default: the distance at the start of the episode")
    near_m: float = Field(
        default=0.04, gt=0, description="tasks of moving an object near another: the tool has reached the object below this distance"
    )
    ignore_switch: bool = Field(default=False, description="count no progress at the step at which the phase changes")


class SamplingConfig(_Section):
    """Spread of several action samples (EV, ACE)."""

    cell_m: tuple[float, float, float] | None = Field(
        default=None, description="grid of ACE; default: 0.03 of the range of positions that a chunk can reach"
    )
    ace_samples: int = Field(default=64, ge=2, le=512, description="samples that ACE looks at; its cost grows with the square")


class PlanConfig(_Section):
    """Overlapping plans (STAC, STAC-single, TCE, ACM) and seams of chunks."""

    stac_gamma: float | None = Field(default=None, gt=0, description="kernel exp(-gamma |x - y|^2); default: 1 / (2 x median squared distance)")
    stac_samples: int = Field(default=16, ge=2, le=512, description="samples of each plan that STAC compares; its cost grows with the square")
    seam_ratio: float = Field(default=5.0, gt=1, description="a jump of this many usual steps is told as an issue")
    seam_floor: float = Field(default=0.001, ge=0, description="smallest usual step, as a share of the range of an action")


class ScaleConfig(_Section):
    """Whether the actions are in the units of their statistics."""

    steps: int = Field(default=10, ge=3, le=256, description="actions looked at")
    ratio: float = Field(default=5.0, gt=1, description="how far, as a factor, actions must be off their range")


class GripperConfig(_Section):
    """What the gripper command means."""

    high_means: Literal["open", "closed"] | None = Field(default=None, description="what the upper end of the command asks for; default: not known")
    command: Literal["absolute", "relative"] = Field(default="absolute", description="relative: pulses around 0 that move the hand")
    delay_s: float = Field(default=1.0, gt=0, description="time that the hand has to follow")
    moved: float = Field(default=0.1, gt=0, lt=1, description="change of the measured opening that counts as motion, in strokes")


class TimingConfig(_Section):
    """Age of inferences and regularity of steps."""

    max_age_steps: int | None = Field(
        default=None, ge=1, description="token values older than this are stale; default: twice the executed steps, at least one second"
    )


class CameraConfig(_Section):
    """Age and content of pictures."""

    max_age_s: float = Field(default=0.5, gt=0, description="a picture older than this is stale")
    implausible_s: float = Field(default=60.0, gt=0, description="an age beyond this is a stamp of another clock")
    ahead_s: float = Field(default=0.005, ge=0, description="a stamp ahead of the step by more than this is clock skew")
    repeats: int = Field(default=5, ge=1, description="repeated pictures with fresh stamps, told as an issue")


class AlarmConfig(_Section):
    """One static alarm: `metric` beyond `threshold` for `for_steps` steps."""

    metric: str = Field(description="id/variant, for example tb_entropy/window")
    threshold: float
    direction: Literal["above", "below"] = "above"
    for_steps: int = Field(default=1, ge=1, description="consecutive steps beyond the threshold before the alarm is active; 1 is at once")
    clear_steps: int = Field(default=3, ge=1, description="consecutive steps back inside before it cools down")
    cooldown_s: float = Field(default=2.0, ge=0, description="time in which it cannot become active again")
    hold: bool = Field(default=False, description="withhold actions while active, if gate.mode is hold")
    calibration: str = Field(default="static", description="where the threshold comes from")
    band: tuple[float, ...] | None = Field(
        default=None, min_length=1, description="threshold per step of the episode, in place of `threshold`; its last value goes on"
    )
    votes: bool = Field(default=False, description="no alarm of its own, but a voice in the vote")


def default_alarms() -> dict[str, AlarmConfig]:
    """Alarms that need no calibration. The uncertainty and instability thresholds are rough: calibrate them."""
    return {
        "invalid_action": AlarmConfig(metric="invalid/action", threshold=0.5, clear_steps=1, cooldown_s=0, hold=True),
        "invalid_chunk": AlarmConfig(metric="invalid/chunk", threshold=0.5, clear_steps=1, cooldown_s=0, hold=True),
        "invalid_logits": AlarmConfig(metric="invalid/logits", threshold=0.5, clear_steps=1, cooldown_s=0),
        "uncertain": AlarmConfig(metric="tb_entropy/window", threshold=0.6, for_steps=3),
        "leak": AlarmConfig(metric="tb_leak/max", threshold=0.5, for_steps=2),
        "shaky_action": AlarmConfig(metric="a_ai/full", threshold=0.25, for_steps=3),
        "frozen": AlarmConfig(metric="frozen/flag", threshold=0.5),
        "blocked": AlarmConfig(metric="blocked/flag", threshold=0.5),
        "unnormalised": AlarmConfig(metric="scale/flag", threshold=0.5),
        "chunk_jump": AlarmConfig(metric="seam/jump", threshold=5.0),
        "chunk_jump_inside": AlarmConfig(metric="seam/inside", threshold=5.0),
        "gripper_disagrees": AlarmConfig(metric="gripper/disagree", threshold=0.5),
        "camera_stale": AlarmConfig(metric="image/age", threshold=0.5),
        "camera_frozen": AlarmConfig(metric="image/repeats", threshold=5.0),
        "camera_dark": AlarmConfig(metric="image/exposure", threshold=0.95, for_steps=2),
    }


class CalibrationConfig(_Section):
    """Thresholds that `vla-monitor calibrate` has made."""

    thresholds: Path | None = Field(default=None, description="thresholds.yaml; its alarms join those of `alarms` and take part in the vote")
    on_mismatch: Literal["refuse", "warn"] = Field(
        default="refuse", description="what to do when they were made for another policy or another configuration"
    )


class VoteConfig(_Section):
    """One alarm out of several metrics: every alarm with `votes` has a voice."""

    mode: Literal["any", "two_families", "weighted"] = Field(
        default="any", description="one metric is enough (recall), metrics of two families (precision), or a share of the weights"
    )
    name: str = Field(default="likely_failure", min_length=1, description="name of the alarm")
    within_s: float = Field(default=1.0, ge=0, description="a metric's voice counts for this long after it was beyond its threshold")
    weights: dict[str, float] = Field(default_factory=dict, description="weight of a metric (id/variant); 1 for those that are not named")
    quorum: float = Field(default=0.5, gt=0, le=1, description="share of all weights that makes a weighted vote an alarm")
    for_steps: int = Field(default=1, ge=1, description="consecutive steps before the alarm is active; 1 is at once")
    clear_steps: int = Field(default=3, ge=1, description="consecutive steps without a majority before it cools down")
    cooldown_s: float = Field(default=2.0, ge=0, description="time in which it cannot become active again")
    hold: bool = Field(default=False, description="withhold actions while active, if gate.mode is hold")

    @field_validator("weights")
    @classmethod
    def _weights_are_not_negative(cls, weights: dict[str, float]) -> dict[str, float]:
        for metric, weight in weights.items():
            if not 0 <= weight < math.inf:
                raise ValueError(f"weight of {metric!r} is {weight}, expected a finite number that is not negative")
        return weights


class GateConfig(_Section):
    """What happens to the action."""

    mode: Literal["report", "hold"] = Field(
        default="report", description="report only tells; hold withholds actions while an alarm that may hold is active"
    )
    release: Literal["service", "alarm"] = Field(
        default="service",
        description="what ends withholding: a call of the service ~/release, or the end of the alarm as well",
    )
    on_monitor_failure: Literal["pass", "hold"] = Field(default="pass", description="what the robot gets when the monitor itself fails")


class ExportConfig(_Section):
    """The Prometheus page."""

    enabled: bool = True
    address: str = Field(default="127.0.0.1", description="loopback unless you open it")
    port: int = Field(default=9464, ge=0, le=65535, description="0 takes any free port")
    robot: str = Field(default="robot", description="label that tells robots apart")
    metrics: tuple[str, ...] | None = Field(default=None, description="metrics on the page, as id/variant patterns such as tb_*/window; default: all")
    max_series: int = Field(default=300, ge=60, description="most series on the page; metrics beyond it are left off and counted")


class RecordingConfig(_Section):
    """The bag."""

    enabled: bool = True
    folder: Path = Path("bags")
    images: Literal["none", "jpeg", "raw"] = Field(default="jpeg", description="how camera pictures are kept")
    jpeg_quality: int = Field(default=90, ge=1, le=100)
    flush_s: float = Field(default=0.5, gt=0, description="most that a kill can lose, in seconds")
    chunk_kib: int = Field(default=1024, ge=4, le=16384)
    queue: int = Field(default=2000, ge=1, description="messages that wait for the disk; more are dropped and counted")
    queue_mib: int = Field(default=256, ge=1, description="memory that waiting messages may take; pictures may take half of it")
    min_free_mib: int = Field(default=200, ge=0, description="stop recording, with an alarm, below this free space")


class ControlConfig(_Section):
    """The control loop of the node."""

    trigger: Literal["timer", "observation"] = Field(
        default="timer", description="call the policy at the control rate, or on each complete observation"
    )
    rate_hz: float | None = Field(default=None, gt=0, description="default: the policy's own rate")
    image_timeout_s: float = Field(default=1.0, gt=0, description="a picture, pose or joint reading that arrived longer ago than this is missing")
    parts: tuple[Literal["tool_pose", "joint_states", "goal"], ...] = Field(
        default=("tool_pose", "joint_states"),
        description="what must be there, beside the policy's cameras, before the policy is called; the first one begins a step",
    )
    wait_for_episode: bool = Field(
        default=False, description="call the policy only between the episode events STARTED and ENDED; else the first observation begins an episode"
    )
    reliable_input: bool = Field(
        default=False, description="ask for reliable delivery of pictures and poses; publishers that offer best effort are then not heard"
    )
    gripper_joint: str = Field(default="gripper", description="name in joint_states of the joint that tells the gripper's opening")
    gripper_closed: float = Field(default=0.0, description="position of that joint when closed")
    gripper_open: float = Field(default=1.0, description="position of that joint when open")


class PolicyConfig(_Section):
    """Which policy, by the name it is registered under, and its options."""

    name: str = "bundled"
    options: dict[str, Any] = Field(default_factory=dict)


class MonitorConfig(_Section):
    """Everything that can be set. Unknown keys are refused with the nearest known one."""

    schema_version: Literal[1] = 1
    window: int = Field(default=8, ge=4, le=256, description="steps in a window")
    sliding_seconds: float = Field(default=2.5, gt=0, description="span of the sliding-window maximum in episode summaries")
    metrics: tuple[str, ...] | None = Field(default=None, description="families to compute, by entry-point name; default: all installed")
    policy: PolicyConfig = PolicyConfig()
    control: ControlConfig = ControlConfig()
    tokens: TokenConfig = TokenConfig()
    actions: ActionConfig = ActionConfig()
    motion: MotionConfig = MotionConfig()
    goal: GoalConfig = GoalConfig()
    sampling: SamplingConfig = SamplingConfig()
    plans: PlanConfig = PlanConfig()
    scale: ScaleConfig = ScaleConfig()
    gripper: GripperConfig = GripperConfig()
    timing: TimingConfig = TimingConfig()
    camera: CameraConfig = CameraConfig()
    alarms: dict[str, AlarmConfig] = Field(default_factory=default_alarms)
    calibration: CalibrationConfig = CalibrationConfig()
    vote: VoteConfig = VoteConfig()
    gate: GateConfig = GateConfig()
    export: ExportConfig = ExportConfig()
    recording: RecordingConfig = RecordingConfig()

    @model_validator(mode="before")
    @classmethod
    def _alarms_over_defaults(cls, data: Any) -> Any:
        """Alarms in a file are laid over the default ones; null removes one."""
        if not isinstance(data, dict) or not isinstance(data.get("alarms"), dict):
            return data
        merged: dict[str, Any] = {name: alarm.model_dump() for name, alarm in default_alarms().items()}
        for name, alarm in data["alarms"].items():
            if alarm is None:
                merged.pop(name, None)
            elif isinstance(alarm, dict):
                merged[name] = {**merged.get(name, {}), **alarm}
            else:
                merged[name] = alarm
        return {**data, "alarms": merged}

    @property
    def alarm_names(self) -> tuple[str, ...]:
        """Names that an alarm can be reported under: alarms that do not vote, and the vote where any does."""
        own = tuple(name for name, alarm in self.alarms.items() if not alarm.votes)
        return own if len(own) == len(self.alarms) else (*own, self.vote.name)

    def identity(self, spec: PolicySpec) -> str:
        """Hash of what changes the numbers of a policy: window, scaling, support, rate. Thresholds made under another identity do not carry over."""
        sections = {"window", "sliding_seconds", "tokens", "actions", "motion", "goal", "sampling", "plans"}
        parts = {
            "config": self.model_dump(mode="json", include=sections),
            "spec": spec.model_dump(mode="json", exclude={"name", "version", "cameras"}),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def parse_config(data: object, where: str) -> MonitorConfig:
    """Check a parsed YAML or JSON tree.

    Raises:
        ConfigError: names `where`, the key, what was wrong and, for an unknown key, the nearest known one.
    """
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: expected a mapping of settings, found {type(data).__name__}")
    try:
        return MonitorConfig.model_validate(data)
    except ValidationError as error:
        lines = [f"{where}: {problem}" for problem in (_explain(detail) for detail in error.errors())]
        raise ConfigError("\n".join(lines)) from error


def read_yaml(path: Path, cure: str) -> Any:
    """Read a YAML (or JSON) file. Raises ConfigError that names the file, what was found and, for a file that cannot be read, the `cure`."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); {cure}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start}); {cure}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not YAML: {error}") from error


def load_config(path: Path | None) -> MonitorConfig:
    """Read a YAML file; None gives the defaults. Raises ConfigError as `parse_config`, and for a file that cannot be read."""
    if path is None:
        return MonitorConfig()
    return parse_config(read_yaml(path, "give the path of a YAML file"), str(path))


def _explain(detail: Any) -> str:
    place = ".".join(str(part) for part in detail["loc"]) or "settings"
    if detail["type"] != "extra_forbidden":
        return f"{place}: {detail['msg']} (found {detail['input']!r})"
    known = _known_keys(tuple(str(part) for part in detail["loc"][:-1]))
    near = difflib.get_close_matches(str(detail["loc"][-1]), known, n=1, cutoff=0.4)
    return f"{place}: unknown key" + (f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}")


def _known_keys(parents: tuple[str, ...]) -> list[str]:
    model: type[BaseModel] = MonitorConfig
    for part in parents:
        if model is MonitorConfig and part == "alarms":
            return list(AlarmConfig.model_fields)
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)

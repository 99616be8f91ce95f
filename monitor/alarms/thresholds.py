"""thresholds.yaml: calibrated thresholds with the identity of what they were made for, and how they become the monitor's alarms."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from monitor.assess.series import Origin, origin_of
from monitor.config import AlarmConfig, MonitorConfig, default_alarms, read_yaml
from monitor.errors import ConfigError
from monitor.policy import PolicySpec
from monitor.steps import Family, MetricInfo

_log = logging.getLogger(__name__)

Direction = Literal["above", "below"]
Method = Literal["constant", "functional"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{number} is no threshold; calibrate with more successful runs")
    return number


Finite = Annotated[float, AfterValidator(_finite)]
Level = Finite | Annotated[tuple[Finite, ...], Field(min_length=1)]


class Identity(_Part):
    """What the thresholds were made for; see `Origin`. `tasks` is told, not checked: a live monitor does not know its task set."""

    policy: str
    version: str = "0"
    config: str = ""
    logits_source: str = ""
    support: str = ""
    classes: int = 0
    tasks: tuple[str, ...] = ()

    @property
    def origin(self) -> Origin:
        """Without the tasks."""
        return Origin(self.policy, self.version, self.config, self.logits_source, self.support, self.classes)


class Counts(_Part):
    """Episodes that went in: `successes` fitted the thresholds, `failures` only what was learned (directions, weights)."""

    episodes: int
    successes: int
    failures: int
    unknown: int


class MetricThreshold(_Part):
    """One metric: a number, or one number per step (its last one goes on).

    `threshold` bounds the false alarms of this metric alone, `joint` those of all metrics together (for votes in which one voice is enough).
    `centre` is the usual level in successes: (value - centre) / (threshold - centre) compares metrics.
    """

    metric: str
    label: str
    family: Family
    unit: str = "1"
    direction: Direction = "above"
    threshold: Level
    joint: Level | None = None
    centre: Level
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    runs: int = Field(ge=1, description="successful runs that gave the threshold")

    @property
    def info(self) -> MetricInfo:
        """The metric as alarms and tables know it."""
        name, _, variant = self.metric.partition("/")
        return MetricInfo(
            id=name,
            variant=variant,
            label=self.label,
            family=self.family,
            unit=self.unit,
            low=-math.inf,
            high=math.inf,
            higher_means="",
            formula="",
            source="",
        )


class Thresholds(_Part):
    """The file. `seen` names all episodes that it was made from: an evaluation leaves them out."""

    schema_version: Literal[1] = 1
    identity: Identity
    alpha: float = Field(gt=0, lt=1)
    method: Method
    form: Literal["finite_sample", "interpolated"] = "finite_sample"
    date: str = ""
    tool_version: str = ""
    counts: Counts
    metrics: tuple[MetricThreshold, ...] = Field(min_length=1)
    seen: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _once(self) -> Thresholds:
        keys = [metric.metric for metric in self.metrics]
        twins = sorted({key for key in keys if keys.count(key) > 1})
        if twins:
            raise ValueError(f"{', '.join(twins)}: a metric occurs more than once")
        return self

    @property
    def id(self) -> str:
        """Hash of the numbers and the identity; it names the calibration in alarms."""
        content = self.model_dump(mode="json", exclude={"date", "tool_version"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]

    def text(self, metric: MetricThreshold) -> str:
        """Calibration in words, for an alarm."""
        return f"conformal {self.id}: alpha {self.alpha:g}, {metric.runs} runs of {self.identity.policy}"

    def alarms(self, *, joint: bool, note: str = "") -> dict[str, AlarmConfig]:
        """The thresholds as alarms that vote, by name. `joint`: those that bound false alarms together; `note` is added to each text."""
        return {alarm_name(metric.metric): self._alarm(metric, joint, note) for metric in self.metrics}

    def _alarm(self, metric: MetricThreshold, joint: bool, note: str) -> AlarmConfig:
        level = metric.joint if joint and metric.joint is not None else metric.threshold
        band = level if isinstance(level, tuple) else None
        return AlarmConfig(
            metric=metric.metric,
            threshold=level[-1] if isinstance(level, tuple) else level,
            band=band,
            direction=metric.direction,
            calibration=self.text(metric) + note,
            votes=True,
        )


def alarm_name(key: str) -> str:
    """Name of the calibrated alarm of a metric."""
    return "calibrated_" + key.replace("/", "_").replace(".", "_")


def write_thresholds(thresholds: Thresholds, path: Path) -> None:
    """Write the file aside and rename it. Raises ConfigError when that is not possible."""
    text = "# made by `vla-monitor calibrate`; numbers belong to this policy and configuration only\n" + yaml.dump(
        thresholds.model_dump(mode="json", exclude_defaults=False), Dumper=_Dumper, sort_keys=False, width=150, allow_unicode=True
    )
    aside = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); give another --out") from error


def read_thresholds(path: Path) -> Thresholds:
    """Read and check the file. Raises ConfigError, naming the place, what was found and what to do."""
    tree = read_yaml(path, "make it with `vla-monitor calibrate`")
    try:
        return Thresholds.model_validate(tree)
    except ValidationError as error:
        lines = [f"{path}: {'.'.join(str(p) for p in e['loc']) or 'file'}: {e['msg']}" for e in error.errors()]
        raise ConfigError("\n".join(lines)) from error


def applied(config: MonitorConfig, spec: PolicySpec) -> MonitorConfig:
    """The config with the alarms of its thresholds file in it (unchanged when it names none). Such a config needs the file no more.

    A vote in which one voice is enough takes the joint thresholds. Default alarms on a calibrated metric give way.

    Raises:
        ConfigError: the file is wrong, or was made for another policy or configuration and `calibration.on_mismatch` is `refuse`.
    """
    path = config.calibration.thresholds
    if path is None:
        return config
    thresholds = read_thresholds(path)
    differences = thresholds.identity.origin.differences(origin_of(spec, config))
    note = ""
    if differences:
        text = f"{path}: made for something else: {', '.join(differences)}"
        if config.calibration.on_mismatch == "refuse":
            raise ConfigError(f"{text}; calibrate again, or set calibration.on_mismatch to warn")
        _log.warning("%s; its false-alarm rate does not hold", text)
        note = ", MADE FOR SOMETHING ELSE"
    calibrated = thresholds.alarms(joint=config.vote.mode == "any", note=note)
    weights = config.vote.weights or {metric.metric: metric.weight for metric in thresholds.metrics if metric.weight != 1.0}
    return config.model_copy(
        update={
            "alarms": {**_without_rough(config, thresholds), **calibrated},
            "calibration": config.calibration.model_copy(update={"thresholds": None}),
            "vote": config.vote.model_copy(update={"weights": weights}),
        }
    )


def _without_rough(config: MonitorConfig, thresholds: Thresholds) -> dict[str, AlarmConfig]:
    """Alarms of the config, without untouched default ones on a metric that is calibrated."""
    calibrated = {metric.metric for metric in thresholds.metrics}
    defaults = default_alarms()
    return {name: alarm for name, alarm in config.alarms.items() if alarm.metric not in calibrated or alarm != defaults.get(name)}


class _Dumper(yaml.SafeDumper):
    """Lists of numbers on one line."""


def _sequence(dumper: yaml.SafeDumper, data: Sequence[Any]) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=all(isinstance(item, float) for item in data))


_Dumper.add_representer(list, _sequence)
_Dumper.add_representer(tuple, _sequence)

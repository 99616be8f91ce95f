"""What is started together, as plain data. The launch file and `vla-monitor up` both read it. Imports neither rclpy nor launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from monitor.errors import ConfigError

Value = bool | int | float | str | list[str]

BOOTSTRAP_GUARD: Final = "_ROS_WHEELS_BOOTSTRAP_COMPLETE"
"""Set by the PyPI wheels of ROS 2 in a process that has found its libraries; a child with another interpreter must not inherit it."""

LOCAL_DDS: Final[Mapping[str, str]] = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", "FASTDDS_BUILTIN_TRANSPORTS": "UDPv4"}
"""DDS on this machine only, and without shared memory. A real robot keeps its own settings."""

PACKAGE: Final = "monitor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An argument of the launch file and of `vla-monitor up`. An empty default means: as the configuration says."""

    name: str
    default: str
    description: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process. `module`: for `python -m`; `executable`: its name in the ROS package; `ends_all`: when it ends, the rest is stopped."""

    name: str
    executable: str
    module: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    remappings: Mapping[str, str] = field(default_factory=dict)
    ends_all: bool = False

    def ros_arguments(self) -> list[str]:
        """Command line arguments for rclpy."""
        arguments = ["--ros-args"]
        for name, value in self.parameters.items():
            arguments += ["-p", f"{name}:={yaml_text(value)}"]
        for name, target in self.remappings.items():
            arguments += ["-r", f"{name}:={target}"]
        return arguments


_YES_NO = ("true", "false")

OPTIONS: Final[tuple[Option, ...]] = (
    Option(name="sim", default="true", description="also start the simulated robot; false: your robot publishes the topics itself", choices=_YES_NO),
    Option(name="config", default="", description="path of a YAML file with settings"),
    Option(name="policy", default="", description="policy, by the name it is registered under"),
    Option(name="robot", default="", description="name of this robot: label on the metrics page"),
    Option(name="port", default="", description="port of the metrics page; 0 takes any free one"),
    Option(name="bags", default="", description="folder for bags"),
    Option(name="record", default="", description="write a bag", choices=("", *_YES_NO)),
    Option(
        name="gate",
        default="",
        description="report only tells, hold withholds actions while an alarm that may hold is active",
        choices=("", "report", "hold"),
    ),
    Option(name="sim_robot", default="sim", description="simulated robot, by the name it is registered under"),
    Option(
        name="episodes", default="", description="what the simulated robot does: TASK[:SEED[:PERTURBATION]], comma-separated; empty: each task once"
    ),
    Option(name="rate_factor", default="1.0", description="speed of the simulated robot; 0 as fast as the policy answers"),
    Option(name="use_sim_time", default="false", description="take the time from /clock", choices=_YES_NO),
)


def make_plan(options: Mapping[str, str] | None = None) -> tuple[Process, ...]:
    """The processes for the given options; those not given have their default.

    Raises:
        ConfigError: an option is unknown or has an illegal value.
    """
    chosen = {option.name: option.default for option in OPTIONS}
    for name, value in (options or {}).items():
        if name not in chosen:
            raise ConfigError(f"option {name!r} is unknown; known: {', '.join(chosen)}")
        chosen[name] = value
    for option in OPTIONS:
        if option.choices and chosen[option.name] not in option.choices:
            raise ConfigError(f"option {option.name}: {chosen[option.name]!r} is not one of {', '.join(c for c in option.choices if c)}")
    sim = chosen["sim"] == "true"
    return (_node(chosen, sim), _sim_robot(chosen)) if sim else (_node(chosen, sim),)


def _node(chosen: Mapping[str, str], sim: bool) -> Process:
    parameters: dict[str, Value] = {"use_sim_time": chosen["use_sim_time"] == "true"}
    for option, name in (
        ("config", "config"),
        ("policy", "policy.name"),
        ("robot", "export.robot"),
        ("bags", "recording.folder"),
        ("gate", "gate.mode"),
    ):
        if chosen[option]:
            parameters[name] = chosen[option]
    if chosen["port"]:
        parameters["export.port"] = _number("port", chosen["port"], int)
    if chosen["record"]:
        parameters["recording.enabled"] = chosen["record"] == "true"
    if sim:
        parameters |= {
            "control.trigger": "observation",
            "control.parts": ["tool_pose", "joint_states", "goal"],
            "control.wait_for_episode": True,
            "control.reliable_input": True,
        }
    return Process(name="vla_monitor", executable="vla_monitor", module="monitor.ros.node", parameters=parameters, ends_all=not sim)


def _sim_robot(chosen: Mapping[str, str]) -> Process:
    parameters: dict[str, Value] = {
        "robot": chosen["sim_robot"],
        "rate_factor": _number("rate_factor", chosen["rate_factor"], float),
        "publish_clock": chosen["use_sim_time"] == "true",
    }
    episodes = [part.strip() for part in chosen["episodes"].split(",") if part.strip()]
    if episodes:
        parameters["episodes"] = episodes
    return Process(
        name="sim_robot",
        executable="sim_robot",
        module="monitor.ros.sim_robot",
        parameters=parameters,
        remappings={"action": "vla_monitor/action"},
        ends_all=True,
    )


def _number(option: str, text: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(f"option {option}: {text!r} is not {'a whole number' if kind is int else 'a number'}") from None


def yaml_text(value: Value) -> str:
    """A value as rcl reads it from the command line: texts quoted, so that `123` or `yes` stay texts."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(yaml_text(part) for part in value)}]"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)

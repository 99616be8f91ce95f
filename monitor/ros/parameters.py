"""ROS parameters of the node: every setting of MonitorConfig under its dotted name, made from the pydantic model.

Precedence: defaults, then the YAML file that the parameter `config` names, then parameters. All are read-only: a change needs a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rcl_interfaces.msg import ParameterDescriptor
from rclpy.node import Node

from monitor.config import MonitorConfig, load_config, parse_config

_NOT_OURS = ("use_sim_time", "start_type_description_service", "qos_overrides")


def read_parameters(node: Node) -> MonitorConfig:
    """Declare all parameters of `node` and return the settings that hold.

    The node must have been made with `automatically_declare_parameters_from_overrides=True`, so that a misspelt name is seen and refused.

    Raises:
        ConfigError: the file or a parameter is wrong; the message names the key and, for an unknown one, the nearest known one.
    """
    given = {name: p.value for name, p in node.get_parameters_by_prefix("").items() if name.split(".")[0] not in _NOT_OURS}
    file = str(given.pop("config", "") or "")
    config = merge(Path(file) if file else None, given)
    for name in given:
        node.undeclare_parameter(name)
    if node.has_parameter("config"):
        node.undeclare_parameter("config")
    node.declare_parameter("config", file, ParameterDescriptor(description="path of a YAML file with settings", read_only=True))
    for name, value, text in flatten(config):
        node.declare_parameter(name, value, ParameterDescriptor(description=text, read_only=True, dynamic_typing=True), ignore_override=True)
    return config


def merge(file: Path | None, given: Mapping[str, Any]) -> MonitorConfig:
    """Settings of a YAML file with dotted parameters laid over it. Raises ConfigError as `load_config`."""
    load_config(file)
    tree = {} if file is None else yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    for name, value in given.items():
        *parents, last = name.split(".")
        place = tree
        for parent in parents:
            below = place.get(parent)
            place[parent] = place = dict(below) if isinstance(below, dict) else {}
        place[last] = list(value) if hasattr(value, "tolist") else value
    return parse_config(tree, "parameters" if file is None else f"{file} with parameters")


def flatten(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Dotted name, value as ROS can hold it, and description of every setting."""
    for name, field in type(model).model_fields.items():
        yield from _flatten(f"{prefix}{name}", getattr(model, name), _describe(field))


def _flatten(name: str, value: Any, text: str) -> Iterator[tuple[str, Any, str]]:
    if isinstance(value, BaseModel):
        yield from flatten(value, f"{name}.")
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from _flatten(f"{name}.{key}", below, text)
    elif isinstance(value, Path):
        yield name, str(value), text
    elif isinstance(value, tuple | list):
        yield name, list(value) or None, text
    else:
        yield name, value, text


def _describe(field: FieldInfo) -> str:
    limits = [f"{word} {limit}" for rule in field.metadata for word, limit in _limits(rule)]
    return " ".join(part for part in (field.description or "", f"({', '.join(limits)})" if limits else "") if part)


def _limits(rule: object) -> Iterator[tuple[str, object]]:
    if isinstance(rule, Ge):
        yield ">=", rule.ge
    elif isinstance(rule, Gt):
        yield ">", rule.gt
    elif isinstance(rule, Le):
        yield "<=", rule.le
    elif isinstance(rule, Lt):
        yield "<", rule.lt

"""Words of the command line as arguments of ROS and of the launch plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from monitor.errors import ConfigError
from monitor.ros.plan import Process


def node_arguments(config: Path | None, policy: str | None, parameters: Sequence[str]) -> list[str]:
    """Arguments for rclpy. Raises ConfigError for a parameter that is not NAME:=VALUE."""
    given = {"config": None if config is None else str(config), "policy.name": policy}
    node = Process(name="", executable="", module="", parameters={name: value for name, value in given.items() if value is not None})
    arguments = node.ros_arguments()
    for parameter in parameters:
        if ":=" not in parameter:
            raise ConfigError(f"-p {parameter}: expected NAME:=VALUE, for example -p export.port:=9500")
        arguments += ["-p", parameter]
    return arguments


def launch_options(words: Sequence[str]) -> dict[str, str]:
    """`NAME:=VALUE` words, as `ros2 launch` takes them; a plain `=` is understood too. Raises ConfigError for other words."""
    options: dict[str, str] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator:
            raise ConfigError(f"{word!r}: expected NAME:=VALUE, for example sim:=false")
        options[name.removesuffix(":")] = value
    return options

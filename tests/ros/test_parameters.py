"""ROS parameters and MonitorConfig are the same tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import new_domain
from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter

from monitor.config import MonitorConfig
from monitor.errors import ConfigError
from monitor.ros.parameters import flatten, merge, read_parameters
from monitor.ros.runtime import local_dds


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    local_dds()
    made = Context()
    made.init(args=[], domain_id=new_domain())
    yield made
    made.try_shutdown()


def read(context: Context, given: dict[str, Any]) -> tuple[Node, MonitorConfig]:
    overrides = [Parameter(name, value=value) for name, value in given.items()]
    node = Node("n", context=context, parameter_overrides=overrides, automatically_declare_parameters_from_overrides=True)
    try:
        return node, read_parameters(node)
    except ConfigError:
        node.destroy_node()
        raise


def test_every_setting_is_a_parameter_with_description(context: Context) -> None:
    node, config = read(context, {})
    assert config == MonitorConfig()
    names = [name for name, _, _ in flatten(config)]
    assert {"window", "export.port", "control.trigger", "alarms.uncertain.threshold", "recording.folder", "gate.mode"} <= set(names)
    assert all(node.has_parameter(name) for name in names)
    assert node.get_parameter("export.port").value == config.export.port
    assert "0 takes any free port" in node.describe_parameter("export.port").description
    assert ">= 0" in node.describe_parameter("export.port").description
    assert node.describe_parameter("window").read_only
    node.destroy_node()


def test_parameters_go_over_the_file_and_the_file_over_defaults(context: Context, tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("window: 12\nexport: {port: 1111, robot: r2}\nalarms: {frozen: null}\n")
    node, config = read(
        context,
        {"config": str(file), "export.port": 2222, "alarms.uncertain.threshold": 0.75, "actions.low": [-1.0, -2.0], "policy.options.threads": 2},
    )
    assert (config.window, config.export.port, config.export.robot) == (12, 2222, "r2")
    assert "frozen" not in config.alarms
    assert config.alarms["uncertain"].threshold == 0.75
    assert config.actions.low == (-1.0, -2.0)
    assert config.policy.options == {"threads": 2}
    assert node.get_parameter("export.port").value == 2222
    assert node.get_parameter("window").value == 12
    node.destroy_node()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"export.prot": 1}, "did you mean 'port'"),
        ({"windw": 8}, "did you mean 'window'"),
        ({"window": 1}, "greater than or equal to 4"),
        ({"config": "/nowhere.yaml"}, "cannot be read"),
    ],
)
def test_wrong_parameters_are_refused_with_a_cure(context: Context, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(context, given)


def test_merge_without_ros() -> None:
    assert merge(None, {"recording.enabled": False}).recording.enabled is False

"""`vla-monitor run`: the node alone, as on a robot without a launch file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from monitor.cli.parts import part

EXAMPLE = "vla-monitor run --config monitor.yaml -p export.port:=9500"


def command(
    config: Annotated[Path | None, typer.Option(help="YAML file with settings.")] = None,
    policy: Annotated[str | None, typer.Option(help="Policy, by the name it is registered under.")] = None,
    parameter: Annotated[list[str] | None, typer.Option("--parameter", "-p", help="NAME:=VALUE, over the file; as often as needed.")] = None,
) -> None:
    """Run the monitoring node until Ctrl-C: policy, monitor, alarms, bag, metrics page."""
    from monitor.cli.arguments import node_arguments
    from monitor.config import load_config

    load_config(config)
    arguments = node_arguments(config, policy, parameter or [])
    raise typer.Exit(part("monitor.ros.node").run(None, arguments))

"""`vla-monitor up`: what the launch file starts, without `ros2 launch`."""

from __future__ import annotations

from typing import Annotated

import typer

from monitor.cli import output
from monitor.ros.plan import OPTIONS

EXAMPLE = "vla-monitor up sim:=false config:=monitor.yaml"
_LIST = "\n\n".join(f"{option.name} (default {option.default or 'as configured'}): {option.description}" for option in OPTIONS)


def command(
    options: Annotated[list[str] | None, typer.Argument(help="NAME:=VALUE, the same names as for the launch file.", metavar="NAME:=VALUE")] = None,
) -> None:
    """Start the node and, unless told otherwise, the simulated robot; Ctrl-C stops both."""
    from monitor.cli.arguments import launch_options
    from monitor.ros.up import up

    raise typer.Exit(up(launch_options(options or []), quiet=output.flags.quiet))


HELP = f"{command.__doc__}\n\nNames:\n\n{_LIST}"

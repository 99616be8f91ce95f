"""`vla-monitor demo`: everything at work, without a robot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from monitor.cli import output

EXAMPLE = "vla-monitor demo --fast"


def command(
    episodes: Annotated[str | None, typer.Option(help="TASK[:SEED[:PERTURBATION]], comma-separated; default: a mix that is shown below.")] = None,
    tasks: Annotated[str | None, typer.Option(help="Comma-separated tasks, each once with --seed.")] = None,
    perturbation: Annotated[str, typer.Option(help="Fault of one more episode; an empty text for none.")] = "camera_covered",
    seed: Annotated[int, typer.Option(help="Seed of the scenes, with --tasks.")] = 0,
    policy: Annotated[str, typer.Option(help="Policy, by the name it is registered under; default: the bundled one.")] = "",
    robot: Annotated[str, typer.Option(help="Simulated robot, by the name it is registered under.")] = "sim",
    port: Annotated[int, typer.Option(help="Port of the metrics page; 0 takes a free one.", min=0, max=65535)] = 9464,
    out: Annotated[Path, typer.Option(help="Folder for the bag.")] = Path("bags"),
    live: Annotated[bool, typer.Option("--live/--no-live", help="Show the table while it runs.")] = True,
    fast: Annotated[bool, typer.Option("--fast", help="As fast as the policy answers, instead of real time.")] = False,
    pictures: Annotated[Path | None, typer.Option(help="Save table and page here, as PNG if Chromium is installed, else SVG.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run the simulated robot under the bundled policy and the monitor: live table, metrics page, alarms, bag, replay."""
    from monitor.cli.parts import part
    from monitor.cli.show_demo import show_demo

    ros_demo = part("monitor.ros.demo")
    options = ros_demo.DemoOptions(
        episodes=ros_demo.parse_episodes(episodes, tasks, seed, perturbation),
        port=port or ros_demo.free_port(),
        out=out,
        policy=policy,
        robot=robot,
        fast=fast,
    )
    raise typer.Exit(show_demo(options, live=live and not output.flags.quiet, as_json=as_json, pictures=pictures))

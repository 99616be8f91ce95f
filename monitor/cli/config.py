"""`vla-monitor config`: check a configuration file and show what holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from monitor.cli import output

EXAMPLE = "vla-monitor config monitor.yaml --print"


def command(
    file: Annotated[Path | None, typer.Argument(help="YAML file; without one, the defaults are shown.")] = None,
    show: Annotated[bool, typer.Option("--print", help="Print what holds, as YAML with a remark on each key.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a configuration file; print the effective configuration."""
    from monitor.cli.effective import effective_yaml
    from monitor.config import load_config

    settings = load_config(file)
    if as_json:
        where = None if file is None else str(file)
        output.emit_json("config", {"file": where, "config": settings.model_dump(mode="json")})
    elif show or file is None:
        output.out().print(effective_yaml(settings, file), markup=False, soft_wrap=True, end="")
    else:
        output.out().print(f"{file}: good")

"""`vla-monitor doctor`: what is installed, what is missing, how to get it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from monitor.cli import output

EXAMPLE = "vla-monitor doctor"


def command(
    config: Annotated[Path | None, typer.Option(help="Configuration; gives port and folder to look at.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what is installed, what is missing, and how to get it. Exit 1 if live monitoring would not work."""
    from rich.table import Table

    from monitor.cli.checks import check_all
    from monitor.config import load_config

    findings = check_all(load_config(config))
    if as_json:
        output.emit_json("doctor", {"checks": [finding._asdict() for finding in findings]})
    else:
        table = Table(header_style="dim")
        for name in ("part", "state", "found", "what to do"):
            table.add_column(name)
        style = {"good": "green", "missing": "red", "warning": "yellow", "optional": "dim"}
        for finding in findings:
            table.add_row(finding.part, f"[{style[finding.state]}]{finding.state}[/]", finding.found, finding.cure)
        output.out().print(table)
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)

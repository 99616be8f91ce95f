"""`vla-monitor metrics`: every metric with unit, range and source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from monitor.cli import output

EXAMPLE = "vla-monitor metrics --family token"


def command(
    family: Annotated[str | None, typer.Option(help="Only this family, for example token, action, tool.")] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration; decides window and families.")] = None,
    check: Annotated[str | None, typer.Option(help="Try the rules of the contract on this installed family; exit 1 if it breaks one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List every metric that is installed, with its unit, range and source."""
    from rich.table import Table

    from monitor.cli.catalogue import catalogue
    from monitor.config import load_config

    if check is not None:
        _check(check, config, as_json)
        return
    infos = catalogue(load_config(config), family)
    if as_json:
        output.emit_json("metrics", {"metrics": infos})
        return
    table = Table(header_style="dim")
    for name in ("metric", "name", "family", "unit", "range", "high means", "formula", "source"):
        table.add_column(name, no_wrap=name == "metric")
    for info in infos:
        table.add_row(*(str(info[name]) for name in ("key", "label", "family", "unit", "range", "higher_means", "formula", "source")))
    output.out().print(table)
    output.err().print(f"{len(infos)} metrics")


def _check(family: str, config: Path | None, as_json: bool) -> None:
    from monitor.cli.contract import broken_rules
    from monitor.config import load_config

    problems = broken_rules(family, load_config(config))
    if as_json:
        output.emit_json("metrics-check", {"family": family, "good": not problems, "problems": problems})
    else:
        output.out().print("\n".join(problems) or f"{family}: keeps the contract", markup=False)
    if problems:
        raise typer.Exit(1)

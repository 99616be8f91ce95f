"""`vla-monitor replay`: the numbers of a bag, made again and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from monitor.cli import output

EXAMPLE = "vla-monitor replay bags/vla_2026-11-30_10-00-00"


def command(
    bag: Annotated[Path, typer.Argument(help="Bag folder, or one .mcap or .db3 file.")],
    config: Annotated[Path | None, typer.Option(help="Replay with these settings instead of the recorded ones.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make the reports of a bag again and compare. Exit 0: same numbers; 1: they differ or the bag was cut."""
    from monitor.cli.bag_report import bag_report
    from monitor.config import load_config
    from monitor.export.terminal import closing_table

    report = bag_report(bag, None if config is None else load_config(config))
    if as_json:
        output.emit_json("replay", report.fields())
    else:
        output.out().print(closing_table(report.rows, report.infos))
        output.out().print(report.verdict, style="green" if report.good else "red", markup=False)
        for notice in report.result.notices:
            output.err().print(notice, markup=False)
    if not report.good:
        raise typer.Exit(1)

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
    policy_facts: Annotated[
        Path | None, typer.Option(help="YAML or JSON with the policy's facts (PolicySpec), instead of the recorded ones.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make the reports of a bag again and compare. Exit 0: all of them came out the same; 1: one differs, is missing or could not be compared.

    With other settings than the recorded ones nothing is compared. A bag of another program holds no settings: give --config and --policy-facts.
    """
    from monitor.cli.bag_report import bag_report
    from monitor.config import load_config
    from monitor.export.terminal import closing_table
    from monitor.recording.facts import load_policy_facts

    spec = None if policy_facts is None else load_policy_facts(policy_facts)
    report = bag_report(bag, None if config is None else load_config(config), spec)
    result = report.result
    if as_json:
        output.emit_json("replay", report.fields())
    else:
        output.out().print(closing_table(report.rows, result.infos))
        output.out().print(result.verdict, style="green" if result.good else "red", markup=False)
        for notice in result.notices:
            output.err().print(notice, markup=False)
    if not result.good:
        raise typer.Exit(1)

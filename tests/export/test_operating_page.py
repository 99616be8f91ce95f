"""The operating page names what the exporter serves."""

from __future__ import annotations

import re
from pathlib import Path

from monitor.cli.catalogue import generous_spec
from monitor.engine import Monitor
from monitor.export.prometheus import Exporter

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"


def served() -> set[str]:
    monitor = Monitor(generous_spec())
    exporter = Exporter(monitor.config.export, monitor.infos, "bundled", alarms=tuple(monitor.config.alarms))
    suffix = {"counter": "_total", "info": "_info"}
    return {family.name + suffix.get(family.type, "") for family in exporter.registry.collect()}


def test_every_served_name_has_a_row() -> None:
    rows = set(re.findall(r"^\| `(vla_monitor_\w+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert rows == served()


def test_every_default_alarm_has_a_row() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in Monitor(generous_spec()).config.alarms)


def test_every_issue_code_has_a_row() -> None:
    source = Path(__file__).parents[2] / "monitor"
    codes = {code for file in source.rglob("*.py") for code in re.findall(r'\bIssue\(\s*"(\w+)"', file.read_text(encoding="utf-8"))}
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8").partition("## What an issue")[2], re.MULTILINE))
    assert rows == codes

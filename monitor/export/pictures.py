"""Pictures of a run for documents: the live table at its most telling moment, and a part of the metrics page, as SVG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

from monitor.export.terminal import HISTORY, LiveState, render
from monitor.steps import AlarmPhase

WIDTH = 118


class Pictures:
    """Looks at a state again and again and keeps the moment with the most active alarms, then the longest curves. Belongs to one thread."""

    def __init__(self) -> None:
        self._best = (-1, -1)
        self._table = ""

    def look(self, state: LiveState) -> None:
        """Keep this moment if it tells more than the one kept."""
        report = state.report
        if report is None:
            return
        active = sum(alarm.phase is AlarmPhase.ACTIVE for alarm in state.active.values())
        score = (active, min(report.step, HISTORY))
        if score > self._best:
            self._best, self._table = score, svg(render(state), "vla-monitor demo")

    def save(self, folder: Path, page_lines: Sequence[str], url: str) -> list[Path]:
        """Write `live_table.svg` and `metrics_page.svg`, as far as there is something to show. Returns what was written."""
        drawn = {"live_table.svg": self._table}
        if page_lines:
            drawn["metrics_page.svg"] = svg(Text("\n".join(page_lines), no_wrap=True, overflow="ellipsis"), url)
        folder.mkdir(parents=True, exist_ok=True)
        written = [folder / name for name, text in drawn.items() if text]
        for path in written:
            path.write_text(drawn[path.name], encoding="utf-8")
        return written


def svg(shown: RenderableType, title: str) -> str:
    """Draw something as a terminal window."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(shown)
    return console.export_svg(title=title)

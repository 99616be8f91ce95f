"""Pictures of a run for documents: the live table at its most telling moment, and a part of the metrics page, as SVG or PNG."""

from __future__ import annotations

import io
import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

from monitor.export.terminal import HISTORY, LiveState, render
from monitor.steps import AlarmPhase

WIDTH = 118
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_S = 60.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # Rich names a font on the network; the local one does
)


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


def as_png(drawn: Sequence[Path]) -> tuple[list[Path], str]:
    """Make PNG out of SVG files, with Chromium; the SVG file of a picture that is made goes away.

    Returns the files that are there now, and why some are still SVG (empty if none is).
    """
    browser = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if browser is None:
        return list(drawn), "the pictures stay SVG: Chromium, which makes PNG of them, is not installed" if drawn else ""
    made: list[Path] = []
    trouble = ""
    for path in drawn:
        why = _photograph(browser, path, path.with_suffix(".png"))
        if why:
            trouble = f"{path} stays SVG: {why}"
            made.append(path)
        else:
            path.unlink()
            made.append(path.with_suffix(".png"))
    return made, trouble


def _photograph(browser: str, drawn: Path, photograph: Path) -> str:
    """Show one SVG file in a browser and keep the picture. Returns why that failed."""
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn.read_text(encoding="utf-8"))
    if box is None:
        return "it has no size"
    size = ",".join(str(math.ceil(float(side))) for side in box.groups())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        own = (f"--user-data-dir={profile}", f"--window-size={size}", f"--screenshot={photograph.absolute()}")
        words = [browser, *_FLAGS, *own, drawn.absolute().as_uri()]
        try:
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=CHROMIUM_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{browser} failed: {error}"
    if done.returncode != 0 or not photograph.is_file():
        return f"{browser} ended with code {done.returncode}: {done.stderr.strip()[-300:]}"
    return ""

"""The table of docs/metrics.md, made from what the installed families say about themselves.

python -m monitor.metrics.table                     prints it
python -m monitor.metrics.table docs/metrics.md     writes it between the marks of that page
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path

from monitor.config import MonitorConfig
from monitor.metrics.base import METRIC_GROUP
from monitor.policy import PolicySpec
from monitor.steps import MetricInfo

BEGIN = "<!-- table: python -m monitor.metrics.table docs/metrics.md -->"
END = "<!-- end of table -->"
_HEAD = ("Metric", "Name", "Family", "Unit", "Range", "Higher means", "Formula", "Source")


def installed_infos() -> tuple[MetricInfo, ...]:
    """Infos of every installed family, in order of the families' names."""
    spec, config = PolicySpec(name="table"), MonitorConfig()
    points = sorted(entry_points(group=METRIC_GROUP), key=lambda point: point.name)
    return tuple(info for point in points for info in point.load()(spec, config).infos)


def metrics_table(infos: tuple[MetricInfo, ...]) -> str:
    """One Markdown row for each metric key."""
    lines = [_line(_HEAD), _line(("---",) * len(_HEAD))]
    for info in infos:
        span = f"{info.low:g} to {info.high:g}"
        lines.append(_line((f"`{info.key}`", info.label, str(info.family), info.unit, span, info.higher_means, info.formula, info.source)))
    return "\n".join(lines) + "\n"


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def with_table(page: str, table: str) -> str:
    """The page with `table` between its marks. Raises ValueError when the marks are missing."""
    if BEGIN not in page or END not in page:
        raise ValueError(f"the page lacks the marks {BEGIN} and {END}")
    before, rest = page.split(BEGIN, 1)
    return f"{before}{BEGIN}\n\n{table}\n{END}{rest.split(END, 1)[1]}"


def main(arguments: list[str]) -> None:
    """Print the table, or write it into the page that is named."""
    table = metrics_table(installed_infos())
    if not arguments:
        sys.stdout.write(table)
        return
    path = Path(arguments[0])
    path.write_text(with_table(path.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

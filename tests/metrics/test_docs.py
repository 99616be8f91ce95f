"""The pages about metrics say what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor import Monitor, MonitorConfig
from monitor.config import default_alarms
from monitor.metrics.base import Metric
from monitor.metrics.table import installed_infos, main, metrics_table, with_table
from monitor.steps import Status

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def example() -> Any:
    """The class of docs/adding-a-metric.md."""
    code = re.search(r"```python\n(.*?)```", (DOCS / "adding-a-metric.md").read_text(encoding="utf-8"), re.DOTALL)
    assert code
    names: dict[str, Any] = {}
    exec(code.group(1), names)
    return names["ToolSpeed"]


def test_the_table_of_metrics_is_up_to_date() -> None:
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    assert with_table(page, metrics_table(installed_infos())) == page, "run: python -m monitor.metrics.table docs/metrics.md"


def test_the_table_has_one_row_for_each_key() -> None:
    infos = installed_infos()
    assert len(metrics_table(infos).splitlines()) == len(infos) + 2


def test_the_table_is_written_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(with_table((DOCS / "metrics.md").read_text(encoding="utf-8"), "old\n"), encoding="utf-8")
    main([str(page)])
    assert page.read_text(encoding="utf-8") == (DOCS / "metrics.md").read_text(encoding="utf-8")


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the marks"):
        with_table("no marks", "table")


def test_the_example_is_a_metric_of_one_file(example: Any, make_spec: Any, make_step: Any) -> None:
    spec, config = make_spec(), MonitorConfig.model_validate({"alarms": dict.fromkeys(default_alarms())})
    metric = example(spec, config)
    assert isinstance(metric, Metric)
    monitor = Monitor(spec, config, metrics=[metric])
    reports = [monitor.update(make_step(i, tcp_position=np.array([0.02 * i, 0, 0]))) for i in range(3)]
    assert reports[0]["tcp_speed/full"].status is Status.WARMING_UP
    assert reports[2]["tcp_speed/full"].value == pytest.approx(0.2)


def test_the_example_survives_missing_and_unusable_poses(example: Any, make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    poses = [np.zeros(3), np.full(3, np.nan), None, np.zeros(2), np.zeros(3), np.zeros(3)]
    rows = feed(example(make_spec(), config), [make_step(i, tcp_position=pose) for i, pose in enumerate(poses)])
    expected = [Status.WARMING_UP, Status.INVALID, Status.UNAVAILABLE, Status.UNAVAILABLE, Status.WARMING_UP, Status.OK]
    assert [row.statuses["tcp_speed/full"] for row in rows] == expected

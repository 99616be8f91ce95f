"""Tables of an evaluation, over hand-made episodes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monitor.assess.evaluation import MEAN, POOLED, Detector, Evaluation, evaluate
from monitor.assess.labels import Label, Labels
from monitor.assess.plots import file_name, plot_band, plot_roc
from monitor.assess.series import EpisodeSeries
from monitor.assess.tables import as_fields, markdown, tables, write_json, write_parquet
from monitor.errors import MissingPartError

Make = Callable[..., EpisodeSeries]


def level(episode: EpisodeSeries) -> Any:
    return episode.statements("m/full")


@pytest.fixture
def runs(make_episode: Make) -> list[EpisodeSeries]:
    """Failures run twice as long; within the time of the successes they score higher in `pick` and the same in `push`."""
    good = [make_episode([0.1 * i] * 4, f"{task}{i}", task=task) for task in ("pick", "push") for i in range(4)]
    bad = [
        make_episode([0.5 if task == "pick" else 0.1] * 4 + [0.9] * 4, f"{task}b{i}", task=task, success=False)
        for task in ("pick", "push")
        for i in range(3)
    ]
    return good + bad


@pytest.fixture
def result(runs: list[EpisodeSeries]) -> Evaluation:
    alarm = Detector(name="m", score=level, alarm=lambda e: (0.5, 2) if e.success is False else (None, 0), alpha=0.1, calibrated_on=30)
    return evaluate(runs, [alarm], draws=20)


def value(result: Evaluation, detector: str, task: str, cut: str) -> float | None:
    return next(row.auroc.value for row in result.scores if (row.detector, row.task, row.cut) == (detector, task, cut))


def test_common_time_takes_the_length_leak_away(result: Evaluation) -> None:
    assert value(result, "m", "pick", "common") == 1.0
    assert value(result, "m", "push", "common") == 0.375
    assert value(result, "m", "push", "whole") == 1.0


def test_the_mean_over_tasks_stands_beside_the_pooled_value(result: Evaluation) -> None:
    assert value(result, "m", MEAN, "common") == pytest.approx((1.0 + 0.375) / 2)
    assert value(result, "m", POOLED, "common") == pytest.approx(1.0 / 2 + 0.375 / 2)


def test_baselines_stand_beside(result: Evaluation) -> None:
    assert value(result, "baseline: run length", POOLED, "common") == 1.0
    assert value(result, "baseline: constant", POOLED, "common") == 0.5


def test_alarms_are_judged_by_task_and_overall(result: Evaluation) -> None:
    found = {row.task: row for row in result.alarms}
    assert set(found) == {"pick", "push", POOLED}
    assert (found[POOLED].figures.tpr, found[POOLED].figures.false_alarm_rate, found[POOLED].inside) == (1.0, 0.0, True)


def test_episodes_of_unknown_outcome_are_counted_and_left_out(make_episode: Make, runs: list[EpisodeSeries]) -> None:
    found = evaluate([*runs, make_episode([9.0], "u", success=None)], [], draws=20)
    assert (found.episodes, found.unknown) == (15, 1)
    assert value(found, "baseline: run length", "pick", "whole") == 1.0


def test_one_class_only_is_null_with_its_count_and_a_note(make_episode: Make) -> None:
    found = evaluate([make_episode([1.0], "a"), make_episode([2.0], "b")], [Detector(name="m", score=level)], draws=20)
    assert (found.scores[0].auroc.value, found.scores[0].auroc.n_success) == (None, 2)
    assert "2 runs, 0 failures: one class only" in found.notes[0]


def test_no_episodes_give_empty_tables() -> None:
    found = evaluate([], [Detector(name="m", score=level)], draws=20)
    assert {row.auroc.value for row in found.scores} == {None}


def test_quality_is_correlated_and_compared_with_failures(make_episode: Make) -> None:
    good = [make_episode([0.1 * i], f"g{i}") for i in range(9)]
    bad = [make_episode([2.0 + i], f"b{i}", success=False) for i in range(4)]
    words = ["high"] * 3 + ["medium"] * 3 + ["low"] * 3
    labels = Labels({e.name: {"anna": Label(True, word)} for e, word in zip(good, words, strict=True)})  # type: ignore[arg-type]
    rows = {row.group: row for row in evaluate([*good, *bad], [], labels=labels, draws=20).quality}
    assert rows["rank"].strength == "strong"
    assert (rows["low"].a12, rows["low"].magnitude, rows["low"].n) == (0.0, "large", 3)
    assert rows["success"].p is not None


def test_groups_below_three_runs_are_null_with_their_count(make_episode: Make) -> None:
    labels = Labels({"bag:a": {"anna": Label(True, "high")}})
    rows = evaluate([make_episode([0.1], "a"), make_episode([0.3], "b", success=False)], [], labels=labels, draws=20).quality
    assert all(row.a12 is None and row.p is None and row.n <= 1 for row in rows)


def test_markdown_holds_scores_alarms_and_notes(result: Evaluation) -> None:
    text = markdown(result, "Detection")
    assert "| m | all tasks, mean | 0.688" in text
    assert "0.00 (0.1; 0.00 to" in text
    assert "* pick: common time 4 steps" in text


def test_json_holds_no_nan(result: Evaluation, tmp_path: Any) -> None:
    write_json(as_fields(result), tmp_path / "e.json")
    assert "NaN" not in (tmp_path / "e.json").read_text()


def test_parquet_gives_the_rows_back(result: Evaluation, tmp_path: Any) -> None:
    polars = pytest.importorskip("polars")
    write_parquet(result, tmp_path)
    assert polars.read_parquet(tmp_path / "scores.parquet").to_dicts() == tables(result)["scores"]


def test_parquet_without_polars_tells_what_to_install(result: Evaluation, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(MissingPartError, match="pip install"):
        write_parquet(result, tmp_path)


def test_pictures_are_drawn(runs: list[EpisodeSeries], tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    plot_roc({"m": level}, runs, tmp_path / "roc.svg")
    plot_band("m", level, np.array([0.6]), runs, tmp_path / file_name("tb_entropy/sw_max (below)"))
    assert "<svg" in (tmp_path / "roc.svg").read_text()
    assert "<svg" in (tmp_path / "tb_entropy_sw_max_below.svg").read_text()

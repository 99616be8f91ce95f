"""An evaluation as rows, JSON, Markdown and Parquet."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from monitor.assess.evaluation import MEAN, POOLED, AlarmRow, Evaluation, ScoreRow
from monitor.assess.statistics import Auroc
from monitor.errors import MissingPartError

SCHEMA = "evaluation"


def tables(evaluation: Evaluation) -> dict[str, list[dict[str, Any]]]:
    """Flat rows by table: scores, alarms, quality, episodes."""
    return {
        "scores": [{"detector": row.detector, "task": row.task, "cut": row.cut, **_auroc(row)} for row in evaluation.scores],
        "alarms": [_alarm(row) for row in evaluation.alarms],
        "quality": [asdict(row) for row in evaluation.quality],
        "episodes": [asdict(row) for row in evaluation.per_episode],
    }


def as_fields(evaluation: Evaluation) -> dict[str, Any]:
    """Everything but the rows per episode, for JSON. Infinite numbers become None."""
    agreement = evaluation.agreement
    found = tables(evaluation)
    return {
        "episodes": evaluation.episodes,
        "successes": evaluation.successes,
        "failures": evaluation.failures,
        "unknown": evaluation.unknown,
        "notes": list(evaluation.notes),
        "agreement": None if agreement is None else agreement._asdict(),
        **{name: [_legal(row) for row in found[name]] for name in ("scores", "alarms", "quality")},
    }


def markdown(evaluation: Evaluation, title: str) -> str:
    """Tables over all tasks, then by task, and the notes."""
    parts = [
        f"# {title}",
        f"{evaluation.episodes} episodes: {evaluation.successes} successes, {evaluation.failures} failures, {evaluation.unknown} of unknown outcome "
        "(left out). Intervals: 95 %, bootstrap over runs. `-`: undefined.",
        "## Scores: AUROC of failure",
        _score_table(evaluation.scores, (MEAN, POOLED)),
    ]
    if evaluation.alarms:
        parts += ["## Alarms", _alarm_table([row for row in evaluation.alarms if row.task == POOLED])]
    parts += ["## By task", _score_table(evaluation.scores, None)]
    if evaluation.alarms:
        parts.append(_alarm_table([row for row in evaluation.alarms if row.task != POOLED]))
    if evaluation.quality:
        parts += ["## Quality labels", _quality_text(evaluation), _quality_table(evaluation)]
    if evaluation.notes:
        parts += ["## Notes", "\n".join(f"* {note}" for note in evaluation.notes)]
    return "\n\n".join(parts) + "\n"


def write_parquet(evaluation: Evaluation, folder: Path) -> list[Path]:
    """One Parquet file for each table that has rows. Raises MissingPartError without polars."""
    try:
        polars = importlib.import_module("polars")
    except ImportError as error:
        raise MissingPartError("Parquet needs polars: pip install 'vla-monitor[assess]', or leave it out with --no-parquet") from error
    written = []
    for name, rows in tables(evaluation).items():
        if rows:
            path = folder / f"{name}.parquet"
            polars.DataFrame(rows, infer_schema_length=None).write_parquet(path)
            written.append(path)
    return written


def write_json(fields: Mapping[str, Any], path: Path) -> None:
    """One JSON object; NaN and infinity are refused."""
    path.write_text(json.dumps(fields, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def _auroc(row: ScoreRow) -> dict[str, Any]:
    return {
        "auroc": row.auroc.value,
        "auroc_low": row.auroc.low,
        "auroc_high": row.auroc.high,
        "n_success": row.auroc.n_success,
        "n_failure": row.auroc.n_failure,
    }


def _alarm(row: AlarmRow) -> dict[str, Any]:
    fields = {name: value for name, value in asdict(row.figures).items() if not isinstance(value, tuple)}
    found: dict[str, Any] = {"detector": row.detector, "task": row.task, "alpha": row.alpha, **fields, "inside": row.inside}
    for name, interval in (
        ("false_alarm", row.figures.false_alarm_interval),
        ("expected", row.expected_range),
        ("conformal", row.conformal_range),
    ):
        found[f"{name}_low"], found[f"{name}_high"] = interval
    return found


def _score_table(rows: Sequence[ScoreRow], tasks: Sequence[str] | None) -> str:
    """One line per detector and task, one column per cut. `tasks` None: the single tasks."""
    cells: dict[tuple[str, str], dict[str, ScoreRow]] = {}
    for row in rows:
        if (row.task in tasks) if tasks is not None else (row.task not in (MEAN, POOLED)):
            cells.setdefault((row.detector, row.task), {})[row.cut] = row
    lines = ["| score | task | common time | quarter of the limit | whole run (leaks length) | successes / failures |", "|---|---|---|---|---|---|"]
    for (detector, task), cuts in cells.items():
        read = [_auroc_cell(cuts[cut].auroc) for cut in ("common", "quarter", "whole")]
        common = cuts["common"].auroc
        lines.append(f"| {detector} | {task} | {' | '.join(read)} | {common.n_success} / {common.n_failure} |")
    return "\n".join(lines)


def _alarm_table(rows: Sequence[AlarmRow]) -> str:
    lines = [
        "| alarm | task | TPR | false-alarm rate (alpha; 95 % range) | balanced accuracy | TWA | detection time | lead | alarms per success | n |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        f = row.figures
        promise = "no promise" if row.alpha is None else f"{row.alpha:g}; {_number(row.expected_range.low)} to {_number(row.expected_range.high)}"
        above = " **above**" if row.inside is False else ""
        lead = "-" if f.lead_share is None else f"{f.lead_share:.0%}" + ("" if f.lead_s is None else f", {f.lead_s:.1f} s")
        lines.append(
            f"| {row.detector} | {row.task} | {_number(f.tpr)} | {_number(f.false_alarm_rate)}{above} ({promise}) | {_number(f.balanced_accuracy)} | "
            f"{_number(f.twa)} | {_number(f.detection_time)} | {lead} | {_number(f.false_alarms_per_episode)} | {f.n_success} / {f.n_failure} |"
        )
    return "\n".join(lines)


def _quality_text(evaluation: Evaluation) -> str:
    agreement = evaluation.agreement
    if agreement is None:
        return "One rater, or more than two: no kappa."
    return f"Two raters, {agreement.n} episodes: same label in {_number(agreement.share)}, Cohen's kappa {_number(agreement.kappa)}."


def _quality_table(evaluation: Evaluation) -> str:
    lines = ["| metric | group | n / failures | rho (p) | A12 | p | normal p |", "|---|---|---|---|---|---|---|"]
    for row in evaluation.quality:
        rho = "-" if row.rho is None else f"{row.rho:.2f} ({_number(row.rho_p)}) {row.strength}"
        a12 = "-" if row.a12 is None else f"{row.a12:.2f} {row.magnitude}"
        lines.append(f"| {row.metric} | {row.group} | {row.n} / {row.n_failure} | {rho} | {a12} | {_number(row.p)} | {_number(row.normal_p)} |")
    return "\n".join(lines)


def _auroc_cell(found: Auroc) -> str:
    return "-" if found.value is None else f"{found.value:.3f} ({_number(found.low)} to {_number(found.high)})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}" if 0 < abs(value) < 0.01 else f"{value:.2f}"


def _legal(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}

"""`vla-monitor evaluate`: how well alarms and scores tell failures from successes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from monitor.cli import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.alarms.thresholds import Thresholds
    from monitor.assess.evaluation import Detector
    from monitor.assess.series import EpisodeSeries

EXAMPLE = "vla-monitor evaluate bags/* --thresholds thresholds.yaml --out evaluation"


def command(
    bags: Annotated[list[Path], typer.Argument(help="Bags, or .jsonl files of per-step scalars (ActProbe form), or a folder of such files.")],
    thresholds: Annotated[
        list[Path] | None,
        typer.Option(
            help="File of `calibrate`; its own episodes are left out. Several: each episode by one that has not seen it. None: scores only."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for Markdown, JSON, Parquet and plots; default: print only.")] = None,
    labels: Annotated[Path | None, typer.Option(help="CSV file with outcomes and quality, by one or two raters.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Judge on these tasks only.")] = None,
    config: Annotated[Path | None, typer.Option(help="Monitor configuration whose `vote` and `calibration.on_mismatch` hold.")] = None,
    policy: Annotated[str, typer.Option(help="Name of the policy, for files that do not say it.")] = "unnamed",
    draws: Annotated[int, typer.Option(help="Bootstrap draws.", min=10)] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of bootstrap and noise.")] = 0,
    parquet: Annotated[bool, typer.Option("--parquet/--no-parquet", help="Write Parquet files.")] = True,
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw ROC curves and bands.")] = True,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Judge thresholds on runs that they were not made from: AUROC at common time, alarms, quality labels, beside baselines."""
    from monitor.alarms.detectors import cross_detectors, metric_detectors, unseen_by
    from monitor.alarms.offline import mismatches
    from monitor.alarms.thresholds import read_thresholds
    from monitor.assess.evaluation import evaluate
    from monitor.assess.series import split_by_task
    from monitor.assess.tables import as_fields, markdown, write_parquet
    from monitor.cli.calibrate import read_series
    from monitor.config import load_config
    from monitor.errors import ConfigError

    if out is not None and out.exists() and any(out.iterdir()) and not force:
        raise ConfigError(f"{out}: is not empty; give another --out, or --force to write into it")
    settings = load_config(config)
    series, found_labels = read_series(bags, labels, policy)
    episodes: Sequence[EpisodeSeries] = split_by_task(series.episodes, only)[1] if only else series.episodes
    remarks = list(series.notices)
    made = [read_thresholds(path) for path in thresholds or ()]
    detectors = metric_detectors(series)
    if made:
        wrong = {part for file in made for part in mismatches(file, episodes, on_mismatch=settings.calibration.on_mismatch)}
        remarks += [f"MADE FOR SOMETHING ELSE: {part}" for part in sorted(wrong)]
        chosen = unseen_by(made, episodes)
        remarks.append(f"{len(episodes) - len(chosen)} episodes made the thresholds and are left out")
        if not chosen:
            raise ConfigError(f"thresholds made from all {len(episodes)} episodes given; calibrate with --share, or give others")
        episodes = [episode for episode in episodes if episode.name in chosen]
        detectors = cross_detectors(made, settings.vote, chosen)
    result = evaluate(episodes, detectors, labels=found_labels, draws=draws, seed=seed)
    ids = [file.id for file in made]
    fields = {**as_fields(result), "thresholds": ids, "remarks": remarks}
    text = markdown(result, f"Detection: thresholds {', '.join(ids)}" if ids else "Detection")
    if out is not None:
        _write(out, text, fields)
        if parquet:
            write_parquet(result, out)
        if plots:
            _plot(out, detectors, made, episodes)
    if as_json:
        output.emit_json("evaluation", fields)
    else:
        output.out().print(text, markup=False, soft_wrap=True)
    for remark in remarks:
        output.err().print(remark, markup=False)


def _write(out: Path, text: str, fields: dict[str, object]) -> None:
    from monitor.assess.tables import write_json

    out.mkdir(parents=True, exist_ok=True)
    (out / "evaluation.md").write_text(text, encoding="utf-8")
    head = {"schema": "vla-monitor/evaluation", "schema_version": output.SCHEMA_VERSION, "tool_version": output.tool_version()}
    write_json({**head, **fields}, out / "evaluation.json")


def _plot(out: Path, detectors: Sequence[Detector], made: Sequence[Thresholds], episodes: Sequence[EpisodeSeries]) -> None:
    import numpy as np

    from monitor.assess.plots import file_name, plot_band, plot_roc

    scores = {detector.name: detector.score for detector in detectors if detector.score}
    plot_roc(scores, episodes, out / "roc.svg")
    for metric in made[0].metrics if len(made) == 1 else ():
        sign = 1.0 if metric.direction == "above" else -1.0
        name = metric.metric if sign > 0 else f"{metric.metric} (below)"
        plot_band(name, scores[name], sign * np.atleast_1d(np.asarray(metric.threshold)), episodes, out / file_name(name))

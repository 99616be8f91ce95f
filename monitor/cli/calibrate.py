"""`vla-monitor calibrate`: thresholds with a known false-alarm rate, from labelled recordings."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from monitor.cli import output

if TYPE_CHECKING:
    from monitor.assess.labels import Labels
    from monitor.assess.series import SeriesSet

EXAMPLE = "vla-monitor calibrate bags/* --alpha 0.1 --out thresholds.yaml"


def command(
    bags: Annotated[list[Path], typer.Argument(help="Bags, or .jsonl files of per-step scalars (ActProbe form), or a folder of such files.")],
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("thresholds.yaml"),
    alpha: Annotated[float, typer.Option(help="Share of successful runs that may raise a false alarm.")] = 0.1,
    method: Annotated[Literal["constant", "functional"], typer.Option(help="One threshold, or one per step of the episode.")] = "constant",
    interpolated: Annotated[bool, typer.Option("--interpolated", help="Quantile as in published code; the bound on false alarms is lost.")] = False,
    metric: Annotated[list[str] | None, typer.Option(help="Metrics to calibrate, as id/variant patterns; default: the recommended ones.")] = None,
    below: Annotated[list[str] | None, typer.Option(help="Metrics for which small values are suspicious.")] = None,
    learn: Annotated[bool, typer.Option("--learn", help="Take directions and weights of metrics from the labelled failures too.")] = False,
    labels: Annotated[Path | None, typer.Option(help="CSV file with outcomes, over those that were recorded.")] = None,
    share: Annotated[float, typer.Option(help="Use this share of the scenes of each task; the rest is for `evaluate`.", min=0.0, max=1.0)] = 1.0,
    leave_out: Annotated[list[str] | None, typer.Option(help="Tasks that are not used.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random splits.")] = 0,
    policy: Annotated[str, typer.Option(help="Name of the policy, for files that do not say it.")] = "unnamed",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Fit conformal thresholds from successful runs. The live monitor takes them by `calibration.thresholds` in its configuration."""
    from monitor.alarms.calibration import FitOptions, fit
    from monitor.alarms.thresholds import write_thresholds
    from monitor.assess.series import split_by_scene, split_by_task
    from monitor.errors import ConfigError

    if out.exists() and not force:
        raise ConfigError(f"{out}: exists; give another --out, or --force to overwrite it")
    series, _ = read_series(bags, labels, policy)
    used, _ = split_by_task(series.episodes, leave_out or [])
    if share < 1.0:
        used, _ = split_by_scene(used, share, seed)
    options = FitOptions(
        alpha=alpha,
        method=method,
        interpolated=interpolated,
        metrics=tuple(metric or ()),
        below=tuple(below or ()),
        learn=learn,
        seed=seed,
    )
    thresholds, notices = fit(series.only(used), options, date=datetime.now(UTC).strftime("%Y-%m-%d"), tool_version=output.tool_version())
    write_thresholds(thresholds, out)
    if as_json:
        output.emit_json("thresholds", {"file": str(out), "id": thresholds.id, **thresholds.model_dump(mode="json"), "notices": list(notices)})
    else:
        counts = thresholds.counts
        output.out().print(
            f"{out}: {len(thresholds.metrics)} metrics, {counts.successes} successes of {counts.episodes} episodes, id {thresholds.id}", markup=False
        )
        for found in thresholds.metrics:
            level = found.threshold if isinstance(found.threshold, float) else max(found.threshold)
            kind = "" if isinstance(found.threshold, float) else " (largest of a band)"
            output.out().print(f"  {found.metric}: alarm {found.direction} {level:.4g}{kind}", markup=False)
    for notice in (*series.notices, *notices):
        output.err().print(notice, markup=False)


def read_series(paths: list[Path], labels: Path | None, policy: str) -> tuple[SeriesSet, Labels | None]:
    """Episodes of bags and files, with outcomes of a label file over the recorded ones."""
    from rich.progress import track

    from monitor.assess.labels import read_labels
    from monitor.assess.sources import load_series, relabelled

    shown = sys.stderr.isatty() and not output.flags.quiet
    series = load_series(track(paths, "reading", console=output.err(), transient=True, disable=not shown), _read_bag, policy)
    if labels is None:
        return series, None
    found = read_labels(labels, series.episodes)
    return relabelled(series, found.outcomes()), found


def _read_bag(path: Path) -> SeriesSet:
    from dataclasses import replace

    from monitor.assess.bags import series_from_bag
    from monitor.assess.series import origin_of
    from monitor.engine import load_metrics
    from monitor.recording.reader import BagReader

    reader = BagReader(path)
    facts = reader.facts()
    infos = [info for metric in load_metrics(facts.spec, facts.config) for info in metric.infos]
    rate = facts.config.control.rate_hz or facts.spec.control_hz
    series = series_from_bag(reader, origin_of(facts.spec, facts.config), 1.0 / rate, infos)
    return replace(series, notices=(*series.notices, *(damage.text for damage in reader.damage)))

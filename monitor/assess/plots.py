"""Pictures of an evaluation, as SVG: ROC curves at common time, and series of scores over time with their thresholds and first alarms."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from monitor.assess.detection import first_alarm, stretched
from monitor.assess.evaluation import Scorer, task_scores
from monitor.assess.series import EpisodeSeries
from monitor.assess.statistics import auroc, roc_curve
from monitor.errors import MissingPartError
from monitor.steps import Float

GOOD, BAD, LIMIT = "#2b6cb0", "#c05621", "#444444"  # blue and orange: told apart by colour-blind readers too
MOST_RUNS = 60


def plot_roc(scores: Mapping[str, Scorer], episodes: Sequence[EpisodeSeries], path: Path) -> None:
    """ROC of each score at common time, all tasks pooled. Scores that one class lacks are left out."""
    figure, axes = _figure((6.0, 5.5))
    for name, score in scores.items():
        groups = task_scores(score, episodes, "common").values()
        good, bad = [s for g, _ in groups for s in g], [s for _, b in groups for s in b]
        false, found = roc_curve(good, bad)
        if false.size:
            axes.plot(false, found, linewidth=1.4, label=f"{name} ({auroc(good, bad):.2f})")
    axes.plot([0, 1], [0, 1], linestyle=":", color=LIMIT, linewidth=1, label="chance")
    axes.set(xlabel="share of successes above the threshold", ylabel="share of failures above the threshold", title="ROC at common time, pooled")
    axes.legend(fontsize=7, loc="lower right")
    _save(figure, path)


def plot_band(name: str, score: Scorer, upper: Float | None, episodes: Sequence[EpisodeSeries], path: Path) -> None:
    """Series of one score over time: successes, failures, threshold, and a mark at each first alarm. `upper`: (U,) or None."""
    figure, axes = _figure((8.0, 4.0))
    for failed, colour in ((False, GOOD), (True, BAD)):
        group = [episode for episode in episodes if episode.success is (not failed)][:MOST_RUNS]
        for number, episode in enumerate(group):
            series = score(episode)
            times = np.arange(episode.length) * episode.dt
            axes.plot(times, series, color=colour, alpha=0.35, linewidth=0.7, label=("failures" if failed else "successes") if number == 0 else None)
            step = None if upper is None else first_alarm(series, upper)
            if step is not None:
                axes.plot(times[step], series[step], marker="v", markersize=5, color=colour, markeredgecolor=LIMIT)
    if upper is not None and episodes:
        longest = max(episodes, key=lambda episode: episode.length)
        axes.plot(np.arange(longest.length) * longest.dt, stretched(upper, longest.length), color=LIMIT, linewidth=1.6, label="threshold")
    axes.set(xlabel="time (s)", ylabel=name, title=f"{name}: triangles are first alarms")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)
    _save(figure, path)


def file_name(detector: str) -> str:
    """Name of a picture of a detector."""
    return re.sub(r"[^a-z0-9]+", "_", detector.lower()).strip("_") + ".svg"


def _figure(size: tuple[float, float]) -> tuple[Any, Any]:
    try:
        figures = importlib.import_module("matplotlib.figure")
        importlib.import_module("matplotlib.backends.backend_svg")
    except ImportError as error:
        raise MissingPartError("plots need matplotlib: pip install 'vla-monitor[assess]', or leave them out with --no-plots") from error
    figure = figures.Figure(figsize=size, layout="constrained")
    return figure, figure.add_subplot()


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, format="svg", metadata={"Date": None})

"""Paths on the command line to one SeriesSet: bags, and files of other formats, each through its own reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from monitor.assess.actprobe import UNNAMED, read_actprobe
from monitor.assess.series import EpisodeSeries, SeriesSet
from monitor.errors import StepError
from monitor.steps import MetricInfo

Reader = Callable[[Path], SeriesSet]

READERS: dict[str, Callable[[Path, str], SeriesSet]] = {".jsonl": read_actprobe}  # suffix -> reader of a file and the policy's name


def load_series(paths: Iterable[Path], read_bag: Reader, policy: str = UNNAMED) -> SeriesSet:
    """Read everything; a folder of .jsonl files stands for its files, any other path for a bag.

    `policy` names the policy of files that do not say it themselves.

    Raises:
        StepError: no path was given, an episode occurs twice, or a file cannot be read. BagError as `read_bag` does.
    """
    sets = [READERS[file.suffix](file, policy) if file.suffix in READERS else read_bag(file) for path in paths for file in _files(path)]
    if not sets:
        raise StepError("nothing to read: give bags, or .jsonl files")
    return joined(sets)


def joined(sets: Sequence[SeriesSet]) -> SeriesSet:
    """Several sets as one. Raises StepError for an episode that occurs twice."""
    episodes: dict[str, EpisodeSeries] = {}
    infos: dict[str, MetricInfo] = {}
    for one in sets:
        infos.update(one.infos)
        for episode in one.episodes:
            if episode.name in episodes:
                raise StepError(f"{episode.name}: read twice; give each recording once")
            episodes[episode.name] = episode
    return SeriesSet(episodes=tuple(episodes.values()), infos=infos, notices=tuple(text for one in sets for text in one.notices))


def relabelled(series: SeriesSet, outcomes: dict[str, bool]) -> SeriesSet:
    """The set with other outcomes, by episode name (`source:episode_id`)."""
    return series.only([replace(e, success=outcomes.get(e.name, e.success)) for e in series.episodes])


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in READERS) or [path]
    return [path]

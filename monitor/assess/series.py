"""EpisodeSeries: one finished episode as series of metric values, whatever it was read from. Calibration and evaluation know nothing else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from monitor.config import MonitorConfig
from monitor.errors import StepError
from monitor.policy import PolicySpec
from monitor.steps import Float, MetricInfo, Status


@dataclass(frozen=True, slots=True)
class Origin:
    """What the numbers came from; thresholds made under one origin do not carry over to another.

    Attributes:
        policy, version: of the policy that acted.
        config: identity of the monitor's configuration (window, scaling, support), or the name of the foreign format.
        logits_source: `raw` or `filtered`; empty for policies without tokens.
        support: `restricted`, `full`, or empty. classes: K, size of the softmax; 0 without tokens.
    """

    policy: str
    version: str = "0"
    config: str = ""
    logits_source: str = ""
    support: str = ""
    classes: int = 0

    def differences(self, other: Origin) -> list[str]:
        """One sentence part for each fact in which `other` differs."""
        names = ("policy", "version", "config", "logits_source", "support", "classes")
        return [f"{n} {getattr(other, n)!r} instead of {getattr(self, n)!r}" for n in names if getattr(self, n) != getattr(other, n)]


def origin_of(spec: PolicySpec, config: MonitorConfig) -> Origin:
    """Origin of the numbers that a monitor with these facts and settings gives."""
    if spec.token_kind == "none" or spec.token_support is None:
        return Origin(spec.name, spec.version, config.identity(spec))
    start, stop = spec.token_support
    classes = stop - start if config.tokens.support == "restricted" else spec.vocab_size or 0
    return Origin(spec.name, spec.version, config.identity(spec), spec.logits_source, config.tokens.support, classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSeries:
    """One task attempt.

    Attributes:
        origin: what acted and how it was measured.
        task: name of the task. episode_id: unique within its source.
        success: None when nobody knows; such runs are neither successes nor failures.
        length: number T of control steps. dt: control period in s.
        time_limit: steps after which an attempt is given up; None when unknown.
        values: metric key -> (T,) float64, NaN where there is no number.
        statuses: metric key -> (T,) uint8, see Status.
        source: file or folder it was read from. perturbation, seed: for simulated scenes.

    Raises:
        StepError: a series has another length than the episode, or `values` and `statuses` have different keys.
    """

    origin: Origin
    task: str
    episode_id: str
    success: bool | None
    length: int
    dt: float
    values: Mapping[str, Float]
    statuses: Mapping[str, NDArray[np.uint8]]
    time_limit: int | None = None
    source: str = ""
    perturbation: str = ""
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.values.keys() != self.statuses.keys():
            raise StepError(f"{self.name}: values and statuses name different metrics")
        for key, series in self.values.items():
            if series.shape != (self.length,) or self.statuses[key].shape != (self.length,):
                raise StepError(f"{self.name}: {key} has shape {series.shape}, the episode {self.length} steps")

    @property
    def name(self) -> str:
        """Unique over sources: `source:episode_id`."""
        return f"{self.source}:{self.episode_id}"

    @property
    def scene(self) -> str:
        """What must not be split between calibration and test: runs of the same task and seed share a scene."""
        return self.name if self.seed is None else f"{self.task}#{self.seed}"

    def statements(self, key: str) -> Float:
        """(T,) values of a metric where its status is OK, NaN elsewhere (and everywhere for a metric that is not there)."""
        if key not in self.values:
            return np.full(self.length, np.nan)
        return np.where(self.statuses[key] == Status.OK, self.values[key], np.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSet:
    """Episodes that belong together. `infos` says what each metric is; `notices` what was left out while reading, and why, with counts."""

    episodes: tuple[EpisodeSeries, ...]
    infos: Mapping[str, MetricInfo]
    notices: tuple[str, ...] = field(default=())

    @property
    def keys(self) -> list[str]:
        """Metrics of `infos` with at least one statement in one episode."""
        return [key for key in self.infos if any(np.isfinite(episode.statements(key)).any() for episode in self.episodes)]

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks, sorted."""
        return sorted({episode.task for episode in self.episodes})

    def origin(self) -> Origin:
        """The one origin of all episodes.

        Raises:
            StepError: there is no episode, or they come from several policies or configurations.
        """
        found = Counter(episode.origin for episode in self.episodes)
        if not found:
            raise StepError("no episodes: give bags or files that hold some")
        (first, _), *others = found.most_common()
        if others:
            other, count = others[0]
            raise StepError(
                f"{count} episodes come from elsewhere: {', '.join(first.differences(other))}; give those of one policy and configuration"
            )
        return first

    def only(self, episodes: Sequence[EpisodeSeries]) -> SeriesSet:
        """The same set with these episodes."""
        return replace(self, episodes=tuple(episodes))


def split_by_scene(episodes: Sequence[EpisodeSeries], share: float, seed: int) -> tuple[list[EpisodeSeries], list[EpisodeSeries]]:
    """Draw about `share` of the scenes of each task; returns (drawn, rest). Runs of one scene stay together; same seed, same split."""
    drawn: set[str] = set()
    for task in sorted({episode.task for episode in episodes}):
        scenes = sorted({episode.scene for episode in episodes if episode.task == task})
        random.Random(f"{seed}/{task}").shuffle(scenes)  # noqa: S311 - a reproducible split, no secret
        drawn.update(scenes[: round(share * len(scenes))])
    return [e for e in episodes if e.scene in drawn], [e for e in episodes if e.scene not in drawn]


def split_by_task(episodes: Sequence[EpisodeSeries], left_out: Collection[str]) -> tuple[list[EpisodeSeries], list[EpisodeSeries]]:
    """Returns (episodes of other tasks, episodes of the tasks that are left out).

    Raises:
        StepError: a task that is to be left out does not occur.
    """
    known = {episode.task for episode in episodes}
    for task in left_out:
        if task not in known:
            raise StepError(f"task {task!r} does not occur; known: {', '.join(sorted(known))}")
    return [e for e in episodes if e.task not in left_out], [e for e in episodes if e.task in left_out]

"""The live alarms over finished episodes: the same state machine and the same vote, so that an evaluation tells what the robot would have heard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from monitor.alarms.rules import AlarmBoard
from monitor.alarms.thresholds import MetricThreshold, Thresholds
from monitor.assess.detection import first_alarm, stretched
from monitor.assess.series import EpisodeSeries
from monitor.config import AlarmConfig, VoteConfig
from monitor.errors import ConfigError
from monitor.steps import AlarmPhase, Float, Status

MOST_EXCESS = 10.0


@dataclass(frozen=True, slots=True)
class Heard:
    """Steps at which an alarm became active in one episode of `length` steps; `text` is its first explanation."""

    steps: tuple[int, ...]
    length: int
    text: str = ""

    @property
    def first(self) -> float | None:
        """First of them as share of the episode, None without an alarm."""
        return self.steps[0] / self.length if self.steps else None


def metric_alarm(metric: MetricThreshold, episode: EpisodeSeries) -> Heard:
    """First step at which one metric alone is beyond its own threshold."""
    sign = 1.0 if metric.direction == "above" else -1.0
    step = first_alarm(sign * episode.statements(metric.metric), sign * np.asarray(metric.threshold, dtype=np.float64))
    return Heard(() if step is None else (step,), episode.length)


class OfflineVote:
    """The vote of a thresholds file, run over episodes.

    Raises:
        ConfigError: as `monitor.alarms.vote.Vote`.
    """

    def __init__(self, thresholds: Thresholds, vote: VoteConfig) -> None:
        weights = vote.weights or {metric.metric: metric.weight for metric in thresholds.metrics}
        self.config = vote.model_copy(update={"weights": weights})
        self._keys = tuple(metric.metric for metric in thresholds.metrics)
        alarms: Mapping[str, AlarmConfig] = thresholds.alarms(joint=vote.mode == "any")
        self._board = AlarmBoard(alarms, tuple(metric.info for metric in thresholds.metrics), self.config)

    def run(self, episode: EpisodeSeries) -> Heard:
        """All activations in one episode; time is step number times control period."""
        self._board.reset()
        values = np.stack([episode.values.get(key, np.full(episode.length, np.nan)) for key in self._keys])
        unavailable = np.full(episode.length, int(Status.UNAVAILABLE), np.uint8)
        statuses = np.stack([episode.statuses.get(key, unavailable) for key in self._keys])
        steps, text = [], ""
        for step in range(episode.length):
            for state in self._board.update(values[:, step], statuses[:, step], step * episode.dt, step):
                if state.changed and state.phase is AlarmPhase.ACTIVE:
                    steps.append(step)
                    text = text or state.text
        return Heard(tuple(steps), episode.length, text)


def excess(metric: MetricThreshold, episode: EpisodeSeries) -> Float:
    """(T,) how far a metric is on its way from usual (0) to its threshold (1); NaN without a statement. Comparable between metrics.

    The joint threshold where there is one, so that the largest excess over metrics goes beyond 1 exactly when a vote of one voice is raised. Cut at
    +-10: a metric that never moved in the successes has no scale of its own.
    """
    sign = 1.0 if metric.direction == "above" else -1.0
    level = metric.threshold if metric.joint is None else metric.joint
    upper, centre = (sign * stretched(np.asarray(part, dtype=np.float64), episode.length) for part in (level, metric.centre))
    width = np.maximum(upper - centre, 1e-9)
    return np.clip(1.0 + (sign * episode.statements(metric.metric) - upper) / width, -MOST_EXCESS, MOST_EXCESS)


def mismatches(thresholds: Thresholds, episodes: Sequence[EpisodeSeries], *, on_mismatch: str = "refuse") -> list[str]:
    """Differences between what the thresholds were made for and what the episodes are. Raises ConfigError for any, unless told to `warn`."""
    found = sorted({part for episode in episodes for part in thresholds.identity.origin.differences(episode.origin)})
    if found and on_mismatch == "refuse":
        raise ConfigError(f"thresholds {thresholds.id} were made for something else: {', '.join(found)}; calibrate on such episodes")
    return found

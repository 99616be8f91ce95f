"""Per-episode aggregates of every metric: count, mean, maximum and sliding-window maximum, kept step by step in constant memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from monitor.steps import MetricInfo, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSummary:
    """One metric over one episode.

    Attributes:
        key: `id/variant`. count: steps with a statement (status OK); inferences for token, plan and sampling metrics.
        mean, max: over those steps; None when there was none.
        sliding_max: largest mean over `sliding_steps` consecutive statements (all of them in a shorter episode). For alarms prefer it to the mean,
            which dilutes short spikes (Römer et al., arXiv 2603.18342).
        ok_share: count / steps, 0 to 1.
    """

    key: str
    count: int
    mean: float | None
    max: float | None
    sliding_max: float | None
    ok_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSpan:
    """One activation of an alarm: first and last step at which it was active (last is None while it still is)."""

    name: str
    first_step: int
    last_step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSummary:
    """What the monitor says about a whole episode. `steps` counts accepted ones."""

    episode_id: str
    instruction: str
    steps: int
    metrics: tuple[MetricSummary, ...]
    alarms: tuple[AlarmSpan, ...] = ()
    counters: dict[str, int] = field(default_factory=dict)

    def __getitem__(self, key: str) -> MetricSummary:
        for metric in self.metrics:
            if metric.key == key:
                return metric
        raise KeyError(f"{key!r} is not computed; known: {', '.join(metric.key for metric in self.metrics)}")


class Aggregator:
    """Running aggregates over M metrics; used from one thread."""

    def __init__(self, infos: tuple[MetricInfo, ...], sliding_steps: int) -> None:
        m = len(infos)
        self._infos = infos
        self._steps = 0
        self._count = np.zeros(m, np.int64)
        self._totals = np.zeros((4, m))  # sum, max, sum of the sliding window, its largest mean
        self._ring = np.zeros((sliding_steps, m))
        self.reset()

    def reset(self) -> None:
        """Forget the episode."""
        self._steps = 0
        self._count[:] = 0
        self._totals[:] = 0.0
        self._totals[1] = self._totals[3] = -np.inf

    def update(self, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> None:
        """Take the row of one accepted step."""
        self._steps += 1
        _accumulate(values, statuses, self._count, self._totals, self._ring)

    def summaries(self) -> tuple[MetricSummary, ...]:
        """One MetricSummary per metric, in the order of `infos`."""
        return tuple(self._summary(i, info.key) for i, info in enumerate(self._infos))

    def _summary(self, i: int, key: str) -> MetricSummary:
        count = int(self._count[i])
        if count == 0:
            return MetricSummary(key=key, count=0, mean=None, max=None, sliding_max=None, ok_share=0.0)
        total, largest, window, sliding = (float(x) for x in self._totals[:, i])
        if count < len(self._ring):
            sliding = window / count
        return MetricSummary(key=key, count=count, mean=total / count, max=largest, sliding_max=sliding, ok_share=count / self._steps)

    @property
    def steps(self) -> int:
        """Accepted steps so far."""
        return self._steps


_OK = int(Status.OK)


@numba.njit(cache=True)
def _accumulate(values: Any, statuses: Any, count: Any, totals: Any, ring: Any) -> None:
    span = ring.shape[0]
    for i in range(values.shape[0]):
        v = values[i]
        if statuses[i] != _OK or not np.isfinite(v):
            continue
        slot = count[i] % span
        if count[i] >= span:
            totals[2, i] -= ring[slot, i]
        ring[slot, i] = v
        totals[2, i] += v
        count[i] += 1
        totals[0, i] += v
        if v > totals[1, i]:
            totals[1, i] = v
        if count[i] >= span and totals[2, i] / span > totals[3, i]:
            totals[3, i] = totals[2, i] / span

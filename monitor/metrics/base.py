"""The contract of a metric family: say what you compute, then fill your row at every step."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from monitor.config import MonitorConfig
from monitor.policy import PolicySpec
from monitor.steps import Issue, MetricInfo, PolicyStep

METRIC_GROUP = "vla_monitor.metrics"


@runtime_checkable
class Metric(Protocol):
    """A family of numbers computed from the stream of steps. One object per monitor and thread.

    `update` writes one value and one status per entry of `infos`; both arrays are the engine's own, already filled with NaN and
    Status.UNAVAILABLE, and must not be kept. It never raises on data, allocates nothing that grows, and returns what was wrong with the step's
    data (usually the empty tuple). `reset` returns to the state of a new object. Steps arrive in order: the engine has already dropped
    duplicates and late ones and calls `reset` at an episode's boundary; gaps in `step.step` are the family's own business.
    """

    infos: tuple[MetricInfo, ...]

    def update(self, step: PolicyStep, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        """Take one step and fill the row."""
        ...

    def reset(self) -> None:
        """Forget everything."""
        ...


class MetricFactory(Protocol):
    """What an entry point in `vla_monitor.metrics` names: a class or function that makes the family for one policy."""

    def __call__(self, spec: PolicySpec, config: MonitorConfig) -> Metric:
        """Make the family. Raises ConfigError when the spec and the config contradict each other."""
        ...

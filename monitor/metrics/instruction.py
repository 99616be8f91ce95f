"""The instruction: whether it is empty, and how often it has changed inside the episode."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from monitor.config import MonitorConfig
from monitor.metrics.common import make_info
from monitor.policy import PolicySpec
from monitor.steps import Family, Issue, MetricInfo, PolicyStep, Status

_EMPTY, _CHANGES = range(2)
_SOURCE = "no paper defines it"


class InstructionMetrics:
    """Facts about the sentence. Unavailable while no step of the episode has carried one: then the policy takes none, or the engine, which
    remembers other episodes, tells the issue `instruction_empty`.
    """

    def __init__(self, spec: PolicySpec, config: MonitorConfig) -> None:
        """Prepare."""
        self.infos = _infos()
        self.reset()

    def reset(self) -> None:
        """Forget the episode."""
        self._last: str | None = None
        self._instructed = False
        self._changes = 0

    def update(self, step: PolicyStep, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        """Take one step; see Metric."""
        text = step.instruction
        if text != self._last:
            self._changes += self._last is not None
            self._last = text
            self._instructed = self._instructed or bool(text.strip())
        if self._instructed:
            values[_EMPTY], statuses[_EMPTY] = float(not text.strip()), Status.OK
            values[_CHANGES], statuses[_CHANGES] = self._changes, Status.OK
        return ()


def _infos() -> tuple[MetricInfo, ...]:
    rows = (
        ("empty", "Instruction empty", 1.0, "no instruction", "1 while the policy is given no words, after it was given some"),
        ("changes", "Instruction changes", float("inf"), "changed more often", "times the sentence has changed inside the episode"),
    )
    return tuple(
        make_info("instruction", variant, label, Family.VALIDITY, formula, unit="count", high=high, higher_means=meaning, source=_SOURCE)
        for variant, label, high, meaning, formula in rows
    )

"""Age of the inference that acts, time of the policy call against its budget, and regularity of the control steps."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from monitor.config import MonitorConfig
from monitor.metrics.common import make_info, new_inference
from monitor.policy import PolicySpec
from monitor.steps import Family, Issue, MetricInfo, PolicyStep, Status

_AGE, _BUDGET, _JITTER = range(3)
_SOURCE = "no paper defines it"


class TimingMetrics:
    """Timing of the policy and of the steps. Time comes from the steps only."""

    def __init__(self, spec: PolicySpec, config: MonitorConfig) -> None:
        """Prepare."""
        self.infos = _infos()
        self._period, self._window = 1.0 / spec.control_hz, config.window
        self._budget = spec.executed * self._period
        self.reset()

    def reset(self) -> None:
        """Forget the episode."""
        self._inference: int | None = None
        self._born = 0
        self._share = math.nan
        self._last: tuple[int, float] | None = None
        self._squares: list[float] = []

    def update(self, step: PolicyStep, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        """Take one step; see Metric."""
        if new_inference(step, self._inference):
            self._inference, self._born, self._share = step.inference_id, step.step - max(step.chunk_offset, 0), math.nan
        values[_AGE], statuses[_AGE] = step.step - self._born, Status.OK
        issues: tuple[Issue, ...] = ()
        if step.inference_seconds is not None:
            issues = self._take_seconds(step.inference_seconds)
        if not math.isnan(self._share):
            values[_BUDGET], statuses[_BUDGET] = self._share, Status.OK
        elif issues:
            statuses[_BUDGET] = Status.INVALID
        self._take_time(step, values, statuses)
        return issues

    def _take_seconds(self, seconds: float) -> tuple[Issue, ...]:
        if 0.0 <= seconds < math.inf:
            self._share = seconds / self._budget
            return ()
        self._share = math.nan
        return (Issue("inference_seconds", f"inference took {seconds} s; expected a finite number of at least 0"),)

    def _take_time(self, step: PolicyStep, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> None:
        """Jitter over the last W intervals; time that stands still, runs backwards or is not finite starts anew."""
        last, self._last = self._last, (step.step, step.time)
        passed = math.nan if last is None else step.time - last[1]
        if last is None or not 0.0 < passed < math.inf:
            self._squares.clear()
        else:
            self._squares.append((passed / (step.step - last[0]) - self._period) ** 2)
            del self._squares[: -self._window]
        if len(self._squares) < self._window:
            statuses[_JITTER] = Status.WARMING_UP
        else:
            values[_JITTER], statuses[_JITTER] = math.sqrt(sum(self._squares) / self._window), Status.OK


def _infos() -> tuple[MetricInfo, ...]:
    rows = (
        ("age", "steps", "Age", "steps", "acts on older pictures", "steps since the observation from which the acting inference was made"),
        (
            "inference",
            "budget",
            "Inference time",
            "1",
            "too slow above 1",
            "time of the policy call over the time for which its actions are executed",
        ),
        ("rate", "jitter", "Jitter", "s", "less regular", "root mean square of interval - control period over the last W intervals"),
    )
    return tuple(
        make_info(metric, variant, label, Family.TIMING, formula, unit=unit, higher_means=meaning, source=_SOURCE)
        for metric, variant, label, unit, meaning, formula in rows
    )

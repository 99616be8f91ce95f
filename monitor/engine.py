"""Monitor: takes the stream of policy steps and says, for each, what every metric and alarm says. No I/O, no clock, no threads of its own.

The same steps in the same order give the same reports, bit for bit: time enters only through the steps. Alarms that are not quiet at the end of an
episode are told as quiet with the first report of the next one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from monitor.aggregate import Aggregator, AlarmSpan, EpisodeSummary
from monitor.alarms.rules import AlarmBoard
from monitor.alarms.thresholds import applied
from monitor.config import MonitorConfig
from monitor.errors import ConfigError
from monitor.metrics.base import METRIC_GROUP, Metric, MetricFactory
from monitor.metrics.common import new_inference
from monitor.metrics.defaults import reason_unavailable
from monitor.policy import PolicySpec
from monitor.steps import AlarmPhase, AlarmState, Family, Issue, MetricInfo, PolicyStep, Status, StepReport

_MAX_SPANS = 1000


class Monitor:
    """The engine. One object per policy; used from one thread.

    Args:
        spec: facts about the policy.
        config: settings; defaults if None.
        metrics: families to use instead of the installed ones (tests, embedding).

    Raises:
        ConfigError: config and spec contradict each other, or name a metric that is not installed.

    Example:
        >>> from monitor import Monitor, PolicySpec, PolicyStep
        >>> monitor = Monitor(PolicySpec(name="demo", action_low=(-1.0,) * 7, action_high=(1.0,) * 7))
        >>> report = monitor.update(PolicyStep(time=0.0, episode_id="e1", step=0, action=[0.0] * 7))
        >>> report["a_vi/full"].status.name
        'WARMING_UP'
    """

    def __init__(self, spec: PolicySpec, config: MonitorConfig | None = None, *, metrics: Sequence[Metric] | None = None) -> None:
        self.spec = spec
        self.config = applied(config or MonitorConfig(), spec)
        self._metrics = tuple(metrics) if metrics is not None else load_metrics(spec, self.config)
        self.infos: tuple[MetricInfo, ...] = tuple(info for metric in self._metrics for info in metric.infos)
        _refuse_twins(self.infos)
        self._values = np.full(len(self.infos), np.nan)
        self._statuses = np.full(len(self.infos), int(Status.UNAVAILABLE), np.uint8)
        self._rows = _rows(self._metrics, self._values, self._statuses)
        self._frozen = next((i for i, info in enumerate(self.infos) if info.key == "frozen/flag"), None)
        self._motion_dependent = np.array([i for i, info in enumerate(self.infos) if info.family in (Family.ACTION, Family.TOOL)], np.int64)
        held = (Family.TOKEN, Family.PLAN, Family.SAMPLING)
        self._per_inference = np.array([i for i, info in enumerate(self.infos) if info.family in held], np.int64)
        self._alarms = AlarmBoard(self.config.alarms, self.infos, self.config.vote)
        self._silent = _silent_alarms(spec, self.config, self.infos)
        self._was_instructed = False
        self._aggregator = Aggregator(self.infos, max(1, round(self.config.sliding_seconds * spec.control_hz)))
        self._counters: Counter[str] = Counter()
        self._finished: EpisodeSummary | None = None
        self._episode: str | None = None
        self._over: tuple[AlarmState, ...] = ()
        self._clear()

    @property
    def counters(self) -> Mapping[str, int]:
        """Totals since the monitor was made: steps by verdict, episodes, gaps, and issues by code. A closed set of keys."""
        return self._counters

    @property
    def finished(self) -> EpisodeSummary | None:
        """Summary of the last episode that has ended."""
        return self._finished

    def update(self, step: PolicyStep) -> StepReport:
        """Take one step. Never raises on data: what is wrong becomes a status, an issue and a counter."""
        try:
            return self._update(step)
        except Exception as error:  # the robot must keep its policy whatever happens here
            self._counters["failed"] += 1
            issue = Issue("monitor_failed", f"{type(error).__name__}: {error}")
            return self._report(step, "failed", (issue,), Status.INVALID)

    def reset(self) -> None:
        """End the current episode (its summary becomes `finished`) and forget everything but the counters."""
        if self._episode is not None:
            self._finished = self.summary()
        self._episode = None
        self._clear()

    def summary(self) -> EpisodeSummary:
        """Aggregates of the current episode; before the first step, of an empty one."""
        return EpisodeSummary(
            episode_id=self._episode or "",
            instruction=self._instruction,
            steps=self._aggregator.steps,
            metrics=self._aggregator.summaries(),
            alarms=tuple(AlarmSpan(name=name, first_step=first, last_step=last) for name, first, last in self._spans),
            counters=dict(self._counters - self._counters_before),
        )

    def _clear(self) -> None:
        for metric in self._metrics:
            metric.reset()
        self._over += self._alarms.reset()
        self._aggregator.reset()
        self._last_step: int | None = None
        self._inference: int | None = None
        self._last_time = -math.inf
        self._clock = 0.0
        self._clock_offset = 0.0
        self._instruction = ""
        self._spans: list[tuple[str, int, int | None]] = []
        self._counters_before = self._counters.copy()

    def _update(self, step: PolicyStep) -> StepReport:
        if step.episode_id != self._episode:
            self.reset()
            self._episode = step.episode_id
            self._counters["episodes"] += 1
            self._instruction = step.instruction
        elif self._last_step is not None and step.step <= self._last_step:
            verdict: Literal["duplicate", "late"] = "duplicate" if step.step == self._last_step else "late"
            self._counters[verdict] += 1
            return self._report(step, verdict, (), Status.UNAVAILABLE)
        issues = self._advance(step)
        self._values.fill(np.nan)
        self._statuses.fill(Status.UNAVAILABLE)
        for metric, values, statuses in self._rows:
            try:
                found = metric.update(step, values, statuses)
            except Exception as error:  # one family's fault must not silence the others
                values.fill(np.nan)
                statuses.fill(Status.INVALID)
                found = (Issue("metric_failed", f"{type(metric).__name__}: {type(error).__name__}: {error}"),)
            if found:
                issues = tuple(dict.fromkeys(issues + found))  # two families may see the same fault
        if self._frozen is not None and self._values[self._frozen] == 1.0:
            judged = self._motion_dependent[self._statuses[self._motion_dependent] == Status.OK]
            self._statuses[judged] = Status.UNINFORMATIVE
        alarms = self._over + self._alarms.update(self._values, self._statuses, self._clock, step.step)
        self._over = ()
        self._aggregate(step)
        self._count(step, alarms, issues)
        return StepReport(
            time=step.time,
            episode_id=step.episode_id,
            step=step.step,
            verdict="accepted",
            infos=self.infos,
            values=self._values.copy(),
            statuses=self._statuses.copy(),
            alarms=alarms,
            issues=issues,
        )

    def _aggregate(self, step: PolicyStep) -> None:
        """Feed the episode's aggregates. Values of an inference count once, however many steps it acts for."""
        statuses = self._statuses
        if new_inference(step, self._inference):
            self._inference = step.inference_id
        else:
            statuses = statuses.copy()
            statuses[self._per_inference] = Status.UNAVAILABLE
        self._aggregator.update(self._values, statuses)

    def _advance(self, step: PolicyStep) -> tuple[Issue, ...]:
        """Bookkeeping of step number, time and instruction of an accepted step."""
        issues: tuple[Issue, ...] = self._silent if self._last_step is None else ()
        if not step.instruction.strip() and (step.instruction or self._was_instructed) and (self._last_step is None or self._instruction.strip()):
            issues += (Issue("instruction_empty", "the policy is given no instruction"),)
        self._was_instructed = self._was_instructed or bool(step.instruction.strip())
        jump = 1 if self._last_step is None else step.step - self._last_step
        if jump > 1:
            issues += (Issue("gap", f"steps {step.step - jump + 1} to {step.step - 1} are missing"),)
        if math.isfinite(step.time) and step.time > self._last_time:
            self._clock = step.time + self._clock_offset
        else:
            issues += (Issue("time_backwards", f"time {step.time} s after {self._last_time} s; the control period is used for this step"),)
            self._clock += jump / self.spec.control_hz
            self._clock_offset = self._clock - step.time if math.isfinite(step.time) else self._clock_offset
        self._last_time = step.time if math.isfinite(step.time) else self._last_time
        if step.instruction != self._instruction:
            issues += (Issue("instruction_changed", "new instruction inside an episode: token, action and plan windows restart"),)
            self._instruction = step.instruction
            for metric in self._metrics:
                if metric.infos[0].family in (Family.TOKEN, Family.ACTION, Family.PLAN):
                    metric.reset()
        self._last_step = step.step
        return issues

    def _count(self, step: PolicyStep, alarms: tuple[AlarmState, ...], issues: tuple[Issue, ...]) -> None:
        self._counters["accepted"] += 1
        if issues:
            self._counters.update({issue.code for issue in issues})
        for alarm in alarms:
            if not alarm.changed:
                continue
            if alarm.phase is AlarmPhase.ACTIVE:
                self._counters["alarms"] += 1
                if len(self._spans) < _MAX_SPANS:
                    self._spans.append((alarm.name, step.step, None))
            else:
                self._spans = [(n, a, step.step - 1 if n == alarm.name and b is None else b) for n, a, b in self._spans]

    def _report(self, step: PolicyStep, verdict: Literal["duplicate", "late", "failed"], issues: tuple[Issue, ...], status: Status) -> StepReport:
        """A report without values; the alarms are as they were."""
        return StepReport(
            time=getattr(step, "time", math.nan),
            episode_id=getattr(step, "episode_id", self._episode or ""),
            step=getattr(step, "step", -1),
            verdict=verdict,
            infos=self.infos,
            values=np.full(len(self.infos), np.nan),
            statuses=np.full(len(self.infos), int(status), np.uint8),
            alarms=self._alarms.states(),
            issues=issues,
        )


def load_metrics(spec: PolicySpec, config: MonitorConfig) -> tuple[Metric, ...]:
    """Make the installed metric families (or those that `config.metrics` names), in order of name.

    Raises:
        ConfigError: a family is not installed, or what is installed is no metric.
    """
    points = {point.name: point for point in entry_points(group=METRIC_GROUP)}
    wanted = sorted(points) if config.metrics is None else config.metrics
    made = []
    for name in wanted:
        if name not in points:
            raise ConfigError(f"metrics: no family {name!r} is installed; known: {', '.join(sorted(points)) or 'none (reinstall vla-monitor)'}")
        metric = cast(MetricFactory, points[name].load())(spec, config)
        if not isinstance(metric, Metric):
            raise ConfigError(f"metrics: {name!r} lacks one of infos, update, reset (see monitor.metrics.base.Metric)")
        made.append(metric)
    return tuple(made)


def _rows(
    metrics: tuple[Metric, ...], values: NDArray[np.float64], statuses: NDArray[np.uint8]
) -> tuple[tuple[Metric, NDArray[np.float64], NDArray[np.uint8]], ...]:
    rows, start = [], 0
    for metric in metrics:
        stop = start + len(metric.infos)
        rows.append((metric, values[start:stop], statuses[start:stop]))
        start = stop
    return tuple(rows)


def _silent_alarms(spec: PolicySpec, config: MonitorConfig, infos: tuple[MetricInfo, ...]) -> tuple[Issue, ...]:
    """Alarms that can never speak for this policy, by reason; told once an episode."""
    ids = {info.key: info.id for info in infos}
    reasons: dict[str, list[str]] = {}
    for name, alarm in config.alarms.items():
        reason = reason_unavailable(spec, ids[alarm.metric]) if alarm.metric in ids else ""
        if reason:
            reasons.setdefault(reason, []).append(name)
    return tuple(Issue("unavailable", f"{reason}: no statement from alarm {', '.join(names)}") for reason, names in reasons.items())


def _refuse_twins(infos: tuple[MetricInfo, ...]) -> None:
    for key, times in Counter(info.key for info in infos).items():
        if times > 1:
            raise ConfigError(f"metrics: {key!r} is computed by {times} families; rename one")

"""The Prometheus page: a snapshot that is copied once per step and made into text only when somebody asks.

Names are `vla_monitor_` + quantity + base unit. Labels are closed sets: robot, policy, metric, variant, alarm, verdict, code. A value whose
status is not OK is NaN, and the status gauge says why.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from monitor.config import ExportConfig
from monitor.export.page import PageServer, PageStatus
from monitor.steps import AlarmPhase, MetricInfo, Status, StepReport

INFERENCE_BOUNDS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # control periods of 200 Hz to 1 Hz
UPDATE_BOUNDS_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.02)  # the monitor's own budget is 0.5 ms
MOST_EVENTS = 24  # room that is kept for `events_total`
SINGLES = 7
IGNORED = ("duplicate", "late")  # such steps are counted; the page keeps the values of the step before
VERDICTS = ("accepted", "duplicate", "late", "failed")
_UNITS = {
    "m": "meters",
    "rad": "radians",
    "s": "seconds",
    "ms": "milliseconds",
    "hz": "hertz",
    "m/s": "meters_per_second",
    "m/s^2": "meters_per_second_squared",
    "m/s^3": "meters_per_second_cubed",
    "m/s3": "meters_per_second_cubed",
    "m/s³": "meters_per_second_cubed",
    "bit": "bits",
    "step": "steps",
}
_NO_UNIT = ("", "1", "-", "flag", "bool", "count", "number", "action", "action^2")

Rows = Iterable[tuple[tuple[str, ...], float]]
"""Labels beyond robot and policy, and the value."""

log = logging.getLogger(__name__)


class Snapshot(NamedTuple):
    """What the page shows of the last step. Only references: nothing is copied or computed on the way in."""

    report: StepReport | None
    counters: Mapping[str, int]
    held: bool
    unix_time: float


class Histogram:
    """Fixed bounds, one writer. `observe` costs a bisection."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts with their upper bounds, as the text format wants them."""
        names = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        return list(zip(names, (float(n) for n in accumulate(self.counts)), strict=True))


class Exporter:
    """Publishes the last report of one monitor.

    `publish` belongs to the control thread: it stores references, never waits and never raises on a report. Rendering happens in the server's
    threads. Each exporter has its own registry; several live in one process and are told apart by the label `robot`.

    Example:
        >>> from monitor.config import ExportConfig
        >>> with Exporter(ExportConfig(port=0), (), "bundled") as exporter:
        ...     exporter.status().state
        'serving'
    """

    def __init__(
        self,
        config: ExportConfig,
        infos: Sequence[MetricInfo],
        policy_name: str,
        *,
        alarms: Sequence[str] = (),
        counters: Sequence[str] = (),
        policy_version: str = "0",
        tool_version: str = "0",
    ) -> None:
        """`alarms` and `counters` name what will come, so that every series exists, with 0, before the first event."""
        self._labels = (config.robot, policy_name)
        self._facts = {"version": tool_version, "policy_version": policy_version}
        self._enabled = config.enabled
        self._snapshot = Snapshot(None, dict.fromkeys(counters, 0), False, float("nan"))
        self._activations: dict[str, int] = dict.fromkeys(alarms, 0)
        self._verdicts: dict[str, int] = dict.fromkeys(VERDICTS, 0)
        self._held = 0
        self._inference, self._update = Histogram(INFERENCE_BOUNDS_S), Histogram(UPDATE_BOUNDS_S)
        self._scrapes, self._scrape_seconds, self._scrape_lock = 0, 0.0, threading.Lock()
        self._at = {info.key: i for i, info in enumerate(infos)}
        self._groups: dict[str, tuple[str, list[MetricInfo]]] = {}
        for info in _choose(infos, config, fixed=self._fixed_series()):
            self._groups.setdefault(metric_name(info), (help_text(info), []))[1].append(info)
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(_Page(self))
        self._page = PageServer(config.address, config.port, self.render)

    def start(self) -> None:
        """Serve the page, now or as soon as the port is free. Does nothing when the exporter is not enabled."""
        if self._enabled:
            self._page.start()

    def publish(
        self,
        report: StepReport,
        counters: Mapping[str, int] | None = None,
        *,
        inference_seconds: float | None = None,
        update_seconds: float | None = None,
        held: bool = False,
    ) -> None:
        """Show this step from now on.

        Args:
            report: what the monitor said; must not be changed afterwards.
            counters: running totals by name, shown as they are when somebody asks; may be the caller's own living mapping.
            inference_seconds: wall time of the policy call at this step; None when there was none.
            update_seconds: wall time of the monitor's update.
            held: the gate withheld the action.
        """
        verdict = report.verdict
        self._verdicts[verdict] += 1
        for alarm in report.alarms:
            if alarm.changed and alarm.phase is AlarmPhase.ACTIVE:
                self._activations[alarm.name] = self._activations.get(alarm.name, 0) + 1
        if inference_seconds is not None:
            self._inference.observe(inference_seconds)
        if update_seconds is not None:
            self._update.observe(update_seconds)
        if held:
            self._held += 1
        before = self._snapshot
        shown = before.report if verdict in IGNORED else report
        self._snapshot = Snapshot(shown, before.counters if counters is None else counters, held, time.time())

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Make the page as text, and its content type, for an Accept header. Any thread."""
        started = time.perf_counter()
        encode, content_type = choose_encoder(accept)
        body = encode(self.registry)
        with self._scrape_lock:
            self._scrapes += 1
            self._scrape_seconds += time.perf_counter() - started
        return body, content_type

    def series(self) -> int:
        """Count the series that the page holds now."""
        return sum(len(family.samples) for family in self.registry.collect())

    def status(self) -> PageStatus:
        """Whether the page is served, where, and if not, why."""
        return self._page.status if self._enabled else PageStatus("disabled", "export.enabled is false", None)

    @property
    def port(self) -> int | None:
        """The port that is served; None while off."""
        return self._page.port

    def wait_serving(self, timeout_s: float) -> bool:
        """Wait until the page is served; False after the time-out."""
        return self._page.wait_serving(timeout_s)

    def close(self) -> None:
        """Free the port and end the server's threads. May be called twice."""
        self._page.close()

    def __enter__(self) -> Exporter:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def families(self) -> Iterator[Metric]:
        """Everything on the page, from one snapshot."""
        snapshot = self._snapshot
        events = {name: count for name, count in sorted(dict(snapshot.counters).items()) if name not in VERDICTS}
        yield self._info()
        yield from self._metric_families(snapshot.report)
        yield from self._alarm_families(snapshot.report)
        yield self._counter("steps", "Steps given to the monitor, by what became of them.", ("verdict",), _by_name(self._verdicts))
        yield self._counter("events", "Running totals of the monitor and its recorder.", ("event",), _by_name(events))
        yield self._gauge("last_step_timestamp_seconds", "Unix time of the last step; NaN before the first.", (), _single(snapshot.unix_time))
        yield self._gauge("gate_holding", "1 while the gate withholds the policy's action.", (), _single(snapshot.held))
        yield self._counter("gate_held_steps", "Steps whose action was withheld.", (), _single(self._held))
        yield self._histogram("inference_seconds", "Wall time of the policy call.", self._inference)
        yield self._histogram("update_seconds", "Wall time of the monitor's own update.", self._update)
        yield self._counter("exporter_scrapes", "Times this page was made, before this time.", (), _single(self._scrapes))
        yield self._counter("exporter_scrape_seconds", "Wall time spent on making this page.", (), _single(self._scrape_seconds))

    def _metric_families(self, report: StepReport | None) -> Iterator[Metric]:
        missing = float("nan")
        states = [int(Status.UNAVAILABLE)] * len(self._at) if report is None else report.statuses.tolist()
        numbers = () if report is None else zip(report.values.tolist(), states, strict=True)
        values = [value if state == Status.OK else missing for value, state in numbers] or [missing] * len(states)
        for name, (text, infos) in self._groups.items():
            yield self._gauge(name, text, ("variant",), [((info.variant,), values[self._at[info.key]]) for info in infos])
        words = ", ".join(f"{status.value} {status.name.lower()}" for status in Status)
        shown = [info for _, infos in self._groups.values() for info in infos]
        rows = [((info.id, info.variant), float(states[self._at[info.key]])) for info in shown]
        yield self._gauge("metric_status", f"What the value of a metric is worth: {words}.", ("metric", "variant"), rows)
        hidden = len(self._at) - len(shown)
        yield self._gauge("metrics_hidden", "Metrics left off this page, by export.metrics or export.max_series.", (), _single(hidden))

    def _alarm_families(self, report: StepReport | None) -> Iterator[Metric]:
        phases: dict[str, float] = dict.fromkeys(list(self._activations), float(AlarmPhase.QUIET))
        # a report may name one twice: over with the last episode, and on again; the last holds
        phases.update({alarm.name: float(alarm.phase) for alarm in (() if report is None else report.alarms)})
        words = ", ".join(f"{phase.value} {phase.name.lower()}" for phase in AlarmPhase)
        yield self._gauge("alarm_phase", f"Phase of an alarm: {words}.", ("alarm",), _by_name(phases))
        yield self._counter("alarm_activations", "Times an alarm became active.", ("alarm",), _by_name(self._activations))

    def _info(self) -> Metric:
        family = InfoMetricFamily("vla_monitor_build", "Versions of the monitor and the policy.", labels=("robot", "policy"))
        family.add_metric(self._labels, self._facts)
        return family

    def _gauge(self, name: str, text: str, labels: tuple[str, ...], rows: Rows) -> Metric:
        return self._fill(GaugeMetricFamily(f"vla_monitor_{name}", text, labels=("robot", "policy", *labels)), rows)

    def _counter(self, name: str, text: str, labels: tuple[str, ...], rows: Rows) -> Metric:
        return self._fill(CounterMetricFamily(f"vla_monitor_{name}", text, labels=("robot", "policy", *labels)), rows)

    def _fill(self, family: Any, rows: Rows) -> Metric:
        for labels, value in rows:
            family.add_metric((*self._labels, *labels), value)
        filled: Metric = family
        return filled

    def _histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(f"vla_monitor_{name}", text, labels=("robot", "policy"))
        family.add_metric(self._labels, histogram.buckets(), histogram.total)
        return family

    def _fixed_series(self) -> int:
        """Series beside the metrics: alarms twice, totals, room for events that were not announced, histograms, and the single ones."""
        events = max(len(self._snapshot.counters), MOST_EVENTS)
        histograms = len(INFERENCE_BOUNDS_S) + len(UPDATE_BOUNDS_S) + 2 * 3
        return 2 * len(self._activations) + len(self._verdicts) + events + histograms + SINGLES


class _Page(Collector):
    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def collect(self) -> Iterator[Metric]:
        return self._exporter.families()


def _by_name(numbers: Mapping[str, float]) -> Rows:
    return [((name,), float(number)) for name, number in list(numbers.items())]


def _single(number: float) -> Rows:
    return [((), float(number))]


def _choose(infos: Sequence[MetricInfo], config: ExportConfig, *, fixed: int) -> list[MetricInfo]:
    """Take the metrics that the config asks for, as many as the bound allows; each costs two series."""
    wanted = [info for info in infos if config.metrics is None or any(fnmatchcase(info.key, pattern) for pattern in config.metrics)]
    room = max(0, (config.max_series - fixed) // 2)
    if len(wanted) > room:
        log.warning(
            "exporter: %d of %d metrics are left off the page to stay within export.max_series = %d: %s. Choose with export.metrics.",
            len(wanted) - room, len(wanted), config.max_series, ", ".join(info.key for info in wanted[room:]),
        )  # fmt: skip
    return wanted[:room]


def metric_name(info: MetricInfo) -> str:
    """Name on the page without the prefix: the id and the base unit, for example `tcp_pi_meters`, `tb_entropy_ratio`."""
    unit = info.unit.strip().lower()
    if unit in _NO_UNIT:
        counted = info.variant == "flag" or unit in ("flag", "bool", "count")
        suffix = "ratio" if (info.low, info.high) == (0.0, 1.0) and not counted else ""
    else:
        suffix = _UNITS.get(unit) or re.sub(r"[^a-z0-9]+", "_", unit).strip("_")
    plain = re.sub(r"[^a-z0-9_]+", "_", info.id.lower())
    return plain if not suffix or plain.endswith(f"_{suffix}") else f"{plain}_{suffix}"


def help_text(info: MetricInfo) -> str:
    """HELP line: what it is, its unit and what high means."""
    unit = "" if info.unit.strip() in _NO_UNIT else f", in {info.unit}"
    formula = f": {info.formula.rstrip('.')}" if info.formula else ""
    return f"{info.label}{unit}{formula}. High: {info.higher_means}. NaN: no statement, see vla_monitor_metric_status."

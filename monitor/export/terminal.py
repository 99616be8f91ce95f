"""The live table for an operator, and the closing table after the episodes.

`LiveState` collects records as they arrive; `render` is a pure function of it. `LiveView` shows it: redrawn in a terminal, one line per some
steps where the output is a file or a pipe.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from monitor.aggregate import AlarmSpan, EpisodeSummary
from monitor.config import AlarmConfig
from monitor.messages import AlarmRecord, EpisodeEvent, EpisodeRecord, Outcome, ReportRecord
from monitor.steps import AlarmPhase, AlarmState, Family, MetricInfo, PolicyStep, Status

HISTORY = 30
HEADER_COLUMNS = 3
MAIN_KEYS = (
    "tb_entropy/window",
    "tb_max_prob/full",
    "tb_pcs/full",
    "tb_deepgini/full",
    "tb_leak/max",
    "a_pi/full",
    "a_vi/full",
    "a_ai/full",
    "tcp_pi/p",
    "tcp_vi/p",
    "tcp_ai/p",
    "ti/full",
    "frozen/flag",
    "blocked/flag",
)
CLOSING_KEYS = ("tb_entropy/full", "a_ai/full", "tcp_ai/p")
_PLAIN_UNITS = ("", "1", "-", "count")
_BARS = "▁▂▃▄▅▆▇█"
_PHASE_STYLE = {
    AlarmPhase.QUIET: "green",
    AlarmPhase.PENDING: "yellow",
    AlarmPhase.ACTIVE: "bold white on red",
    AlarmPhase.COOLING_DOWN: "cyan",
}
_PHASE_WORD = {AlarmPhase.QUIET: "over", AlarmPhase.PENDING: "pending", AlarmPhase.ACTIVE: "ACTIVE", AlarmPhase.COOLING_DOWN: "cooling down"}
_STATUS_WORD = {
    Status.OK: "ok",
    Status.WARMING_UP: "warming up",
    Status.UNAVAILABLE: "not given",
    Status.UNINFORMATIVE: "standing still",
    Status.INVALID: "INVALID",
    Status.STALE: "stale",
}
_OUTCOME_TEXT = {Outcome.SUCCESS: ("success", "green"), Outcome.FAILURE: ("failure", "red"), Outcome.UNKNOWN: ("unknown", "dim")}


class AlarmNote(NamedTuple):
    """A change of an alarm's phase, for the list of the last ones."""

    step: int
    name: str
    phase: AlarmPhase
    text: str


class LiveState:
    """What the live table shows. Belongs to one thread.

    Args:
        infos: facts about the metrics, where they are known; else keys stand for labels.
        alarms: configured alarms; they give the thresholds.
        policy, robot: names for the header.
    """

    def __init__(
        self, *, infos: Iterable[MetricInfo] = (), alarms: Mapping[str, AlarmConfig] | None = None, policy: str = "", robot: str = ""
    ) -> None:
        self.infos = {info.key: info for info in infos}
        self.limits = {alarm.metric: alarm for alarm in (alarms or {}).values()}
        self.policy, self.robot = policy, robot
        self.recording = self.exporter = ""
        self.gate = "report only"
        self.episode = EpisodeRecord(event=EpisodeEvent.STARTED, time=math.nan, episode_id="")
        self.outcomes: list[EpisodeRecord] = []
        self.report: ReportRecord | None = None
        self.inference_ms: float | None = None
        self.history: dict[str, deque[float]] = {}
        self.active: dict[str, AlarmState] = {}
        self.notes: deque[AlarmNote] = deque(maxlen=6)
        self._times: deque[float] = deque(maxlen=HISTORY)

    def add(self, report: ReportRecord) -> None:
        """Take the report of one step. Duplicates and late steps change nothing."""
        if report.verdict in ("duplicate", "late"):
            return
        if self.report is not None and self.report.episode_id != report.episode_id:
            self._clear()
        self.report = report
        self._times.append(report.time)
        for key, value in zip(report.metrics, report.values.tolist(), strict=True):
            self.history.setdefault(key, deque(maxlen=HISTORY)).append(value)
        self.gate = "HOLDING" if report.held else self.gate if self.gate != "HOLDING" else "passing"

    def add_step(self, step: PolicyStep) -> None:
        """Take what only the step knows: the instruction and the time of the policy call."""
        if step.inference_seconds is not None:
            self.inference_ms = 1000 * step.inference_seconds
        if step.instruction and not self.episode.instruction:
            self.episode = EpisodeRecord(event=EpisodeEvent.STARTED, time=step.time, episode_id=step.episode_id, instruction=step.instruction)

    def add_alarm(self, alarm: AlarmRecord) -> None:
        """Take a change of an alarm."""
        state = alarm.state
        if state.phase is AlarmPhase.QUIET:
            self.active.pop(state.name, None)
        else:
            self.active[state.name] = state
        self.notes.append(AlarmNote(alarm.step, state.name, state.phase, state.text))

    def add_episode(self, episode: EpisodeRecord) -> None:
        """Take the beginning or the end of an episode."""
        if episode.event is EpisodeEvent.ENDED:
            self.outcomes.append(episode)
        else:
            self._clear()
            self.episode = episode

    @property
    def rate_hz(self) -> float | None:
        """Steps per second over the last steps of this episode, on the control clock; None before the second step."""
        span = self._times[-1] - self._times[0] if len(self._times) > 1 else 0.0
        return (len(self._times) - 1) / span if span > 0 else None

    def _clear(self) -> None:
        self.history.clear()
        self._times.clear()
        self.active.clear()
        self.notes.clear()
        self.inference_ms = None


def render(state: LiveState) -> RenderableType:
    """One screen: header, metrics, alarms."""
    return Group(_header(state), _metrics(state), _alarms(state))


def line(state: LiveState) -> str:
    """Say the same in one line, for logs."""
    report = state.report
    if report is None:
        return "no step yet"
    shown = [f"{key} {_number(_value(report, key)[0])}" for key in ("tb_entropy/window", "a_ai/full") if key in report.metrics]
    alarms = ", ".join(report.active_alarms) or "none"
    return f"{report.episode_id} step {report.step}  {'  '.join(shown)}  alarms: {alarms}{'  HOLDING' if report.held else ''}"


def sparkline(values: Sequence[float], low: float, high: float) -> str:
    """Draw values as blocks between low and high; a dot where there is none."""
    span = high - low
    return "".join("·" if not math.isfinite(v) else _BARS[min(7, max(0, int(8 * (v - low) / span)))] if span > 0 else _BARS[0] for v in values)


def _header(state: LiveState) -> RenderableType:
    grid = Table.grid(padding=(0, 2), expand=True)
    for _ in range(HEADER_COLUMNS):
        grid.add_column(ratio=1)
    episode, report = state.episode, state.report
    rate, inference = state.rate_hz, state.inference_ms
    names = {outcome: sum(done.outcome is outcome for done in state.outcomes) for outcome in (Outcome.SUCCESS, Outcome.FAILURE)}
    cells = (
        ("policy", state.policy or "?"),
        ("robot", state.robot or "?"),
        ("episode", (report.episode_id if report else episode.episode_id) or "?"),
        ("step", str(report.step) if report else "-"),
        ("rate", "-" if rate is None else f"{rate:.1f} Hz"),
        ("inference", "-" if inference is None else f"{inference:.0f} ms"),
        ("fault", episode.perturbation or "none"),
        ("done", f"{names[Outcome.SUCCESS]} success, {names[Outcome.FAILURE]} failure"),
        ("gate", state.gate),
        ("recording", state.recording or "off"),
        ("page", state.exporter.removeprefix("http://") or "off"),
    )
    rows = [Text.assemble((f"{name} ", "dim"), (text, "bold red" if text == "HOLDING" else "bold")) for name, text in cells]
    for start in range(0, len(rows), HEADER_COLUMNS):
        grid.add_row(*rows[start : start + HEADER_COLUMNS])
    title = f"{episode.task}: {episode.instruction}" if episode.task else episode.instruction or "waiting for the first step"
    return Panel(grid, title=Text(title, style="bold"), title_align="left", border_style="red" if state.active else "green")


def _metrics(state: LiveState) -> RenderableType:
    table = Table(expand=True, box=SIMPLE_HEAD, header_style="dim")
    table.add_column("metric", ratio=1)
    table.add_column("value", justify="right", min_width=9)
    table.add_column(f"last {HISTORY} steps", width=HISTORY, no_wrap=True)
    table.add_column("alarm at", justify="right")
    table.add_column("status", min_width=14)
    if state.report is None:
        return table
    for key in main_keys(state.report.metrics, state.limits):
        value, status = _value(state.report, key)
        if status is Status.UNAVAILABLE and key not in MAIN_KEYS:
            continue  # an alarm that can never speak here is no news
        limit = state.limits.get(key)
        info = state.infos.get(key)
        unit = "" if info is None or info.unit in _PLAIN_UNITS else f" {info.unit}"
        beyond = limit is not None and status is Status.OK and (value > limit.threshold if limit.direction == "above" else value < limit.threshold)
        style = "bold red" if beyond or status is Status.INVALID else "green" if status is Status.OK else "dim"
        word = "beyond" if beyond else _STATUS_WORD[status]
        low, high = _scale(state.history.get(key, ()), info, limit)
        spark = sparkline(tuple(state.history.get(key, ())), low, high)
        bound = "" if limit is None else f"{'>' if limit.direction == 'above' else '<'} {_number(limit.threshold)}"
        table.add_row(info.title if info else key, Text(_number(value) + unit, style), Text(spark, style), bound, Text(word, style))
    return table


def _alarms(state: LiveState) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for alarm in sorted(state.active.values(), key=lambda alarm: -alarm.phase):
        table.add_row(Text(f" {_PHASE_WORD[alarm.phase]} ", _PHASE_STYLE[alarm.phase]), Text(alarm.name, "bold"), alarm.text)
    for note in reversed(state.notes):
        table.add_row(Text(f"step {note.step}", "dim"), Text(note.name, "dim"), Text(_PHASE_WORD[note.phase], "dim"))
    body = table if table.row_count else Text("no alarm", "green")
    return Panel(body, title="alarms", title_align="left", border_style="red" if state.active else "dim")


def main_keys(present: Sequence[str], limits: Iterable[str] = ()) -> list[str]:
    """Keys worth a row: the usual ones and those with an alarm, as far as they are computed; else the first few."""
    chosen = [key for key in dict.fromkeys((*MAIN_KEYS, *limits)) if key in present]
    return chosen or list(present[:14])


def _value(report: ReportRecord, key: str) -> tuple[float, Status]:
    at = report.metrics.index(key)
    return float(report.values[at]), Status(int(report.statuses[at]))


def _scale(history: Iterable[float], info: MetricInfo | None, limit: AlarmConfig | None) -> tuple[float, float]:
    """Choose the ends: the whole range for token metrics; else from the metric's low end to the largest seen or the threshold."""
    if info is not None and info.family is Family.TOKEN:
        return info.low, info.high
    seen = [v for v in history if math.isfinite(v)] + ([limit.threshold] if limit else [])
    low = info.low if info is not None and math.isfinite(info.low) else min([0.0, *seen])
    return low, max([low, *seen])


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


class LiveView:
    """Shows a state while it changes: a table that is redrawn, or a line every `line_steps` steps where there is no terminal."""

    def __init__(self, state: LiveState, console: Console, *, line_steps: int = 20) -> None:
        self.state, self._console, self._every = state, console, line_steps
        self._live = Live(render(state), console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._printed: tuple[str, int] | None = None

    def __enter__(self) -> LiveView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def refresh(self) -> None:
        """Show the state as it is now."""
        if self._live is not None:
            self._live.update(render(self.state), refresh=True)
            return
        report = self.state.report
        now = None if report is None else (report.episode_id, report.step // self._every)
        if now is None or now == self._printed:
            return
        self._printed = now
        self._console.print(line(self.state), highlight=False, markup=False, soft_wrap=True)


class EpisodeRow(NamedTuple):
    """One line of the closing table: what is known of the attempt, and what the monitor said."""

    record: EpisodeRecord
    summary: EpisodeSummary


def closing_table(rows: Sequence[EpisodeRow], infos: Iterable[MetricInfo] = (), keys: Sequence[str] = CLOSING_KEYS) -> Table:
    """Make the table after the last episode: result, aggregates of the main metrics, and at which steps the alarms were."""
    labels = {info.key: info.title for info in infos}
    table = Table(
        title="Episodes (metrics: mean / max / sliding-window max)", title_justify="left", title_style="bold", header_style="dim", expand=False
    )
    for name in ("task", "fault", "result"):
        table.add_column(name, no_wrap=name == "result")
    table.add_column("steps", justify="right")
    for key in keys:
        table.add_column(labels.get(key, key), justify="right", no_wrap=True)
    table.add_column("alarms (steps)")
    for record, summary in rows:
        word, style = _OUTCOME_TEXT[record.outcome]
        known = {metric.key: metric for metric in summary.metrics}
        numbers = [
            " / ".join(_number(number, 2) for number in (known[key].mean, known[key].max, known[key].sliding_max)) if key in known else "-"
            for key in keys
        ]
        alarms = Text(spans_text(summary.alarms), "red" if summary.alarms else "green")
        table.add_row(record.task or summary.episode_id, record.perturbation or "none", Text(word, style), str(summary.steps), *numbers, alarms)
    return table


def spans_text(spans: Sequence[AlarmSpan]) -> str:
    """`uncertain 12-30 45-, frozen 60-71`; an open end is still active."""
    by_name: dict[str, list[str]] = {}
    for span in spans:
        by_name.setdefault(span.name, []).append(f"{span.first_step}-{'' if span.last_step is None else span.last_step}")
    return ", ".join(f"{name} {' '.join(parts)}" for name, parts in by_name.items()) or "none"

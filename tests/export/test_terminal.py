"""The live table and the closing table."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from rich.console import Console, RenderableType

from monitor.aggregate import AlarmSpan, EpisodeSummary, MetricSummary
from monitor.config import AlarmConfig
from monitor.export.terminal import EpisodeRow, LiveState, LiveView, closing_table, line, main_keys, render, spans_text, sparkline
from monitor.messages import AlarmRecord, EpisodeEvent, EpisodeRecord, Outcome, ReportRecord
from monitor.steps import AlarmPhase, AlarmState, Family, MetricInfo, PolicyStep, Status

KEY = "tb_entropy/window"
INFO = MetricInfo(
    id="tb_entropy", variant="window", label="TB-E", family=Family.TOKEN, unit="1", low=0.0, high=1.0, higher_means="less certain",
    formula="", source="",
)  # fmt: skip
ALARM = AlarmConfig(metric=KEY, threshold=0.6)


def text_of(renderable: RenderableType, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


def report(
    step: int = 0, value: float = 0.25, status: Status = Status.OK, *, episode: str = "e1", verdict: str = "accepted", held: bool = False
) -> ReportRecord:
    return ReportRecord(
        time=step / 10, episode_id=episode, step=step, verdict=verdict, metrics=(KEY,), values=np.array([value]),
        statuses=np.array([status], np.uint8), active_alarms=(), issues=(), held=held,
    )  # fmt: skip


def alarm(phase: AlarmPhase, step: int = 4) -> AlarmRecord:
    state = AlarmState(
        name="uncertain", phase=phase, metric=KEY, value=0.7, threshold=0.6, since=0.4, calibration="static", hold=False,
        text="TB-E window 0.7, alarm above 0.6",
    )  # fmt: skip
    return AlarmRecord(time=0.4, episode_id="e1", step=step, state=state)


@pytest.fixture
def state() -> LiveState:
    return LiveState(infos=(INFO,), alarms={"uncertain": ALARM}, policy="bundled", robot="sim")


def test_table_before_the_first_step_says_so(state: LiveState) -> None:
    assert "waiting for the first step" in text_of(render(state))


def test_row_holds_label_value_threshold_and_status(state: LiveState) -> None:
    state.add(report())
    row = next(row for row in text_of(render(state)).splitlines() if "TB-E" in row)
    assert all(part in row for part in ("TB-E window", "0.25", "> 0.6", "ok"))


def test_value_beyond_its_threshold_is_named(state: LiveState) -> None:
    state.add(report(value=0.9))
    assert "beyond" in text_of(render(state))


def test_missing_value_is_a_dash_with_its_reason(state: LiveState) -> None:
    state.add(report(value=math.nan, status=Status.WARMING_UP))
    row = next(row for row in text_of(render(state)).splitlines() if "TB-E" in row)
    assert " - " in row
    assert "warming up" in row


def test_active_alarm_is_shown_with_its_text(state: LiveState) -> None:
    state.add_alarm(alarm(AlarmPhase.ACTIVE))
    assert "TB-E window 0.7, alarm above 0.6" in text_of(render(state))


def test_alarm_that_went_quiet_leaves_the_active_ones(state: LiveState) -> None:
    state.add_alarm(alarm(AlarmPhase.ACTIVE))
    state.add_alarm(alarm(AlarmPhase.QUIET, step=9))
    assert not state.active


def test_new_episode_clears_the_history(state: LiveState) -> None:
    state.add(report())
    state.add(report(episode="e2"))
    assert len(state.history[KEY]) == 1


def test_late_step_changes_nothing(state: LiveState) -> None:
    state.add(report(step=5))
    state.add(report(step=3, verdict="late"))
    assert state.report is not None
    assert state.report.step == 5


def test_history_is_bounded(state: LiveState) -> None:
    for step in range(100):
        state.add(report(step))
    assert len(state.history[KEY]) == 30


def test_rate_is_steps_over_control_time(state: LiveState) -> None:
    for step in range(5):
        state.add(report(step))
    assert state.rate_hz == pytest.approx(10.0)


def test_header_names_task_instruction_and_fault(state: LiveState) -> None:
    state.add_episode(
        EpisodeRecord(
            event=EpisodeEvent.STARTED, time=0.0, episode_id="e1", task="pick_up", instruction="pick up the cube", perturbation="camera_covered"
        )
    )
    shown = text_of(render(state))
    assert all(part in shown for part in ("pick_up: pick up the cube", "camera_covered"))


def test_instruction_comes_from_the_step_where_no_episode_was_told(state: LiveState) -> None:
    state.add_step(PolicyStep(time=0.0, episode_id="e1", step=0, action=np.zeros(7), instruction="open the drawer", inference_seconds=0.03))
    shown = text_of(render(state))
    assert all(part in shown for part in ("open the drawer", "30 ms"))


def test_held_action_is_shown(state: LiveState) -> None:
    state.add(report(held=True))
    assert "HOLDING" in text_of(render(state))


def test_instruction_is_not_read_as_markup(state: LiveState) -> None:
    state.add_episode(EpisodeRecord(event=EpisodeEvent.STARTED, time=0.0, episode_id="e1", task="[bold]x", instruction="[/red]"))
    assert "[/red]" in text_of(render(state))


@pytest.mark.parametrize(
    ("values", "drawn"),
    [((0.0, 0.5, 1.0), "▁▅█"), ((math.nan, 1.0), "·█"), ((), ""), ((5.0,), "█"), ((-5.0,), "▁")],
)
def test_sparkline(values: tuple[float, ...], drawn: str) -> None:
    assert sparkline(values, 0.0, 1.0) == drawn


def test_sparkline_of_a_constant_range_is_flat() -> None:
    assert sparkline((0.0, 0.0), 0.0, 0.0) == "▁▁"


def test_rows_fall_back_to_what_is_computed() -> None:
    assert main_keys(("mine/full", "other/full")) == ["mine/full", "other/full"]


def test_metric_with_an_alarm_gets_a_row() -> None:
    assert main_keys(("mine/full", KEY), ("mine/full",)) == [KEY, "mine/full"]


def test_name_that_says_all_stands_without_variant() -> None:
    flag = MetricInfo(
        id="frozen", variant="flag", label="Frozen", family=Family.MOTION, unit="1", low=0.0, high=1.0, higher_means="still",
        formula="", source="",
    )  # fmt: skip
    table = closing_table([], (flag,), ("frozen/flag",))
    assert [str(column.header) for column in table.columns][4] == "Frozen"


def test_without_terminal_one_line_per_some_steps(state: LiveState) -> None:
    console = Console(file=io.StringIO(), width=200)
    with LiveView(state, console, line_steps=20) as view:
        for step in range(41):
            state.add(report(step))
            view.refresh()
    assert len(console.file.getvalue().splitlines()) == 3  # type: ignore[attr-defined]


def test_line_tells_step_value_and_alarms(state: LiveState) -> None:
    state.add(report(7))
    assert line(state) == "e1 step 7  tb_entropy/window 0.25  alarms: none"


def summary(*spans: AlarmSpan) -> EpisodeSummary:
    metric = MetricSummary(key="tb_entropy/full", count=10, mean=0.2, max=0.9, sliding_max=0.5, ok_share=1.0)
    return EpisodeSummary(episode_id="e1", instruction="", steps=42, metrics=(metric,), alarms=spans)


def test_closing_row_holds_result_aggregates_and_alarm_steps() -> None:
    record = EpisodeRecord(event=EpisodeEvent.ENDED, time=4.2, episode_id="e1", task="put_in", perturbation="camera_covered", outcome=Outcome.FAILURE)
    shown = text_of(closing_table([EpisodeRow(record, summary(AlarmSpan(name="uncertain", first_step=12, last_step=30)))]), width=200)
    assert all(part in shown for part in ("put_in", "camera_covered", "failure", "42", "0.2 / 0.9 / 0.5", "uncertain 12-30"))


def test_unknown_outcome_is_not_a_failure() -> None:
    record = EpisodeRecord(event=EpisodeEvent.ENDED, time=4.2, episode_id="e1")
    assert "unknown" in text_of(closing_table([EpisodeRow(record, summary())]), width=200)


def test_alarm_that_never_ended_has_an_open_end() -> None:
    spans = (
        AlarmSpan(name="a", first_step=1, last_step=2),
        AlarmSpan(name="b", first_step=3, last_step=3),
        AlarmSpan(name="a", first_step=9, last_step=None),
    )
    assert spans_text(spans) == "a 1-2 9-, b 3-3"

"""The alarm state machine, over a hand-made metric."""

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.alarms.rules import AlarmBoard, AlarmRule
from monitor.config import AlarmConfig, default_alarms
from monitor.errors import ConfigError
from monitor.steps import AlarmPhase, AlarmState, Family, MetricInfo

INFO = MetricInfo(
    id="tb_entropy", variant="window", label="TB-E", family=Family.TOKEN, unit="1", low=0, high=1, higher_means="less certain", formula="", source=""
)
QUIET, PENDING, ACTIVE, COOLING = AlarmPhase


def rule(**settings: object) -> AlarmRule:
    return AlarmRule("uncertain", AlarmConfig(metric=INFO.key, threshold=0.5, **settings), 0, INFO)  # type: ignore[arg-type]


def run(alarm: AlarmRule, values: Iterable[float | None]) -> list[AlarmState | None]:
    """One value a second; None is a step without a statement."""
    return [alarm.update(float("nan") if v is None else v, v is not None, float(t)) for t, v in enumerate(values)]


def phases(alarm: AlarmRule, values: Iterable[float | None]) -> list[AlarmPhase]:
    return [QUIET if state is None else state.phase for state in run(alarm, values)]


def test_one_step_is_enough_when_for_steps_is_one() -> None:
    assert phases(rule(), [0.4, 0.6]) == [QUIET, ACTIVE]


def test_for_steps_consecutive_steps_are_needed() -> None:
    assert phases(rule(for_steps=3), [0.6, 0.6, 0.4, 0.6, 0.6, 0.6]) == [PENDING, PENDING, QUIET, PENDING, PENDING, ACTIVE]


def test_the_threshold_itself_is_inside() -> None:
    assert phases(rule(), [0.5]) == [QUIET]


def test_below_alarms_on_small_values() -> None:
    assert phases(rule(direction="below"), [0.6, 0.4]) == [QUIET, ACTIVE]


def test_clear_steps_consecutive_steps_end_it() -> None:
    assert phases(rule(clear_steps=2, cooldown_s=1), [0.6, 0.4, 0.6, 0.4, 0.4]) == [ACTIVE, ACTIVE, ACTIVE, ACTIVE, COOLING]


def test_no_new_alarm_while_cooling_down() -> None:
    assert phases(rule(clear_steps=1, cooldown_s=3), [0.6, 0.4, 0.6, 0.6, 0.6]) == [ACTIVE, COOLING, COOLING, COOLING, ACTIVE]


def test_without_cooldown_it_can_fire_again_at_once() -> None:
    assert phases(rule(clear_steps=1, cooldown_s=0), [0.6, 0.4, 0.6]) == [ACTIVE, QUIET, ACTIVE]


def test_no_statement_breaks_a_pending_count() -> None:
    assert phases(rule(for_steps=2), [0.6, None, 0.6]) == [PENDING, QUIET, PENDING]


def test_no_statement_does_not_clear_an_active_alarm() -> None:
    assert phases(rule(clear_steps=2), [0.6, None, None, 0.4]) == [ACTIVE, ACTIVE, ACTIVE, ACTIVE]


def test_a_missing_value_is_reported_as_none() -> None:
    state = run(rule(), [0.6, None])[-1]
    assert state is not None
    assert state.value is None
    assert "no statement" in state.text


def test_since_is_the_time_of_the_last_change() -> None:
    states = run(rule(), [0.4, 0.6, 0.7])
    assert states[2] is not None
    assert states[2].since == 1.0


def test_changed_marks_the_step_of_the_change_only() -> None:
    states = run(rule(clear_steps=1, cooldown_s=0), [0.6, 0.7, 0.4, 0.4])
    assert [state and state.changed for state in states] == [True, False, True, None]


def test_the_text_names_metric_value_threshold_and_calibration() -> None:
    state = run(rule(calibration="conformal 4f2a"), [0.75])[0]
    assert state is not None
    assert state.text == "TB-E window 0.75, alarm above 0.5 (conformal 4f2a)"


def test_reset_equals_a_new_rule() -> None:
    used = rule(for_steps=2)
    run(used, [0.6, 0.6, 0.4])
    used.reset()
    values = [0.6, 0.7, 0.2]
    assert run(used, values) == run(rule(for_steps=2), values)


def test_an_alarm_on_an_unknown_metric_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"alarms\.x\.metric: 'tb_entrpy/full'.*known: tb_entropy/window"):
        AlarmBoard({"x": AlarmConfig(metric="tb_entrpy/full", threshold=1)}, (INFO,))


def test_a_default_alarm_is_left_out_where_its_metric_is_not_computed() -> None:
    board = AlarmBoard(default_alarms(), (INFO,))
    assert [kept.name for kept in board.rules] == ["uncertain"]


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=60), st.integers(1, 4), st.integers(1, 4), st.floats(0, 5))
def test_only_the_documented_transitions_happen(values: list[float | None], for_steps: int, clear_steps: int, cooldown: float) -> None:
    allowed = {
        (QUIET, PENDING), (QUIET, ACTIVE), (PENDING, ACTIVE), (PENDING, QUIET), (ACTIVE, COOLING), (ACTIVE, QUIET),
        (COOLING, QUIET), (COOLING, PENDING), (COOLING, ACTIVE),
    }  # fmt: skip
    seen = [QUIET, *phases(rule(for_steps=for_steps, clear_steps=clear_steps, cooldown_s=cooldown), values)]
    assert {pair for pair in itertools.pairwise(seen) if pair[0] is not pair[1]} <= allowed

"""The vote over hand-made metrics of three families, and thresholds that change with the step."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monitor.alarms.rules import AlarmBoard
from monitor.config import AlarmConfig, VoteConfig
from monitor.errors import ConfigError
from monitor.steps import AlarmPhase, AlarmState, Family, MetricInfo, Status

QUIET, PENDING, ACTIVE, COOLING = AlarmPhase
KEYS = {"tb/full": Family.TOKEN, "tb/max": Family.TOKEN, "a/full": Family.ACTION, "ti/full": Family.MOTION}
NAN = float("nan")


@pytest.fixture
def make_board(make_info: Callable[..., MetricInfo]) -> Callable[..., AlarmBoard]:
    """Four voters with threshold 0.5."""

    def make(**vote: Any) -> AlarmBoard:
        infos = tuple(make_info(key, family) for key, family in KEYS.items())
        alarms = {key: AlarmConfig(metric=key, threshold=0.5, votes=True, calibration="c") for key in KEYS}
        return AlarmBoard(alarms, infos, VoteConfig(**{"clear_steps": 1, "cooldown_s": 0.0, **vote}))

    return make


def run(board: AlarmBoard, *rows: str) -> list[AlarmState | None]:
    """One row a step of 0.1 s: `x` beyond, `.` calm, `?` no statement, in the order of KEYS."""
    states = []
    for i, row in enumerate(rows):
        values = np.array([{"x": 0.9, ".": 0.1, "?": NAN}[mark] for mark in row])
        statuses = np.where(np.isnan(values), int(Status.STALE), int(Status.OK)).astype(np.uint8)
        found = board.update(values, statuses, 0.1 * i, i)
        states.append(found[0] if found else None)
    return states


def phases(board: AlarmBoard, *rows: str) -> list[AlarmPhase]:
    return [QUIET if state is None else state.phase for state in run(board, *rows)]


def test_any_voice_is_enough(make_board: Any) -> None:
    assert phases(make_board(mode="any"), "....", "..x.") == [QUIET, ACTIVE]


def test_voters_are_no_alarms_of_their_own(make_board: Any) -> None:
    assert run(make_board(mode="two_families"), "x...") == [None]


def test_two_metrics_of_one_family_are_not_two_families(make_board: Any) -> None:
    assert phases(make_board(mode="two_families"), "xx..") == [QUIET]


def test_two_families_within_the_time_are(make_board: Any) -> None:
    assert phases(make_board(mode="two_families", within_s=1.0), "x...", "....", "..x.") == [QUIET, QUIET, ACTIVE]


def test_two_families_too_far_apart_are_not(make_board: Any) -> None:
    assert phases(make_board(mode="two_families", within_s=0.15), "x...", "....", "..x.") == [QUIET, QUIET, QUIET]


def test_a_weighted_vote_needs_its_quorum(make_board: Any) -> None:
    board = make_board(mode="weighted", quorum=0.5, within_s=0.0)
    assert phases(board, "x...", "x.x.") == [QUIET, ACTIVE]


def test_weights_decide(make_board: Any) -> None:
    board = make_board(mode="weighted", quorum=0.5, within_s=0.0, weights={"tb/full": 3.0, "tb/max": 0.0})
    assert phases(board, "..xx", "x...") == [QUIET, ACTIVE]


def test_a_metric_without_a_statement_keeps_its_weight(make_board: Any) -> None:
    assert phases(make_board(mode="weighted", quorum=0.5, within_s=0.0), "x???") == [QUIET]


def test_no_statement_at_all_does_not_clear_the_alarm(make_board: Any) -> None:
    assert phases(make_board(mode="any"), "x...", "????", "....") == [ACTIVE, ACTIVE, QUIET]


def test_no_new_alarm_while_cooling_down(make_board: Any) -> None:
    assert phases(make_board(mode="any", cooldown_s=0.25), "x...", "....", "x...", "x...", "x...") == [ACTIVE, COOLING, COOLING, COOLING, ACTIVE]


def test_the_text_names_metric_value_threshold_calibration_and_the_other_families(make_board: Any) -> None:
    state = run(make_board(mode="any"), "x.x?")[0]
    assert state is not None
    assert state.text == "TB full 0.9, alarm above 0.5 (c); action: agrees (A full); motion: no statement"


def test_calm_families_are_told_too(make_board: Any) -> None:
    state = run(make_board(mode="any"), "....", "...x")[1]
    assert state is not None
    assert state.text == "TI full 0.9, alarm above 0.5 (c); token: calm; action: calm"


def test_voices_and_alarms_are_counted_by_name(make_board: Any) -> None:
    board = make_board(mode="any")
    run(board, "x...", "x...", "....", "x.x.")
    assert board.activations == {"tb/full": 2, "tb/max": 0, "a/full": 1, "ti/full": 0, "likely_failure": 2}


def test_reset_forgets_voices(make_board: Any) -> None:
    board = make_board(mode="two_families")
    run(board, "x...")
    board.reset()
    assert phases(board, "..x.") == [QUIET]


def test_a_weight_of_an_unknown_metric_is_refused(make_board: Any) -> None:
    with pytest.raises(ConfigError, match=r"vote\.weights: 'zz/full' has no voice"):
        make_board(weights={"zz/full": 1.0})


def test_weights_that_are_all_zero_are_refused(make_board: Any) -> None:
    with pytest.raises(ConfigError, match="all are zero"):
        make_board(weights=dict.fromkeys(KEYS, 0.0))


def test_two_families_need_two_families(make_info: Any) -> None:
    with pytest.raises(ConfigError, match="all voters are of the family token"):
        AlarmBoard({"x": AlarmConfig(metric="m/full", threshold=1, votes=True)}, (make_info(),), VoteConfig(mode="two_families"))


def test_the_vote_cannot_have_the_name_of_an_alarm(make_info: Any) -> None:
    with pytest.raises(ConfigError, match="'x' is the name of an alarm too"):
        AlarmBoard({"x": AlarmConfig(metric="m/full", threshold=1, votes=True)}, (make_info(),), VoteConfig(name="x"))


def test_without_voters_there_is_no_vote(make_info: Any) -> None:
    assert AlarmBoard({"x": AlarmConfig(metric="m/full", threshold=1)}, (make_info(),)).vote is None


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="not negative"):
        VoteConfig(weights={"m/full": -1.0})


@pytest.fixture
def banded(make_info: Any) -> AlarmBoard:
    config = AlarmConfig(metric="m/full", threshold=9.0, band=(0.9, 0.5), clear_steps=1, cooldown_s=0.0)
    return AlarmBoard({"x": config}, (make_info(),))


def active_at(board: AlarmBoard, value: float, step: int | None) -> bool:
    return bool(board.update(np.array([value]), np.zeros(1, np.uint8), 0.0, step))


def test_a_band_is_read_at_the_step(banded: AlarmBoard) -> None:
    assert not active_at(banded, 0.7, 0)
    assert active_at(banded, 0.7, 1)


def test_a_band_keeps_its_last_value(banded: AlarmBoard) -> None:
    assert active_at(banded, 0.7, 50)


def test_without_step_numbers_rows_are_counted_from_the_reset(banded: AlarmBoard) -> None:
    assert not active_at(banded, 0.7, None)
    assert active_at(banded, 0.7, None)
    banded.reset()
    assert not active_at(banded, 0.7, None)

"""Motion-weighted TB-E, the running score for alarms, and token values that are too old."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor import MonitorConfig
from monitor.config import TimingConfig, TokenConfig
from monitor.errors import ConfigError
from monitor.metrics import TokenMetrics, motion_weighted, sliding_maximum
from monitor.steps import PolicyStep, Status

UNSURE, SURE = np.zeros((7, 16)), np.eye(7, 16) * 50.0


def inferences(make_step: Any, unsure: list[bool], **changes: Any) -> list[PolicyStep]:
    """One inference a step, without motion."""
    return [make_step(i, token_logits=UNSURE if u else SURE, **changes) for i, u in enumerate(unsure)]


def test_the_first_step_weighs_one(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    assert feed(TokenMetrics(make_spec(), config), [make_step(token_logits=UNSURE)])[0].values["tb_entropy/weighted"] == 1.0


def test_entropy_counts_more_where_the_action_turns_back(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    turning = [make_step(i, action=np.full(7, 0.5 * (-1) ** i), token_logits=UNSURE) for i in range(3)]
    steady = [make_step(i, action=np.full(7, 0.5), token_logits=UNSURE) for i in range(3)]
    assert feed(TokenMetrics(make_spec(), config), turning)[-1].values["tb_entropy/weighted"] == pytest.approx(1.3)
    assert feed(TokenMetrics(make_spec(), config), steady)[-1].values["tb_entropy/weighted"] == pytest.approx(0.7)


def test_absolute_targets_turn_back_by_their_differences(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    targets = [0.2, 0.5, 0.2, 0.5]
    steps = [make_step(i, action=np.full(7, a), token_logits=UNSURE) for i, a in enumerate(targets)]
    found = [row.values["tb_entropy/weighted"] for row in feed(TokenMetrics(make_spec(action_kind="absolute"), config), steps)]
    assert found == pytest.approx([1.0, 1.0, 1.3, 1.3])
    assert found == pytest.approx(motion_weighted(np.ones((4, 7)), np.outer(targets, np.ones(7)), absolute=True))


def test_a_lost_step_or_an_unusable_action_breaks_the_comparison(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    steps = [
        make_step(0, action=np.full(7, 0.5), token_logits=UNSURE),
        make_step(2, action=np.full(7, -0.5), token_logits=UNSURE),
        make_step(3, action=np.full(7, np.nan), token_logits=UNSURE),
        make_step(4, action=np.full(7, 0.5), token_logits=UNSURE),
    ]
    rows = feed(TokenMetrics(make_spec(), config), steps)
    assert [row.values["tb_entropy/weighted"] for row in rows] == pytest.approx([1.0] * 4)


def test_weights_choose_dimensions(make_spec: Any, make_step: Any, feed: Any) -> None:
    logits = SURE.copy()
    logits[6] = 0.0
    config = MonitorConfig(tokens=TokenConfig(weights=(1, 1, 1, 1, 1, 1, 3)))
    row = feed(TokenMetrics(make_spec(), config), [make_step(token_logits=logits)])[0]
    assert row.values["tb_entropy/weighted"] == pytest.approx(3 / 9)


@pytest.mark.parametrize("weights", [(1.0,), (0.0,) * 7, (-1.0,) + (1.0,) * 6])
def test_weights_that_do_not_fit_are_refused(weights: tuple[float, ...], make_spec: Any) -> None:
    with pytest.raises(ConfigError, match=r"tokens\.weights"):
        TokenMetrics(make_spec(), MonitorConfig(tokens=TokenConfig(weights=weights)))


def test_chunks_of_tokens_have_no_weighted_entropy(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(TokenMetrics(make_spec(token_kind="chunk"), config), [make_step(token_logits=np.zeros((12, 16)))])[0]
    assert row.statuses["tb_entropy/weighted"] is Status.UNAVAILABLE


def test_the_score_waits_for_the_span_and_then_only_rises(make_spec: Any, make_step: Any, feed: Any) -> None:
    config = MonitorConfig(sliding_seconds=0.3)
    unsure = [False, True, True, True, False, False, False, True]
    rows = feed(TokenMetrics(make_spec(), config), inferences(make_step, unsure))
    assert [row.statuses["tb_entropy/sw_max"] for row in rows[:3]] == [Status.WARMING_UP, Status.WARMING_UP, Status.OK]
    assert [row.values["tb_entropy/sw_max"] for row in rows[2:]] == pytest.approx([2 / 3, 1, 1, 1, 1, 1])
    assert rows[-1].values["tb_entropy/sw_max"] == pytest.approx(sliding_maximum(unsure, 3))


def test_the_span_counts_inferences(make_spec: Any, make_step: Any, feed: Any) -> None:
    spec, config = make_spec(executed=5), MonitorConfig(sliding_seconds=1.0)
    steps = [make_step(i, inference_id=i // 5, chunk_offset=i % 5, token_logits=UNSURE if i % 5 == 0 else None) for i in range(10)]
    rows = feed(TokenMetrics(spec, config), steps)
    assert [row.statuses["tb_entropy/sw_max"] for row in rows[4:6]] == [Status.WARMING_UP, Status.OK]


def test_an_invalid_inference_leaves_the_score(make_spec: Any, make_step: Any, feed: Any) -> None:
    config = MonitorConfig(sliding_seconds=0.2)
    bad = make_step(2, token_logits=np.full((7, 16), np.nan))
    rows = feed(TokenMetrics(make_spec(), config), [*inferences(make_step, [True, True]), bad])
    assert rows[2].values["tb_entropy/sw_max"] == 1.0
    assert rows[2].statuses["tb_entropy/weighted"] is Status.INVALID


def test_the_score_can_follow_the_weighted_entropy(make_spec: Any, make_step: Any, feed: Any) -> None:
    config = MonitorConfig(sliding_seconds=0.1, tokens=TokenConfig(sliding="weighted"))
    steps = inferences(make_step, [True, True], action=np.full(7, 0.5))
    values = feed(TokenMetrics(make_spec(), config), [steps[1]])[0].values
    assert values["tb_entropy/sw_max"] == values["tb_entropy/weighted"]


def test_values_that_are_too_old_are_stale(make_spec: Any, make_step: Any, feed: Any) -> None:
    config = MonitorConfig(timing=TimingConfig(max_age_steps=2))
    steps = [make_step(i, inference_id=0, chunk_offset=i, token_logits=UNSURE if i == 0 else None) for i in range(4)]
    rows = feed(TokenMetrics(make_spec(), config), steps)
    assert [row.statuses["tb_entropy/full"] for row in rows] == [Status.OK, Status.OK, Status.OK, Status.STALE]
    assert np.isnan(rows[3].values["tb_entropy/full"])


def test_a_new_inference_ends_staleness(make_spec: Any, make_step: Any, feed: Any) -> None:
    config = MonitorConfig(timing=TimingConfig(max_age_steps=1))
    steps = [make_step(0, inference_id=0, token_logits=UNSURE), make_step(5, inference_id=0, chunk_offset=5), make_step(6, token_logits=UNSURE)]
    rows = feed(TokenMetrics(make_spec(), config), steps)
    assert [row.statuses["tb_entropy/full"] for row in rows] == [Status.OK, Status.STALE, Status.OK]


@pytest.mark.parametrize(("executed", "last_good"), [(1, 10), (16, 32)])
def test_by_default_stale_is_twice_the_executed_steps_or_one_second(
    executed: int, last_good: int, make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig
) -> None:
    steps = [make_step(i, inference_id=0, chunk_offset=i, token_logits=UNSURE if i == 0 else None) for i in (0, last_good, last_good + 1)]
    rows = feed(TokenMetrics(make_spec(executed=executed), config), steps)
    assert [row.statuses["tb_entropy/full"] for row in rows] == [Status.OK, Status.OK, Status.STALE]

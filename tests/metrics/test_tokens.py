"""Token scores: properties, inputs other than logits, groups, held values and the window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from monitor.config import MonitorConfig, TokenConfig
from monitor.errors import ConfigError
from monitor.metrics import TokenMetrics, token_metrics
from monitor.steps import Status

FIELDS = ("entropy", "max_prob", "pcs", "deepgini")
KEYS = ("tb_entropy", "tb_max_prob", "tb_pcs", "tb_deepgini")
logit_rows = st.integers(2, 40).flatmap(lambda k: arrays(np.float64, (1, k), elements=st.floats(-50, 50)))


def scores(logits: np.ndarray) -> dict[str, float]:
    found = token_metrics(logits)
    return {name: float(getattr(found, name)[0]) for name in FIELDS}


@given(logit_rows)
def test_scores_lie_between_zero_and_one(logits: np.ndarray) -> None:
    assert all(0.0 <= value <= 1.0 for value in scores(logits).values())


@given(logit_rows, st.randoms())
def test_order_of_classes_does_not_matter(logits: np.ndarray, random: Any) -> None:
    order = list(range(logits.shape[1]))
    random.shuffle(order)
    assert scores(logits[:, order]) == pytest.approx(scores(logits), abs=1e-12)


@given(logit_rows, st.floats(-1000, 1000))
def test_a_common_offset_does_not_matter(logits: np.ndarray, offset: float) -> None:
    assert scores(logits + offset) == pytest.approx(scores(logits), abs=1e-9)


@given(logit_rows)
def test_max_prob_is_at_most_deepgini(logits: np.ndarray) -> None:
    found = scores(logits)
    assert found["max_prob"] <= found["deepgini"] + 1e-12


@given(arrays(np.float64, (1, 2), elements=st.floats(-50, 50)))
def test_of_two_classes_max_prob_equals_pcs(logits: np.ndarray) -> None:
    found = scores(logits)
    assert found["max_prob"] == pytest.approx(found["pcs"], abs=1e-12)


@given(logit_rows, st.floats(1.0, 10.0))
def test_entropy_grows_with_temperature(logits: np.ndarray, temperature: float) -> None:
    assert scores(logits / temperature)["entropy"] >= scores(logits)["entropy"] - 1e-9


@given(logit_rows)
def test_scores_agree_with_plain_formulas(logits: np.ndarray) -> None:
    z = logits[0] - logits[0].max()
    p = np.exp(z) / np.exp(z).sum()
    k, top = p.size, np.sort(p)[::-1]
    plain = {
        "entropy": -(p[p > 0] * np.log(p[p > 0])).sum() / np.log(k),
        "max_prob": (1 - top[0]) * k / (k - 1),
        "pcs": 1 - (top[0] - top[1]),
        "deepgini": (1 - (p**2).sum()) * k / (k - 1),
    }
    assert scores(logits) == pytest.approx(plain, abs=1e-12)


def test_one_class_is_certain() -> None:
    assert set(scores(np.array([[3.0]])).values()) == {0.0}


def test_confident_tokens_keep_their_digits() -> None:
    found = scores(np.array([[50.0, 0.0, 0.0, 0.0]]))
    r = 3 * np.exp(-50.0)
    assert found["max_prob"] == pytest.approx(r * 4 / 3, rel=1e-9)
    assert found["entropy"] == pytest.approx(r * (1 + 50) / np.log(4), rel=1e-9)


def test_same_input_gives_same_bits() -> None:
    logits = np.random.default_rng(0).normal(0, 3, (7, 301)).astype(np.float32)
    shifted = np.concatenate([np.zeros(1, np.float32), logits.ravel()])[1:].reshape(7, 301)
    assert np.array_equal(token_metrics(logits).entropy, token_metrics(shifted).entropy)


@pytest.mark.parametrize("support", [[], [40], [-1, 2]])
def test_an_impossible_support_is_refused(support: list[int]) -> None:
    with pytest.raises(ValueError, match="does not fit logits of 40 columns"):
        token_metrics(np.zeros((2, 40)), support)


def test_the_wrong_number_of_axes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected \(tokens, classes\)"):
        token_metrics(np.zeros(4))


def head(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, (7, 40)).astype(np.float32)


def logsumexp(table: np.ndarray) -> np.ndarray:
    return np.log(np.exp(table.astype(float)).sum(axis=1))


def test_whole_head_and_its_action_part_agree(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    whole = feed(TokenMetrics(make_spec(), config), [make_step(token_logits=head())])[0].values
    part = feed(TokenMetrics(make_spec(), config), [make_step(token_logits=head()[:, 24:], token_logsumexp=logsumexp(head()))])[0].values
    assert whole == pytest.approx(part, abs=1e-6, nan_ok=True)


def test_leak_is_unavailable_without_the_rest_of_the_head(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(TokenMetrics(make_spec(), config), [make_step(token_logits=head()[:, 24:])])[0]
    assert row.statuses["tb_leak/full"] is Status.UNAVAILABLE
    assert row.statuses["tb_entropy/full"] is Status.OK


def test_full_support_takes_the_whole_head(make_spec: Any, make_step: Any, feed: Any) -> None:
    config = MonitorConfig(tokens=TokenConfig(support="full"))
    row = feed(TokenMetrics(make_spec(), config), [make_step(token_logits=head())])[0]
    assert row.values["tb_entropy/full"] == pytest.approx(token_metrics(head()).entropy.mean())
    assert row.values["tb_leak/full"] == pytest.approx(token_metrics(head(), range(24, 40)).leak.mean())


def test_full_support_without_the_whole_head_is_unavailable_and_says_so(make_spec: Any, make_step: Any, feed: Any) -> None:
    config = MonitorConfig(tokens=TokenConfig(support="full"))
    row = feed(TokenMetrics(make_spec(), config), [make_step(token_logits=head()[:, 24:])])[0]
    assert row.statuses["tb_entropy/full"] is Status.UNAVAILABLE
    assert "expected 40 columns" in row.issues[0].detail


def test_a_wrong_width_names_found_and_expected(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(TokenMetrics(make_spec(), config), [make_step(token_logits=np.zeros((7, 30)))])[0]
    assert row.statuses["tb_entropy/full"] is Status.INVALID
    assert row.issues[0].detail == "token logits have 30 columns, expected 16 (action ids) or 40 (whole head)"


def test_probabilities_score_as_their_logits(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    z = head()[:, 24:].astype(float)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    by_logits = feed(TokenMetrics(make_spec(), config), [make_step(token_logits=z)])[0].values
    by_probs = feed(TokenMetrics(make_spec(), config), [make_step(token_probs=p)])[0].values
    assert by_probs == pytest.approx(by_logits, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize(("total", "status"), [(1.0005, Status.OK), (0.9, Status.INVALID), (1.1, Status.INVALID)])
def test_probabilities_must_sum_to_one(total: float, status: Status, make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(TokenMetrics(make_spec(), config), [make_step(token_probs=np.full((7, 16), total / 16))])[0]
    assert row.statuses["tb_entropy/full"] is status


def top(k: int) -> tuple[np.ndarray, np.ndarray]:
    z = head()[:, 24:].astype(float)
    log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return z, np.sort(log_p, axis=1)[:, ::-1][:, :k]


def test_top_k_gives_exact_max_prob_and_pcs_and_nothing_bounded(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    z, topk = top(3)
    exact = feed(TokenMetrics(make_spec(), config), [make_step(token_logits=z)])[0].values
    row = feed(TokenMetrics(make_spec(), config), [make_step(token_topk=topk)])[0]
    for key in ("tb_max_prob/full", "tb_pcs/full", "tb_pcs/max"):
        assert row.values[key] == pytest.approx(exact[key], abs=1e-6)
    assert row.statuses["tb_entropy/full"] is row.statuses["tb_deepgini/window"] is Status.UNAVAILABLE


def test_a_uniform_tail_is_assumed_only_on_demand_and_told_once(make_spec: Any, make_step: Any, feed: Any) -> None:
    config = MonitorConfig(tokens=TokenConfig(topk_tail="uniform"))
    _, topk = top(3)
    rows = feed(TokenMetrics(make_spec(), config), [make_step(i, token_topk=topk) for i in range(2)])
    rest = np.repeat(np.log((1 - np.exp(topk).sum(axis=1, keepdims=True)) / 13), 13, axis=1)
    spread = token_metrics(np.hstack([topk, rest]))
    assert rows[0].values["tb_entropy/full"] == pytest.approx(spread.entropy.mean(), abs=1e-6)
    assert rows[0].values["tb_deepgini/full"] == pytest.approx(spread.deepgini.mean(), abs=1e-6)
    assert [len(row.issues) for row in rows] == [1, 0]


def test_tokens_with_foreign_ids_are_not_counted(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    logits, ids = np.vstack([head()[:, 24:], np.zeros((1, 16))]), np.array([*range(24, 31), 2])
    with_end = feed(TokenMetrics(make_spec(), config), [make_step(token_logits=logits, token_ids=ids)])[0].values
    assert with_end == pytest.approx(feed(TokenMetrics(make_spec(), config), [make_step(token_logits=logits[:7])])[0].values, nan_ok=True)


def test_the_filter_by_id_can_be_turned_off(make_spec: Any, make_step: Any, feed: Any) -> None:
    config = MonitorConfig(tokens=TokenConfig(filter_by_id=False))
    row = feed(TokenMetrics(make_spec(), config), [make_step(token_logits=np.zeros((7, 16)), token_ids=np.zeros(7))])[0]
    assert row.values["tb_entropy/full"] == 1.0


def test_no_action_token_at_all_is_invalid(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(TokenMetrics(make_spec(), config), [make_step(token_logits=np.zeros((7, 16)), token_ids=np.zeros(7))])[0]
    assert row.statuses["tb_entropy/full"] is row.statuses["tb_entropy/p"] is Status.INVALID
    assert row.issues[0].code == "token_rows"


def test_groups_follow_the_dimensions(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    logits = np.zeros((7, 16))
    logits[3:6, 0] = np.inf
    logits[6] = [0.0, *[-np.inf] * 15]
    row = feed(TokenMetrics(make_spec(), config), [make_step(token_logits=logits)])[0]
    assert row.values["tb_entropy/p"] == 1.0
    assert row.values["tb_entropy/gripper"] == 0.0
    assert row.statuses["tb_entropy/o"] is Status.INVALID
    assert row.values["tb_entropy/full"] == pytest.approx(3 / 4)


def test_tokens_of_a_chunk_take_turns_through_the_groups(make_spec: Any, make_step: Any, feed: Any) -> None:
    config = MonitorConfig(tokens=TokenConfig(tokens_per_action=3))
    logits = np.zeros((12, 16))
    logits[1::3] = [0.0, *[-np.inf] * 15]
    values = feed(TokenMetrics(make_spec(token_kind="chunk"), config), [make_step(token_logits=logits)])[0].values
    assert (values["tb_entropy/p"], values["tb_entropy/o"], values["tb_entropy/gripper"]) == (1.0, 0.0, 1.0)


def test_tokens_of_a_chunk_have_no_groups_by_default(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(TokenMetrics(make_spec(token_kind="chunk"), config), [make_step(token_logits=np.zeros((12, 16)))])[0]
    assert row.statuses["tb_entropy/p"] is Status.UNAVAILABLE
    assert row.values["tb_entropy/full"] == 1.0


def test_a_group_count_that_does_not_fit_is_refused(make_spec: Any) -> None:
    with pytest.raises(ConfigError, match="tokens_per_action is 2, but test has 3 groups"):
        TokenMetrics(make_spec(token_kind="chunk"), MonitorConfig(tokens=TokenConfig(tokens_per_action=2)))


def test_executed_steps_hold_the_values_of_their_inference(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    first = make_step(0, inference_id=5, token_logits=head()[:, 24:])
    rows = feed(TokenMetrics(make_spec(), config), [first, *(make_step(i, inference_id=5, chunk_offset=i) for i in (1, 2, 3))])
    assert rows[3].values == pytest.approx(rows[0].values, nan_ok=True)
    assert rows[3].statuses["tb_entropy/window"] is Status.WARMING_UP


def test_logits_repeated_along_a_chunk_count_once(make_spec: Any, make_step: Any, feed: Any) -> None:
    steps = [make_step(i, inference_id=0, chunk_offset=i, token_logits=head()[:, 24:]) for i in range(4)]
    rows = feed(TokenMetrics(make_spec(), MonitorConfig(window=4)), steps)
    assert rows[-1].statuses["tb_entropy/window"] is Status.WARMING_UP


def test_a_new_inference_without_logits_is_unavailable(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    rows = feed(TokenMetrics(make_spec(), config), [make_step(0, token_logits=head()[:, 24:]), make_step(1)])
    assert set(rows[1].statuses.values()) == {Status.UNAVAILABLE}


def test_policies_that_never_number_their_inferences_are_scored_each_step(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    rows = feed(TokenMetrics(make_spec(), config), [make_step(i, inference_id=0, token_logits=head(i)[:, 24:]) for i in range(2)])
    assert rows[0].values["tb_entropy/full"] != rows[1].values["tb_entropy/full"]


def test_the_window_needs_half_of_it_and_averages_the_last(make_spec: Any, make_step: Any, feed: Any) -> None:
    rows = feed(TokenMetrics(make_spec(), MonitorConfig(window=4)), [make_step(i, token_logits=head(i)) for i in range(7)])
    assert [row.statuses["tb_pcs/window"] for row in rows[:2]] == [Status.WARMING_UP, Status.OK]
    assert rows[6].values["tb_pcs/window"] == pytest.approx(np.mean([row.values["tb_pcs/full"] for row in rows[3:]]))


def test_the_window_skips_invalid_inferences(make_spec: Any, make_step: Any, feed: Any) -> None:
    bad = make_step(4, token_logits=np.full((7, 16), np.nan))
    rows = feed(TokenMetrics(make_spec(), MonitorConfig(window=4)), [*(make_step(i, token_logits=head(i)) for i in range(4)), bad])
    assert rows[4].statuses["tb_pcs/full"] is Status.INVALID
    assert rows[4].values["tb_pcs/window"] == rows[3].values["tb_pcs/window"]


def test_a_window_of_invalid_inferences_ends_the_old_mean(make_spec: Any, make_step: Any, feed: Any) -> None:
    bad = [make_step(4 + i, token_logits=np.full((7, 16), np.nan)) for i in range(4)]
    rows = feed(TokenMetrics(make_spec(), MonitorConfig(window=4)), [*(make_step(i, token_logits=head(i)) for i in range(4)), *bad])
    assert rows[-1].statuses["tb_pcs/window"] is Status.WARMING_UP


# ---- field case: scores full of -inf (huggingface/transformers 14498)


def row(*finite: float) -> np.ndarray:
    return np.array([[*finite, *[-np.inf] * (256 - len(finite))]])


def test_six_equal_logits_among_minus_infinity() -> None:
    found = scores(row(*[2.0] * 6))
    assert found["entropy"] * np.log(256) == pytest.approx(1.791759469228055)
    assert found["deepgini"] * 255 / 256 == pytest.approx(5 / 6)


def test_one_finite_logit_is_certain() -> None:
    assert set(scores(row(2.0)).values()) == {0.0}


@pytest.mark.parametrize("extreme", [-np.inf, np.inf, np.nan, -np.nan], ids=["all -inf", "+inf", "nan", "-nan"])
def test_rows_without_a_distribution_are_invalid(extreme: float) -> None:
    logits = row() if extreme == -np.inf else row(1.0, extreme, 2.0)
    found = token_metrics(logits)
    assert not found.valid[0]
    assert np.isnan(found.entropy[0])


def test_half_precision_with_a_wide_spread_scores_as_double() -> None:
    logits = np.linspace(-30000, 30000, 256).reshape(1, -1).astype(np.float16)
    assert scores(logits) == scores(logits.astype(np.float64))
    assert all(np.isfinite(value) for value in scores(logits).values())


def test_equal_logits_are_uniform() -> None:
    found = scores(np.zeros((1, 256)))
    assert found["entropy"] * np.log(256) == pytest.approx(5.545177444479562)
    assert found["deepgini"] * 255 / 256 == pytest.approx(255 / 256)

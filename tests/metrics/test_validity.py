"""Counts of unusable numbers, with the field case of NaN actions and chunks (NVIDIA/Isaac-GR00T 263)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor.config import MonitorConfig
from monitor.metrics import ValidityMetrics
from monitor.steps import Status


@pytest.mark.parametrize(("action", "bad"), [(np.zeros(7), 0), (np.full(7, np.nan), 7), (np.array([np.inf, *[0] * 6]), 1), (np.zeros(5), 7)])
def test_unusable_dimensions_of_an_action_are_counted(
    action: np.ndarray, bad: int, make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig
) -> None:
    row = feed(ValidityMetrics(make_spec(), config), [make_step(action=action)])[0]
    assert (row.values["invalid/action"], row.statuses["invalid/action"]) == (bad, Status.OK)
    assert bool(row.issues) == (bad > 0)


def test_nan_actions_count_at_once_and_only_then(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    actions = np.zeros((60, 7))
    actions[20], actions[21, 3], actions[22, 0] = np.nan, np.nan, np.inf
    rows = feed(ValidityMetrics(make_spec(), config), [make_step(i, action=a) for i, a in enumerate(actions)])
    assert {i: row.values["invalid/action"] for i, row in enumerate(rows) if row.values["invalid/action"]} == {20: 7, 21: 1, 22: 1}
    assert "3 (drx) is NaN" in rows[21].issues[0].detail


def chunk_with_a_bad_row() -> np.ndarray:
    chunk = np.zeros((16, 7))
    chunk[9, :2] = np.nan
    return chunk


@pytest.mark.parametrize("repeated", [True, False], ids=["chunk with every step", "chunk with the first step"])
def test_a_bad_row_is_told_when_the_chunk_arrives(repeated: bool, make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    steps = [make_step(i, inference_id=3, chunk_offset=i, chunk=chunk_with_a_bad_row() if repeated or i == 0 else None) for i in range(16)]
    rows = feed(ValidityMetrics(make_spec(horizon=16, executed=16), config), steps)
    assert [row.values["invalid/chunk"] for row in rows] == [1, *[0] * 15]
    assert rows[0].issues[0].detail == "chunk row 9: 0 (dx), 1 (dy) are NaN"
    assert not any(row.issues for row in rows[1:])


def test_a_new_chunk_is_seen_even_if_inferences_are_not_numbered(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    steps = [make_step(0, inference_id=0, chunk=np.zeros((16, 7))), make_step(1, inference_id=0, chunk=chunk_with_a_bad_row())]
    assert feed(ValidityMetrics(make_spec(), config), steps)[1].values["invalid/chunk"] == 1


def test_all_rows_of_a_chunk_of_wrong_width_count(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    row = feed(ValidityMetrics(make_spec(), config), [make_step(chunk=np.zeros((16, 6)))])[0]
    assert row.values["invalid/chunk"] == 16
    assert row.issues[0].detail.startswith("chunk has 6 columns, expected 7")


def test_a_policy_without_chunks_has_no_count_of_them(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    assert feed(ValidityMetrics(make_spec(), config), [make_step()])[0].statuses["invalid/chunk"] is Status.UNAVAILABLE


def test_many_bad_rows_are_named_in_short(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    detail = feed(ValidityMetrics(make_spec(), config), [make_step(chunk=np.full((50, 7), np.nan))])[0].issues[0].detail
    assert detail.endswith("; and 42 more rows")


def test_unusable_rows_of_logits_are_counted_and_named(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    logits = np.zeros((7, 16))
    logits[2, 5], logits[4], logits[5, 0] = np.nan, -np.inf, np.inf
    row = feed(ValidityMetrics(make_spec(), config), [make_step(token_logits=logits)])[0]
    assert row.values["invalid/logits"] == 3
    assert row.issues[0].detail.endswith(": 2, 4, 5")


def test_a_row_of_the_whole_head_needs_a_finite_action_id(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    logits = np.zeros((7, 40))
    logits[0, 24:] = -np.inf
    assert feed(ValidityMetrics(make_spec(), config), [make_step(token_logits=logits)])[0].values["invalid/logits"] == 1


def test_all_rows_of_logits_of_wrong_width_count(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    assert feed(ValidityMetrics(make_spec(), config), [make_step(token_logits=np.zeros((7, 9)))])[0].values["invalid/logits"] == 7


@pytest.mark.parametrize(("part", "bad"), [({"token_probs": np.full((3, 16), 0.5)}, 3), ({"token_topk": np.array([[-1.0, -2.0], [-2.0, -1.0]])}, 1)])
def test_probabilities_and_top_k_are_counted_too(part: Any, bad: int, make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    assert feed(ValidityMetrics(make_spec(), config), [make_step(**part)])[0].values["invalid/logits"] == bad


def test_the_count_of_logits_is_held_for_its_inference_only(make_spec: Any, make_step: Any, feed: Any, config: MonitorConfig) -> None:
    steps = [make_step(0, inference_id=1, token_logits=np.full((7, 16), np.nan)), make_step(1, inference_id=1), make_step(2, inference_id=2)]
    rows = feed(ValidityMetrics(make_spec(), config), steps)
    assert rows[1].values["invalid/logits"] == 7
    assert rows[2].statuses["invalid/logits"] is Status.UNAVAILABLE

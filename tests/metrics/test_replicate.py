"""Quirks of the published package."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.metrics.replicate import published_action_series, published_run_value, published_token_scores, published_tool_series


def test_warm_up_counts_as_zero() -> None:
    actions = np.where(np.arange(16)[:, None] % 2, 1.0, -1.0) * np.ones(3)
    series = published_action_series(actions, 1, [-1.0] * 3, [1.0] * 3)
    assert series.tolist() == [*[0.0] * 7, *[1.0] * 9]
    assert published_run_value(series) == pytest.approx(9 / 16)


def test_a_run_of_two_values_is_skipped() -> None:
    assert published_run_value([0.1, 0.2]) is None


def test_tool_series_is_in_metres() -> None:
    positions = 0.01 * np.arange(10)[:, None] * np.array([1.0, 0.0, 0.0])
    assert published_tool_series(positions, 1)[-1] == pytest.approx(0.01 / 3)


def test_a_uniform_head_in_bfloat16_prints_less_than_one() -> None:
    assert published_token_scores(np.zeros((1, 257152)), "bfloat16")["entropy"][0] == pytest.approx(0.99658, abs=1e-5)


def test_scores_are_rounded_to_five_decimals() -> None:
    scores = published_token_scores(np.array([[0.0, 1.0, 2.5]]))
    assert all(value == round(value, 5) for values in scores.values() for value in values)

"""Conformal thresholds: rank, coverage, padding, and too little data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.alarms.conformal import conformal_rank, functional_band, needed, padded, split_threshold
from monitor.errors import ConfigError

NAN = float("nan")


@pytest.mark.parametrize(("alpha", "least"), [(0.15, 6), (0.1, 9), (0.05, 19), (0.2, 4), (0.01, 99)])
def test_the_needed_number_gives_a_finite_threshold_and_one_less_does_not(alpha: float, least: int) -> None:
    assert needed(alpha) == least
    assert conformal_rank(least, alpha) == least
    assert conformal_rank(least - 1, alpha) is None


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, NAN])
def test_an_alpha_outside_zero_to_one_is_refused(alpha: float) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1"):
        split_threshold([1.0], alpha)


def test_no_scores_give_no_threshold() -> None:
    assert split_threshold([], 0.1) is None


def test_nan_among_scores_is_refused() -> None:
    with pytest.raises(ConfigError, match="NaN"):
        split_threshold([1.0, NAN], 0.5)


@given(st.lists(st.floats(0, 1), min_size=10, max_size=30), st.sampled_from([0.1, 0.2, 0.3]))
def test_leave_one_out_false_alarms_stay_below_alpha(scores: list[float], alpha: float) -> None:
    """The exchangeability argument itself: of n + 1 scores, at most alpha (n + 1) lie above the threshold of all the others."""
    thresholds = [split_threshold(scores[:i] + scores[i + 1 :], alpha) for i in range(len(scores))]
    above = sum(t is not None and s > t for s, t in zip(scores, thresholds, strict=True))
    assert above <= alpha * len(scores) + 1e-9


def test_a_constant_score_never_alarms_on_itself() -> None:
    threshold = split_threshold([0.3] * 12, 0.1)
    assert threshold is not None
    assert not threshold < 0.3


def test_series_are_padded_with_their_last_number() -> None:
    np.testing.assert_array_equal(padded([[1, 2], [3, 4, 5]]), [[1, 2, 2], [3, 4, 5]])


def test_gaps_hold_the_last_number_and_the_beginning_the_first() -> None:
    np.testing.assert_array_equal(padded([[NAN, 1, NAN, 2]]), [[1, 1, 1, 2]])


def test_a_series_without_a_number_cannot_be_padded() -> None:
    with pytest.raises(ConfigError, match="series 1: no number in 2 steps"):
        padded([[1.0, 2.0], [NAN, NAN]])


def test_series_of_different_length_are_refused_by_the_band() -> None:
    with pytest.raises(ConfigError, match="series of 2 and of 3 steps: pad them"):
        functional_band(np.zeros((2, 2)), np.zeros((9, 3)), 0.1)


@pytest.mark.parametrize("empty", [np.zeros((0, 3)), np.zeros((3, 0)), np.zeros(3)])
def test_an_empty_set_is_refused(empty: np.ndarray) -> None:
    with pytest.raises(ConfigError, match="mean set: shape"):
        functional_band(empty, np.zeros((9, 3)), 0.1)


def test_the_floor_is_added_to_the_width() -> None:
    band = functional_band(np.ones((3, 2)), np.ones((9, 2)), 0.1, floor=0.5)
    np.testing.assert_array_equal(band.sigma, [0.5, 0.5])


def test_a_band_of_constant_series_does_not_alarm_on_them() -> None:
    band = functional_band(np.ones((3, 2)), np.ones((9, 2)), 0.1)
    assert band.upper is not None
    assert not np.any(band.upper < 1.0)

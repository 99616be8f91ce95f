"""Undefined is None with its counts; intervals are reproducible and contain what they should."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from monitor.assess.statistics import (
    a12,
    auroc,
    auroc_interval,
    auroc_mean_interval,
    binomial_range,
    calibration_error,
    cohen_kappa,
    conformal_range,
    mann_whitney,
    roc_curve,
    shapiro_wilk,
    spearman,
    wilson_interval,
)

SCORES = st.lists(st.integers(0, 5).map(float), min_size=1, max_size=12)


@given(SCORES, SCORES)
def test_a12_is_the_share_of_pairs_won(x: list[float], y: list[float]) -> None:
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a, b in itertools.product(x, y)]
    assert a12(x, y).a12 == pytest.approx(sum(pairs) / len(pairs))


@given(SCORES, SCORES)
def test_swapping_the_groups_mirrors_a12(x: list[float], y: list[float]) -> None:
    assert a12(x, y).a12 == pytest.approx(1.0 - float(a12(y, x).a12 or 0.0))


def test_an_empty_group_has_no_effect_size() -> None:
    assert a12([], [1.0, 2.0]) == (None, None, None, 0, 2)


def test_nan_is_left_out_and_not_counted() -> None:
    assert a12([1.0, math.nan], [2.0]).n_x == 1


def test_infinite_scores_can_be_ranked() -> None:
    assert auroc([1.0, 2.0], [math.inf]) == 1.0


def test_infinite_scores_on_both_sides_are_ties() -> None:
    assert auroc_interval([math.inf], [math.inf], draws=10).value == 0.5


def test_one_class_only_has_no_auroc() -> None:
    assert auroc_interval([1.0, 2.0], []) == (None, None, None, 2, 0)


def test_constant_scores_have_auroc_one_half() -> None:
    assert auroc_interval([1.0] * 4, [1.0] * 3) == (0.5, 0.5, 0.5, 4, 3)


def test_the_interval_is_the_same_for_the_same_seed() -> None:
    rng = np.random.default_rng(0)
    good, bad = rng.normal(size=30), rng.normal(size=20) + 1
    assert auroc_interval(good, bad, draws=200, seed=3) == auroc_interval(good, bad, draws=200, seed=3)


def test_the_interval_holds_the_value() -> None:
    rng = np.random.default_rng(1)
    found = auroc_interval(rng.normal(size=30), rng.normal(size=20) + 1, draws=400)
    assert found.low is not None
    assert found.low < (found.value or 0) < (found.high or 0)


def test_the_mean_over_tasks_leaves_out_tasks_of_one_class() -> None:
    assert auroc_mean_interval([([1.0], [2.0]), ([1.0], [])], draws=20) == (1.0, 1.0, 1.0, 1, 1)


def test_the_roc_curve_encloses_the_auroc() -> None:
    good, bad = [0.1, 0.4, 0.35, 0.2], [0.3, 0.9, 0.4]
    false, found = roc_curve(good, bad)
    assert np.trapezoid(found, false) == pytest.approx(auroc(good, bad))


def test_spearman_agrees_with_scipy() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=25), rng.normal(size=25)
    expected = stats.spearmanr(x, y)
    assert spearman(x, y)[:2] == pytest.approx((expected.statistic, expected.pvalue))


def test_spearman_below_three_pairs_is_undefined() -> None:
    assert spearman([1, 2, math.nan], [1, 2, 3]) == (None, None, None, 2)


def test_pairs_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="3 values beside 2"):
        spearman([1, 2, 3], [1, 2])


def test_mann_whitney_of_equal_values_has_no_p() -> None:
    assert mann_whitney([1, 1], [1, 1, 1]) == (3.0, None, 2, 3)


@pytest.mark.parametrize("values", [[], [1.0, 2.0], [1.0] * 9, [1.0, 2.0, math.inf]])
def test_shapiro_wilk_is_undefined_for_too_few_constant_and_infinite(values: list[float]) -> None:
    found = shapiro_wilk(values)
    assert (found.w, found.p, found.n) == (None, None, len(values))


def test_no_runs_have_no_calibration_error() -> None:
    assert calibration_error([], []) == (None, None, None, None, 0)


def test_a_confidence_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0.2 to 1.5"):
        calibration_error([0.2, 1.5], [0, 1])


def test_a_sure_and_right_confidence_has_no_error() -> None:
    assert calibration_error([1.0, 0.0], [1, 0]) == (0.0, 0.0, 0.0, 0.0, 2)


def test_a_sure_and_wrong_confidence_has_a_finite_likelihood() -> None:
    assert calibration_error([1.0], [0]).nll == pytest.approx(-math.log(1e-12))


def test_kappa_takes_off_chance() -> None:
    assert cohen_kappa(["a", "a", "b", "b"], ["a", "b", "b", "b"]).kappa == pytest.approx(0.5)


def test_kappa_leaves_out_what_one_rater_left_out() -> None:
    assert cohen_kappa(["a", None, "b"], ["a", "b", "b"]) == (1.0, 1.0, 2)


def test_kappa_of_one_word_is_undefined() -> None:
    assert cohen_kappa(["a", "a"], ["a", "a"]) == (None, 1.0, 2)


def test_wilson_interval_is_the_textbook_one() -> None:
    z, n, p = 1.959963984540054, 10, 0.3
    centre, half = (p + z**2 / (2 * n)) / (1 + z**2 / n), z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert wilson_interval(3, 10) == pytest.approx((centre - half, centre + half))


@pytest.mark.parametrize("interval", [wilson_interval(0, 0), binomial_range(0, 0.1), conformal_range(0, 20, 0.1), conformal_range(50, 5, 0.1)])
def test_nothing_to_estimate_from_has_no_interval(interval: tuple[float | None, float | None]) -> None:
    assert interval == (None, None)


def test_few_calibration_runs_widen_the_range_of_false_alarms() -> None:
    assert (conformal_range(100, 19, 0.1).high or 0) > (binomial_range(100, 0.1).high or 1)

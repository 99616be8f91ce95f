"""Scores at common time, and figures of alarms."""

from collections.abc import Callable

import numpy as np
import pytest

from monitor.assess.detection import baseline_score, by_class, cut_steps, detection_figures, first_alarm, max_so_far, score_at, stretched
from monitor.assess.series import EpisodeSeries

NAN = float("nan")
Make = Callable[..., EpisodeSeries]


def test_max_so_far_passes_over_missing_values() -> None:
    np.testing.assert_array_equal(max_so_far([NAN, 1, NAN, 3, 2]), [NAN, 1, 1, 3, 3])


def test_max_so_far_of_nothing_is_nothing() -> None:
    assert max_so_far([]).size == 0


def test_a_score_is_read_at_the_cut() -> None:
    assert score_at([1, 2, 9], 2) == 2.0


def test_a_run_without_a_statement_has_no_score() -> None:
    assert score_at([NAN, NAN, 4.0], 2) is None


def test_the_common_time_is_the_shortest_run_of_each_task(make_episode: Make) -> None:
    episodes = [make_episode([0] * 5, "a"), make_episode([0] * 9, "b"), make_episode([0] * 7, "c", task="push")]
    assert cut_steps(episodes, "common") == {"pick": 5, "push": 7}


def test_a_quarter_of_the_declared_limit(make_episode: Make) -> None:
    assert cut_steps([make_episode([0] * 5, time_limit=120)], "quarter") == {"pick": 30}


def test_a_quarter_of_the_longest_run_where_no_limit_is_declared(make_episode: Make) -> None:
    assert cut_steps([make_episode([0] * 5), make_episode([0] * 8, "b")], "quarter") == {"pick": 2}


def test_a_score_at_the_threshold_is_no_alarm() -> None:
    assert first_alarm([1.0, 1.0], 1.0) is None


def test_a_band_is_compared_step_by_step() -> None:
    assert first_alarm([1.0, 1.0, 1.0], [2.0, 1.5, 0.5]) == 2


def test_a_band_keeps_its_last_value() -> None:
    np.testing.assert_array_equal(stretched([1.0, 2.0], 4), [1, 2, 2, 2])


def test_no_alarm_on_steps_without_a_statement() -> None:
    assert first_alarm([NAN, NAN], 0.0) is None


def test_no_alarm_after_the_end_of_a_run() -> None:
    assert first_alarm([1.0, 1.0], [2.0, 2.0, 0.0]) is None


def test_one_class_only_gives_no_balanced_accuracy() -> None:
    found = detection_figures([0.5, None], [True, True])
    assert (found.tpr, found.tnr, found.balanced_accuracy, found.false_alarm_rate) == (0.5, None, None, None)


def test_no_runs_give_no_figures() -> None:
    found = detection_figures([], [])
    assert (found.tpr, found.twa, found.n_success, found.n_failure) == (None, None, 0, 0)


def test_lead_time_is_over_detected_failures_only() -> None:
    found = detection_figures([0.25, None, None], [True, True, False], durations_s=[8.0, 8.0, 2.0])
    assert (found.lead_share, found.lead_s) == (0.75, 6.0)


def test_one_success_may_raise_several_false_alarms() -> None:
    found = detection_figures([0.1, None], [False, False], activations=[3, 0])
    assert (found.false_alarm_rate, found.false_alarms_per_episode) == (0.5, 1.5)


def test_lists_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="argument"):
        detection_figures([0.1], [True, False])


def test_run_length_is_not_cut(make_episode: Make) -> None:
    assert baseline_score("run length", make_episode([0] * 9), 2) == 9.0


def test_noise_depends_on_seed_and_episode_only(make_episode: Make) -> None:
    one, other = make_episode([0] * 9, "a"), make_episode([5] * 9, "a")
    assert baseline_score("noise", one, 4, seed=1) == baseline_score("noise", other, 4, seed=1)
    assert baseline_score("noise", one, 4, seed=1) != baseline_score("noise", make_episode([0] * 9, "b"), 4, seed=1)


def test_runs_without_a_score_belong_to_no_class() -> None:
    assert by_class([1.0, None, 3.0], [False, False, True]) == ([1.0], [3.0])

"""Fitting thresholds from labelled episodes."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.alarms.calibration import Fit, FitOptions, fit, learned_direction
from monitor.alarms.offline import OfflineVote, metric_alarm
from monitor.assess.series import EpisodeSeries, Origin, SeriesSet
from monitor.config import VoteConfig
from monitor.errors import ConfigError, StepError
from monitor.steps import Family, MetricInfo

Make = Callable[..., EpisodeSeries]
NAN = float("nan")


@pytest.fixture
def successes(make_episode: Make) -> Callable[..., list[EpisodeSeries]]:
    """`count` successful runs of 5 to 8 steps; the maximum of run i is i / 100."""
    return lambda count: [make_episode([0.0] * (4 + i % 4) + [i / 100], f"g{i}") for i in range(count)]


@pytest.fixture
def two_metrics(make_info: Callable[..., MetricInfo]) -> Callable[..., SeriesSet]:
    """Random runs with two independent metrics of different scale and family."""

    def make(count: int, seed: int, make_episode: Make) -> SeriesSet:
        rng = np.random.default_rng(seed)
        episodes = []
        for i in range(count):
            values = {"m/full": rng.random(8) * 0.9, "n/full": rng.random(8) * 90.0}
            episodes.append(make_episode([0.0] * 8, f"{seed}-{i}", values=values, statuses={key: np.zeros(8, np.uint8) for key in values}))
        infos = {"m/full": make_info("m/full", Family.TOKEN), "n/full": replace(make_info("n/full", Family.ACTION), high=1e9)}
        return SeriesSet(episodes=tuple(episodes), infos=infos)

    return make


def level(found: Fit, number: int = 0) -> Any:
    return found.thresholds.metrics[number].threshold


def test_a_constant_threshold_is_the_ranked_maximum(make_set: Any, successes: Any) -> None:
    assert level(fit(make_set(successes(9)), FitOptions())) == 0.08


def test_too_few_successes_are_refused_with_the_needed_number(make_set: Any, successes: Any) -> None:
    with pytest.raises(ConfigError, match=r"8 successful runs among 8 episodes: alpha 0.1 \(constant\) needs 9"):
        fit(make_set(successes(8)), FitOptions())


def test_a_band_needs_more_for_its_centre(make_set: Any, successes: Any) -> None:
    with pytest.raises(ConfigError, match=r"alpha 0.1 \(functional\) needs 13"):
        fit(make_set(successes(12)), FitOptions(method="functional"))
    assert len(level(fit(make_set(successes(13)), FitOptions(method="functional")))) == 8


def test_the_page_gives_the_needed_numbers(make_set: Any, successes: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "calibration.md").read_text(encoding="utf-8")
    for alpha, constant, banded in re.findall(r"^\| (0\.\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE):
        for method, least in (("constant", constant), ("functional", banded)):
            with pytest.raises(ConfigError, match=f"needs {least};"):
                fit(make_set(successes(int(least) - 1)), FitOptions(alpha=float(alpha), method=method))  # type: ignore[arg-type]


def test_failures_and_unknown_runs_do_not_move_the_threshold(make_set: Any, successes: Any, make_episode: Make) -> None:
    others = [make_episode([0.9], "b", success=False), make_episode([0.8], "u", success=None)]
    found = fit(make_set([*successes(9), *others]), FitOptions())
    assert level(found) == 0.08
    assert (found.thresholds.counts.successes, found.thresholds.counts.failures, found.thresholds.counts.unknown) == (9, 1, 1)


def test_the_file_names_the_episodes_that_it_saw(make_set: Any, successes: Any) -> None:
    assert fit(make_set(successes(9)), FitOptions()).thresholds.seen[0] == "bag:g0"


def test_small_values_can_be_the_suspicious_ones(make_set: Any, make_episode: Make) -> None:
    episodes = [make_episode([0.5 + i / 100], f"g{i}") for i in range(9)]
    (metric,) = fit(make_set(episodes), FitOptions(below=("m/*",))).thresholds.metrics
    assert (metric.direction, metric.threshold) == ("below", 0.5)
    assert metric_alarm(metric, make_episode([0.6, 0.4])).steps == (1,)


def test_an_unknown_pattern_is_refused_with_the_known_metrics(make_set: Any, successes: Any) -> None:
    with pytest.raises(ConfigError, match=r"--metric q/\*: no metric .* there are: m/full"):
        fit(make_set(successes(9)), FitOptions(metrics=("q/*",)))


def test_a_metric_with_too_few_statements_is_left_out_and_told(make_set: Any, successes: Any, make_episode: Make) -> None:
    silent = [make_episode([NAN, NAN], f"s{i}") for i in range(5)]
    with pytest.raises(ConfigError, match="m/full: left out: statements in 8 successful runs, 9 are needed"):
        fit(make_set([*successes(8), *silent]), FitOptions())


def test_constant_scores_are_told_and_do_not_alarm_on_themselves(make_set: Any, make_episode: Make) -> None:
    found = fit(make_set([make_episode([0.3] * 4, f"g{i}") for i in range(9)]), FitOptions())
    assert "0.3 in all 9 successful runs" in found.notices[0]
    assert metric_alarm(found.thresholds.metrics[0], make_episode([0.3] * 9)).steps == ()


def test_a_metric_that_successes_drive_to_its_end_is_left_out(make_set: Any, make_episode: Make) -> None:
    with pytest.raises(ConfigError, match=r"reach the end of its range \(1\), so it could never alarm"):
        fit(make_set([make_episode([1.0], f"g{i}") for i in range(9)]), FitOptions())


def test_infinite_values_give_no_threshold(make_set: Any, make_episode: Make) -> None:
    with pytest.raises(ConfigError, match="no metric can be calibrated"):
        fit(make_set([make_episode([float("inf"), 0.1 * i], f"g{i}") for i in range(9)]), FitOptions())


def test_episodes_of_two_configurations_are_refused(make_set: Any, successes: Any, make_episode: Make) -> None:
    with pytest.raises(StepError, match="config 'd' instead of 'c'"):
        fit(make_set([*successes(9), make_episode([0.1], origin=Origin("p", config="d"))]), FitOptions())


@pytest.mark.parametrize("method", ["constant", "functional"])
def test_joint_thresholds_keep_alpha_for_all_metrics_together(two_metrics: Any, make_episode: Make, method: Any) -> None:
    found = fit(two_metrics(300, 0, make_episode), FitOptions(alpha=0.2, method=method)).thresholds
    vote = OfflineVote(found, VoteConfig())
    alarms = [bool(vote.run(episode).steps) for episode in two_metrics(300, 1, make_episode).episodes]
    assert 0.1 < np.mean(alarms) < 0.3


def test_too_few_for_joint_thresholds_is_told(two_metrics: Any, make_episode: Make) -> None:
    found = fit(two_metrics(9, 0, make_episode), FitOptions())
    assert found.thresholds.metrics[0].joint is None
    assert "joint thresholds: 9 successful runs, 13 are needed" in found.notices[0]


def test_the_direction_is_learned_from_failures(make_episode: Make) -> None:
    good = [make_episode([0.5 + i / 100] * 4, f"g{i}") for i in range(12)]
    bad = [make_episode([0.1 + i / 100] * 9, f"b{i}", success=False) for i in range(6)]
    assert learned_direction("m/full", [*good, *bad]) == (-1.0, 1.0)


def test_a_metric_whose_direction_the_runs_do_not_tell_is_left_out(make_set: Any, make_episode: Make) -> None:
    episodes = [make_episode([0.5] * 4, f"{i}", success=i % 2 == 0) for i in range(24)]
    with pytest.raises(ConfigError, match="do not tell its direction"):
        fit(make_set(episodes), FitOptions(learn=True))

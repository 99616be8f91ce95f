"""Alarms over finished episodes, and compositions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monitor.alarms.detectors import composed, cross_detectors, threshold_detectors, unseen_by
from monitor.alarms.offline import OfflineVote, excess, metric_alarm, mismatches
from monitor.alarms.thresholds import Counts, Identity, MetricThreshold, Thresholds
from monitor.assess.series import EpisodeSeries, Origin
from monitor.config import VoteConfig
from monitor.errors import ConfigError
from monitor.steps import Family

Make = Callable[..., EpisodeSeries]
NAN = float("nan")


def metric(key: str = "m/full", **changes: Any) -> MetricThreshold:
    facts = {"label": "M", "family": Family.TOKEN, "threshold": 0.5, "centre": 0.1, "runs": 20}
    return MetricThreshold.model_validate({"metric": key, **facts, **changes})


def thresholds(*metrics: MetricThreshold, tasks: tuple[str, ...] = (), seen: tuple[str, ...] = ()) -> Thresholds:
    return Thresholds(
        identity=Identity(policy="p", config="c", tasks=tasks),
        seen=seen,
        alpha=0.1,
        method="constant",
        counts=Counts(episodes=20, successes=20, failures=0, unknown=0),
        metrics=metrics,
    )


@pytest.fixture
def two(make_episode: Make) -> EpisodeSeries:
    values = {"m/full": np.array([0.1, 0.6, 0.1, 0.1]), "n/full": np.array([NAN, 0.3, 0.9, 0.1])}
    return make_episode([0.0] * 4, values=values, statuses={key: np.where(np.isnan(v), 3, 0).astype(np.uint8) for key, v in values.items()})


def test_the_first_step_beyond_is_the_alarm(make_episode: Make) -> None:
    heard = metric_alarm(metric(), make_episode([0.1, 0.6, 0.7, 0.1]))
    assert (heard.steps, heard.first) == ((1,), 0.25)


def test_without_an_alarm_there_is_no_first(make_episode: Make) -> None:
    assert metric_alarm(metric(), make_episode([0.5, 0.5])).first is None


def test_the_vote_hears_what_the_robot_would_hear(two: EpisodeSeries) -> None:
    vote = OfflineVote(thresholds(metric(), metric("n/full", family="action")), VoteConfig(mode="two_families", within_s=0.1))
    heard = vote.run(two)
    assert heard.steps == (2,)
    assert "token: agrees (M full)" in heard.text or "action: agrees" in heard.text


def test_a_metric_that_an_episode_lacks_is_silent(make_episode: Make) -> None:
    vote = OfflineVote(thresholds(metric(), metric("n/full")), VoteConfig())
    assert vote.run(make_episode([0.1, 0.9])).steps == (1,)


def test_a_vote_forgets_the_episode_before(make_episode: Make) -> None:
    vote = OfflineVote(thresholds(metric(), metric("n/full")), VoteConfig())
    assert vote.run(make_episode([0.9])) == vote.run(make_episode([0.9]))


def test_excess_is_zero_at_the_centre_and_one_at_the_threshold(make_episode: Make) -> None:
    np.testing.assert_allclose(excess(metric(), make_episode([0.1, 0.5, 0.9, NAN])), [0, 1, 2, NAN])


def test_excess_of_a_metric_without_a_scale_is_cut(make_episode: Make) -> None:
    flat = metric(threshold=0.5, centre=0.5)
    np.testing.assert_allclose(excess(flat, make_episode([0.4, 0.5, 0.6])), [-10, 1, 10])


def test_excess_below_counts_downwards(make_episode: Make) -> None:
    below = metric(direction="below", threshold=0.2, centre=0.6)
    np.testing.assert_allclose(excess(below, make_episode([0.6, 0.2])), [0, 1], atol=1e-12)


def test_the_largest_excess_passes_over_silent_metrics(two: EpisodeSeries) -> None:
    found = composed([metric(), metric("n/full")], two, largest=True)
    np.testing.assert_allclose(found, [0.0, 1.25, 2.0, 0.0])


def test_the_mean_excess_is_weighted_over_those_that_speak(two: EpisodeSeries) -> None:
    found = composed([metric(weight=3.0), metric("n/full")], two, largest=False)
    np.testing.assert_allclose(found, [0.0, (3 * 1.25 + 0.5) / 4, 0.5, 0.0])


def test_a_vote_promises_alpha_only_with_joint_thresholds() -> None:
    def alphas(*metrics: MetricThreshold) -> dict[str, float | None]:
        return {d.name: d.alpha for d in threshold_detectors(thresholds(*metrics), VoteConfig())}

    assert alphas(metric(), metric("n/full"))["vote: any"] is None
    assert alphas(metric(joint=0.6), metric("n/full", joint=0.6))["vote: any"] == 0.1
    assert alphas(metric(joint=0.6), metric("n/full", joint=0.6))["vote: weighted"] is None


def test_episodes_of_another_policy_are_refused(make_episode: Make) -> None:
    episodes = [make_episode([0.1], origin=Origin("q", config="c"))]
    with pytest.raises(ConfigError, match="policy 'q' instead of 'p'"):
        mismatches(thresholds(metric()), episodes)
    assert mismatches(thresholds(metric()), episodes, on_mismatch="warn") == ["policy 'q' instead of 'p'"]


def test_an_episode_is_judged_by_thresholds_that_have_not_seen_its_task(make_episode: Make) -> None:
    episodes = [make_episode([0.1], "a"), make_episode([0.1], "b", task="push"), make_episode([0.1], "c")]
    files = [
        thresholds(metric(), tasks=("pick",), seen=("bag:c",)),
        thresholds(metric(), tasks=("push",), seen=("bag:b", "bag:c")),
    ]
    assert unseen_by(files, episodes) == {"bag:a": 1, "bag:b": 0}


def test_crossed_detectors_use_the_thresholds_of_the_episode(make_episode: Make) -> None:
    files = [thresholds(metric(threshold=0.5)), thresholds(metric(threshold=0.9), metric("n/full"))]
    (found,) = cross_detectors(files, VoteConfig(), {"bag:a": 0, "bag:b": 1})
    assert found.alarm is not None
    assert found.alarm(make_episode([0.7], "a")) == (0.0, 1)
    assert found.alarm(make_episode([0.7], "b")) == (None, 0)

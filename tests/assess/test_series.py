"""The record that everything is read into, and its splits."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from monitor.assess.series import EpisodeSeries, Origin, SeriesSet, origin_of, split_by_scene, split_by_task
from monitor.config import MonitorConfig, TokenConfig
from monitor.errors import StepError
from monitor.policy import PolicySpec

Make = Callable[..., EpisodeSeries]


def test_a_series_of_another_length_is_refused(make_episode: Make) -> None:
    with pytest.raises(StepError, match=r"bag:e1: m/full has shape \(2,\), the episode 3 steps"):
        make_episode([1.0, 2.0], length=3)


def test_values_and_statuses_must_name_the_same_metrics(make_episode: Make) -> None:
    with pytest.raises(StepError, match="different metrics"):
        make_episode([1.0], statuses={})


def test_only_ok_values_are_statements(make_episode: Make) -> None:
    episode = make_episode([1.0, 2.0], statuses={"m/full": np.array([0, 3], np.uint8)})
    np.testing.assert_array_equal(episode.statements("m/full"), [1.0, np.nan])


def test_a_metric_that_is_not_there_makes_no_statement(make_episode: Make) -> None:
    assert np.isnan(make_episode([1.0]).statements("other/full")).all()


def test_keys_are_metrics_with_a_statement(make_episode: Make, make_set: Callable[..., SeriesSet]) -> None:
    assert make_set([make_episode([float("nan")])]).keys == []
    assert make_set([make_episode([float("nan")]), make_episode([1.0], "b")]).keys == ["m/full"]


def test_no_episodes_have_no_origin(make_set: Callable[..., SeriesSet]) -> None:
    with pytest.raises(StepError, match="no episodes"):
        make_set([]).origin()


def test_episodes_of_two_policies_are_refused_with_the_difference(make_episode: Make, make_set: Callable[..., SeriesSet]) -> None:
    episodes = [make_episode([1.0], "a"), make_episode([1.0], "b"), make_episode([1.0], "c", origin=Origin("q", config="c"))]
    with pytest.raises(StepError, match="1 episodes come from elsewhere: policy 'q' instead of 'p'"):
        make_set(episodes).origin()


def test_runs_of_one_scene_stay_together(make_episode: Make) -> None:
    episodes = [make_episode([1.0], f"{seed}{fault}", seed=seed, perturbation=fault) for seed in range(20) for fault in ("", "dark")]
    drawn, rest = split_by_scene(episodes, 0.5, 1)
    assert len(drawn) == len(rest) == 20
    assert not {e.seed for e in drawn} & {e.seed for e in rest}


def test_the_split_is_the_same_for_the_same_seed(make_episode: Make) -> None:
    episodes = [make_episode([1.0], str(i)) for i in range(20)]
    assert split_by_scene(episodes, 0.5, 1) == split_by_scene(episodes, 0.5, 1)


def test_a_task_that_does_not_occur_cannot_be_left_out(make_episode: Make) -> None:
    with pytest.raises(StepError, match="'push' does not occur; known: pick"):
        split_by_task([make_episode([1.0])], ["push"])


def test_left_out_tasks_are_apart(make_episode: Make) -> None:
    kept, out = split_by_task([make_episode([1.0], "a"), make_episode([1.0], "b", task="push")], ["push"])
    assert ([e.task for e in kept], [e.task for e in out]) == (["pick"], ["push"])


def test_the_origin_of_tokens_tells_support_and_classes() -> None:
    spec = PolicySpec(name="p", token_kind="per_dimension", token_support=(10, 26), vocab_size=40)
    assert origin_of(spec, MonitorConfig()).classes == 16
    full = MonitorConfig(tokens=TokenConfig(support="full"))
    assert (origin_of(spec, full).support, origin_of(spec, full).classes) == ("full", 40)


def test_without_tokens_there_is_no_support() -> None:
    origin = origin_of(PolicySpec(name="p"), MonitorConfig())
    assert (origin.logits_source, origin.support, origin.classes) == ("", "", 0)


def test_equal_origins_do_not_differ(make_episode: Make) -> None:
    origin = make_episode([1.0]).origin
    assert origin.differences(replace(origin)) == []

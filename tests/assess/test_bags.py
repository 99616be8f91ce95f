"""Records of a bag to series."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.assess.bags import series_from_bag
from monitor.assess.series import Origin, SeriesSet
from monitor.messages import EpisodeEvent, EpisodeRecord, Outcome, ReportRecord
from monitor.steps import MetricInfo, Status

ORIGIN = Origin("p")


@dataclass
class Source:
    """A bag in memory."""

    reported: Sequence[ReportRecord] = ()
    events: Sequence[EpisodeRecord] = ()
    path: Path = field(default=Path("bags/one"))

    def reports(self) -> Sequence[ReportRecord]:
        return self.reported

    def episodes(self) -> Sequence[EpisodeRecord]:
        return self.events


def report(step: int, value: float = 1.0, status: Status = Status.OK, **changes: Any) -> ReportRecord:
    facts: dict[str, Any] = {
        "time": 0.1 * step,
        "episode_id": "e",
        "step": step,
        "verdict": "accepted",
        "metrics": ("m/full",),
        "values": np.array([value]),
        "statuses": np.array([status], np.uint8),
        "active_alarms": (),
        "issues": (),
        "held": False,
    }
    return ReportRecord(**{**facts, **changes})


def end(outcome: Outcome = Outcome.SUCCESS, **changes: Any) -> EpisodeRecord:
    return EpisodeRecord(event=EpisodeEvent.ENDED, time=1.0, **{"episode_id": "e", "task": "pick", "seed": 4, "outcome": outcome, **changes})


@pytest.fixture
def read(make_info: Callable[..., MetricInfo]) -> Callable[..., SeriesSet]:
    return lambda reports, events=(): series_from_bag(Source(reports, events), ORIGIN, 0.1, [make_info()])


def test_an_episode_has_the_facts_of_its_records(read: Callable[..., SeriesSet]) -> None:
    (episode,) = read([report(0), report(1, 2.0)], [end(perturbation="dark")]).episodes
    assert (episode.task, episode.success, episode.length, episode.seed, episode.perturbation) == ("pick", True, 2, 4, "dark")
    assert episode.name == "one:e"
    np.testing.assert_array_equal(episode.values["m/full"], [1.0, 2.0])


def test_a_step_that_was_not_recorded_makes_no_statement(read: Callable[..., SeriesSet]) -> None:
    (episode,) = read([report(0), report(2)]).episodes
    np.testing.assert_array_equal(episode.statements("m/full"), [1.0, np.nan, 1.0])


def test_reports_that_were_not_accepted_say_nothing(read: Callable[..., SeriesSet]) -> None:
    (episode,) = read([report(0), report(0, 9.0, verdict="duplicate")]).episodes
    np.testing.assert_array_equal(episode.values["m/full"], [1.0])


def test_an_episode_without_an_end_has_an_unknown_outcome(read: Callable[..., SeriesSet]) -> None:
    started = EpisodeRecord(event=EpisodeEvent.STARTED, time=0.0, episode_id="e", task="pick")
    assert read([report(0)], [started]).episodes[0].success is None


def test_seeds_that_are_all_zero_were_not_given(read: Callable[..., SeriesSet]) -> None:
    assert read([report(0)], [end(seed=0)]).episodes[0].seed is None
    both = read([report(0), report(0, episode_id="f")], [end(seed=0), end(seed=1, episode_id="f")]).episodes
    assert [episode.seed for episode in both] == [0, 1]


def test_the_instruction_is_the_task_where_none_is_named(read: Callable[..., SeriesSet]) -> None:
    assert read([report(0)], [end(task="", instruction="pick it up")]).episodes[0].task == "pick it up"


def test_an_episode_without_reports_is_told(read: Callable[..., SeriesSet]) -> None:
    found = read([], [end()])
    assert found.episodes == ()
    assert found.notices == ("bags/one: episode e: no reports (1)",)


def test_an_impossible_step_number_is_told_and_passed_over(read: Callable[..., SeriesSet]) -> None:
    found = read([report(0), report(10**9), report(-1)])
    assert found.episodes[0].length == 1
    assert "impossible step number (2)" in found.notices[0]


def test_metrics_of_another_version_are_told_and_left_out(read: Callable[..., SeriesSet]) -> None:
    found = read([report(0, metrics=("new/full",))])
    assert found.episodes[0].values == {}
    assert "does not know: new/full" in found.notices[0]

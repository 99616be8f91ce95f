"""Label files: agreement, disagreement, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.assess.labels import Label, Labels, read_labels
from monitor.assess.series import EpisodeSeries
from monitor.errors import StepError

Make = Callable[..., EpisodeSeries]


@pytest.fixture
def read(tmp_path: Path, make_episode: Make) -> Callable[..., Labels]:
    def run(*rows: str, header: str = "episode_id,rater,success,quality") -> Labels:
        path = tmp_path / "labels.csv"
        path.write_text("\n".join([header, *rows]), encoding="utf-8")
        return read_labels(path, [make_episode([1.0], name, source=source) for name, source in (("e1", "a"), ("e2", "a"), ("e2", "b"))])

    return run


def test_an_id_is_found_without_its_source_where_it_is_unique(read: Callable[..., Labels]) -> None:
    assert read("e1,anna,yes,high").by_episode == {"a:e1": {"anna": Label(True, "high")}}


def test_an_id_that_is_not_unique_is_refused_with_the_choices(read: Callable[..., Labels]) -> None:
    with pytest.raises(StepError, match="line 2: episode 'e2' is in several recordings; write one of: a:e2, b:e2"):
        read("e2,anna,yes,high")


def test_outcomes_are_those_on_which_raters_agree(read: Callable[..., Labels]) -> None:
    labels = read("e1,anna,yes,high", "e1,ben,no,", "a:e2,anna,no,", "a:e2,ben,no,", "b:e2,anna,yes,")
    assert labels.outcomes() == {"a:e2": False, "b:e2": True}


def test_qualities_are_those_on_which_raters_agree(read: Callable[..., Labels]) -> None:
    assert read("e1,anna,yes,high", "e1,ben,yes,low", "a:e2,anna,yes,low").qualities() == {"a:e2": "low"}


def test_kappa_counts_failure_as_a_label(read: Callable[..., Labels]) -> None:
    found = read("e1,anna,yes,high", "e1,ben,yes,high", "a:e2,anna,no,", "a:e2,ben,no,").agreement()
    assert found is not None
    assert (found.kappa, found.n) == (1.0, 2)


def test_one_rater_has_no_kappa(read: Callable[..., Labels]) -> None:
    assert read("e1,anna,yes,high").agreement() is None


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("e1,anna,perhaps,", "line 2: success 'perhaps', expected yes or no"),
        ("e1,anna,yes,splendid", "line 2: quality 'splendid', expected high, medium or low"),
        ("e1,anna,no,high", "line 2: a failure has no quality"),
    ],
)
def test_a_word_that_is_not_allowed_is_refused(read: Callable[..., Labels], row: str, told: str) -> None:
    with pytest.raises(StepError, match=told):
        read(row)


def test_a_rater_who_says_it_twice_is_refused(read: Callable[..., Labels]) -> None:
    with pytest.raises(StepError, match="line 3: rater 'anna' labels 'e1' a second time"):
        read("e1,anna,yes,", "e1,anna,no,")


@pytest.mark.parametrize("header", ["", "episode,success", "episode_id,rater", "episode_id,success,colour"])
def test_other_columns_are_refused(read: Callable[..., Labels], header: str) -> None:
    with pytest.raises(StepError, match=r"columns .*expected episode_id"):
        read(header=header)


def test_a_file_with_outcomes_only_needs_no_rater(read: Callable[..., Labels]) -> None:
    assert read("e1,1", header="episode_id,success").outcomes() == {"a:e1": True}

"""The importer: sound lines, and everything that can be wrong with one. The excerpt has the form of air-embodied-brain/actprobe (Apache-2.0)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.assess.actprobe import read_actprobe
from monitor.errors import StepError
from monitor.steps import Family, Status


def line(**changes: Any) -> str:
    steps = [{"t": t, "chunk_mse": 0.25 * t, "eef_z": 0.7} for t in range(3)]
    episode = {"episode_id": 0, "task_id": 2, "task_description": "put it", "success": True, "length": 3, "steps": steps, **changes}
    return json.dumps({key: value for key, value in episode.items() if value is not None})


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def run(*lines: str) -> Path:
        path = tmp_path / "task_2.jsonl"
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    return run


def test_a_sound_line_is_an_episode(write: Callable[..., Path]) -> None:
    found = read_actprobe(write(line()), "pi0")
    (episode,) = found.episodes
    assert (episode.name, episode.task, episode.success, episode.length) == ("task_2.jsonl:2/0", "put it", True, 3)
    assert episode.origin.policy == "pi0"
    np.testing.assert_array_equal(episode.statements("actprobe/chunk_mse"), [0.0, 0.25, 0.5])
    assert found.notices == ()


def test_a_window_makes_statements_once_it_is_full(write: Callable[..., Path]) -> None:
    steps = [{"t": t, "chunk_mse": float(t)} for t in range(9)]
    (episode,) = read_actprobe(write(line(steps=steps, length=9))).episodes
    np.testing.assert_array_equal(episode.statements("actprobe/chunk_mse_w8")[6:], [np.nan, 3.5, 4.5])
    assert episode.statuses["actprobe/chunk_mse_w8"][6] == Status.WARMING_UP


def test_scalars_have_a_family_and_a_unit(write: Callable[..., Path]) -> None:
    infos = read_actprobe(write(line())).infos
    assert (infos["actprobe/chunk_mse"].family, infos["actprobe/eef_z"].unit) == (Family.PLAN, "m")


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (line()[:40], "not JSON, cut short perhaps"),
        ("[1, 2]", "expected an object, found list"),
        (line(success=None), "no success"),
        (line(steps=None, success=None), "no success, no steps"),
        (line(steps=[]), "at least one"),
        (line(success="yes"), "expected true or false, found 'yes'"),
        (line(length=9), "length says 9, but there are 3 steps"),
        (line(steps=[{"t": 0}, {"t": 2}], length=2), "without gaps"),
        (line(task_id=None, task_description=None), "no task_description and no task_id"),
        (line(), "episode 2/0 occurs twice"),
    ],
)
def test_a_bad_line_is_named_and_left_out(write: Callable[..., Path], bad: str, told: str) -> None:
    found = read_actprobe(write(line(), bad))
    assert len(found.episodes) == 1
    assert "line 2: left out" in found.notices[0]
    assert told in found.notices[0]


def test_unknown_keys_are_counted(write: Callable[..., Path]) -> None:
    found = read_actprobe(write(line(extra=1), line(episode_id=1, extra=2)))
    assert found.notices[0].endswith("unknown key 'extra', passed over (2)")


def test_unknown_scalars_become_metrics_too(write: Callable[..., Path]) -> None:
    found = read_actprobe(write(line(steps=[{"t": 0, "novel": 1.0}], length=1)))
    assert found.infos["actprobe/novel"].unit == "?"


def test_a_scalar_that_is_not_a_number_makes_no_statement(write: Callable[..., Path]) -> None:
    steps = [{"t": 0, "chunk_mse": 1.0}, {"t": 1, "chunk_mse": None}, {"t": 2}, {"t": 3, "chunk_mse": True}]
    found = read_actprobe(write(line(steps=steps, length=4)))
    assert found.episodes[0].statuses["actprobe/chunk_mse"].tolist() == [Status.OK, Status.INVALID, Status.INVALID, Status.INVALID]
    assert found.notices == (f"{found.notices[0].partition(':')[0]}: chunk_mse: steps without a number (3)",)


def test_an_episode_of_one_step_is_kept_and_counted(write: Callable[..., Path]) -> None:
    found = read_actprobe(write(line(steps=[{"t": 0, "eef_z": 1.0}], length=1)))
    assert found.episodes[0].length == 1
    assert "episodes of one step (1)" in found.notices[0]


def test_a_file_without_an_episode_is_refused_with_the_first_fault(write: Callable[..., Path]) -> None:
    with pytest.raises(StepError, match=r"none of 1 lines holds an episode.*line 1: left out: not JSON"):
        read_actprobe(write("nonsense"))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="cannot be read"):
        read_actprobe(tmp_path / "none.jsonl")

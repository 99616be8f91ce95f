"""Field case D3: a chunk spliced in too far ahead, and padding that pulls to a neutral pose (huggingface/lerobot PR 4454)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor import Monitor, MonitorConfig, PolicySpec, PolicyStep
from monitor.metrics import SeamMetrics
from monitor.steps import Status

SPEC = PolicySpec(
    name="d3", action_names=("elbow",), groups={}, action_kind="absolute", action_low=(-3.14,), action_high=(3.14,), horizon=10, executed=10
)
SLOW = 0.01 * np.arange(10)
PULLED = np.array([0.10, 0.11, 0.00, 0.13, 0.14, 0.15, 0.16, 0.17, 0.18, 0.19])


def steps(*chunks: np.ndarray, joints: np.ndarray | None = None, first: int = 0) -> list[PolicyStep]:
    """Each chunk executed row by row."""
    made = []
    for number, chunk in enumerate(chunks):
        for row, value in enumerate(chunk):
            i = first + len(made)
            made.append(
                PolicyStep(
                    time=i / 10,
                    episode_id="e",
                    step=i,
                    action=[value],
                    chunk=chunk[:, None],
                    chunk_offset=row,
                    inference_id=number,
                    joints=joints if i == 0 else None,
                )
            )
    return made


@pytest.fixture
def rows(feed: Any) -> Any:
    """Rows of the family for chunks that are executed one after the other."""
    return lambda *chunks, **more: feed(SeamMetrics(SPEC, MonitorConfig()), steps(*chunks, **more))


def test_a_chunk_that_begins_too_far_ahead_is_told_at_its_first_step(rows: Any) -> None:
    found = rows(SLOW, 0.31 + SLOW)
    assert found[10].values["seam/jump"] == pytest.approx(22)
    assert "step 10: the chunk begins 0.22 away from the last command in 0 (elbow), 22 usual steps" in found[10].issues[0].detail
    assert found[10].values["seam/inside"] == pytest.approx(1)


def test_a_pull_inside_a_chunk_is_told_as_inside(rows: Any) -> None:
    found = rows(SLOW, PULLED)
    assert found[10].values["seam/jump"] == pytest.approx(1)
    assert found[10].values["seam/inside"] == pytest.approx(13)
    assert [issue.code for issue in found[10].issues] == ["chunk_jump_inside"]
    assert "row 3" in found[10].issues[0].detail


def test_a_short_chunk_with_a_pull_is_told_too(rows: Any) -> None:
    assert rows(SLOW, PULLED[:4])[10].values["seam/inside"] == pytest.approx(13)


@pytest.mark.parametrize("chunks", [(SLOW, 0.1 + SLOW), (22 * SLOW, 2.2 + 22 * SLOW)], ids=["clean", "fast but even"])
def test_even_chunks_are_quiet(chunks: tuple[np.ndarray, np.ndarray], rows: Any) -> None:
    found = rows(*chunks)
    assert found[10].values["seam/jump"] == pytest.approx(1)
    assert found[10].values["seam/inside"] == pytest.approx(1)
    assert not any(row.issues for row in found)


def test_the_first_chunk_is_compared_with_the_measured_joints(rows: Any) -> None:
    assert rows(SLOW, joints=np.array([-0.2]))[0].values["seam/jump"] == pytest.approx(20)


def test_without_joints_the_first_chunk_has_no_jump(rows: Any) -> None:
    first = rows(SLOW)[0]
    assert first.statuses["seam/jump"] is Status.UNAVAILABLE
    assert first.statuses["seam/inside"] is Status.OK


def test_the_first_chunk_of_increments_has_no_jump(feed: Any) -> None:
    spec = SPEC.model_copy(update={"action_kind": "delta"})
    first = feed(SeamMetrics(spec, MonitorConfig()), steps(SLOW, joints=np.array([-0.2])))[0]
    assert first.statuses["seam/jump"] is Status.UNAVAILABLE


def test_the_values_are_held_while_the_chunk_is_executed(rows: Any) -> None:
    found = rows(SLOW, 0.31 + SLOW)
    assert {round(row.values["seam/jump"]) for row in found[10:]} == {22}
    assert not any(row.issues for row in found[11:])


def test_steady_increments_with_noise_are_quiet(feed: Any) -> None:
    spec = SPEC.model_copy(update={"action_kind": "delta", "action_low": (-0.03,), "action_high": (0.03,)})
    noise = np.random.default_rng(1).normal(0, 0.001, (4, 10))
    found = feed(SeamMetrics(spec, MonitorConfig()), steps(*(0.01 + noise)))
    assert not any(row.issues for row in found)


def test_the_gripper_may_jump(feed: Any) -> None:
    spec = SPEC.model_copy(update={"groups": {"gripper": (0,)}})
    found = feed(SeamMetrics(spec, MonitorConfig()), steps(SLOW, 0.31 + SLOW))
    assert {row.statuses["seam/jump"] for row in found} == {Status.UNAVAILABLE}


def test_after_lost_steps_the_boundary_is_not_judged(feed: Any) -> None:
    found = feed(SeamMetrics(SPEC, MonitorConfig()), [*steps(SLOW)[:8], *steps(SLOW, 0.31 + SLOW)[10:]])
    assert found[8].statuses["seam/jump"] is Status.UNAVAILABLE


def test_the_alarm_is_active_at_the_boundary() -> None:
    monitor = Monitor(SPEC, MonitorConfig())
    reports = [monitor.update(step) for step in steps(SLOW, 0.31 + SLOW)]
    assert next(i for i, report in enumerate(reports) for alarm in report.active_alarms if alarm.name == "chunk_jump") == 10

"""Evaluation: intervals, tables, resuming, and attempts in lockstep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from monitor.policy import Observation
from monitor.steps import PolicyStep
from policies.bundled import evaluate as module
from policies.bundled.demonstrations import Disturbance
from policies.bundled.evaluate import main, summarise, table, wilson


def test_wilson_agrees_with_published_values() -> None:
    low, high = wilson(8, 10)
    assert (round(low, 3), round(high, 3)) == (0.490, 0.943)
    low, high = wilson(0, 20)
    assert low == 0.0
    assert round(high, 3) == 0.161
    assert wilson(0, 0) == (0.0, 1.0)


def rows() -> list[module.Row]:
    made = [{"task": "pick_up", "seed": i, "perturbation": "none", "success": i < 3, "steps": 20 + i} for i in range(4)]
    return [*made, {"task": "put_in", "seed": 0, "perturbation": "none", "success": False, "steps": 80}]


def test_summary_counts_by_task_and_together() -> None:
    cells = {row["task"]: row for row in summarise(rows())}
    assert (cells["pick_up"]["n"], cells["pick_up"]["successes"], cells["pick_up"]["steps"]) == (4, 3, 21.0)
    assert (cells["all"]["n"], cells["all"]["share"]) == (5, 0.6)
    assert cells["put_in"]["steps"] is None
    assert "| none | 1-4 | 75 (30 to 95) |" in table(summarise(rows()))


class _Now:
    """An executor that runs at once, in this process."""

    def __init__(self, processes: int) -> None: ...
    def __enter__(self) -> _Now:
        return self

    def __exit__(self, *_: object) -> None: ...
    def submit(self, call, *args):  # type: ignore[no-untyped-def]
        from concurrent.futures import Future

        future: Future[object] = Future()
        future.set_result(call(*args))
        return future


def test_a_second_run_does_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, int, str]] = []

    def fake(checkpoint: Path, jobs: list[tuple[str, int, str]]) -> list[module.Row]:
        ran.extend(jobs)
        return [{"task": t, "seed": s, "perturbation": p, "success": True, "steps": 9} for t, s, p in jobs]

    monkeypatch.setattr(module, "_run", fake)
    monkeypatch.setattr(module, "ProcessPoolExecutor", _Now)
    (tmp_path / "model.safetensors").write_bytes(b"first")
    jobs = [("pick_up", seed, "none") for seed in range(5)]
    module.evaluate(tmp_path, jobs[:3], tmp_path / "out.jsonl", chunk=2)
    found = module.evaluate(tmp_path, jobs, tmp_path / "out.jsonl", chunk=2)
    assert ran == jobs
    assert [row["seed"] for row in found] == [0, 1, 2, 3, 4]
    assert len([json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]) == 5
    (tmp_path / "model.safetensors").write_bytes(b"second")
    module.evaluate(tmp_path, jobs, tmp_path / "out.jsonl")
    assert ran == [*jobs, *jobs]


def test_training_seeds_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("policies.sim")
    monkeypatch.setattr("sys.argv", ["evaluate", "--first-seed", "999990"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "training seeds begin" in capsys.readouterr().err


def test_disturbances_repeat_and_spare_the_label() -> None:
    action = np.array([0.01, 0, 0, 0, 0, 0, 1.0])
    both = [Disturbance(np.random.default_rng(3)) for _ in range(2)]
    paths = [np.stack([one(action) for _ in range(40)]) for one in both]
    np.testing.assert_array_equal(*paths)
    np.testing.assert_array_equal(action, [0.01, 0, 0, 0, 0, 0, 1.0])
    assert (paths[0][:, 3:5] == 0).all()


class _Still:
    """A stand-in policy that never moves."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def act_batch(self, observations: Sequence[Observation]) -> list[PolicyStep]:
        self.batches.append(len(observations))
        return [PolicyStep(time=o.time, episode_id=o.episode_id, step=o.step, action=np.array([0, 0, 0, 0, 0, 0, 1.0])) for o in observations]


def test_lockstep_runs_each_job_once() -> None:
    pytest.importorskip("policies.sim")
    pytest.importorskip("transformers")
    from policies.bundled.rollouts import Job, run

    policy, jobs = _Still(), [Job("pick_up", seed) for seed in range(3)]
    outcomes = list(run(policy, jobs, slots=2))  # type: ignore[arg-type]
    assert sorted(outcome.job.seed for outcome in outcomes) == [0, 1, 2]
    assert not any(outcome.success for outcome in outcomes)
    assert {outcome.steps for outcome in outcomes} == {80}
    assert max(policy.batches) == 2

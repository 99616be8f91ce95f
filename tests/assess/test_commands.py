"""`vla-monitor calibrate` and `evaluate`, from files to files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from monitor.alarms.thresholds import read_thresholds
from monitor.config import MonitorConfig
from monitor.engine import Monitor
from monitor.errors import ConfigError
from monitor.messages import EpisodeEvent, EpisodeRecord, Outcome
from monitor.policy import PolicySpec
from monitor.recording import BagFacts, Recorder
from monitor.steps import PolicyStep

pytest.importorskip("monitor.cli.output")

from monitor.cli import calibrate, evaluate

SPEC = PolicySpec(name="p", action_low=(-1.0,) * 7, action_high=(1.0,) * 7)


@pytest.fixture
def run() -> Callable[..., Result]:
    app = typer.Typer()
    app.command("calibrate")(calibrate.command)
    app.command("evaluate")(evaluate.command)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def scalars(tmp_path: Path) -> Path:
    """40 successes and 12 failures, which disagree with themselves more."""
    rng = np.random.default_rng(0)
    lines = []
    for i in range(52):
        success = i < 40
        steps = [{"t": t, "chunk_mse": float(rng.random()) * (1.0 if success else 3.0)} for t in range(8 if success else 16)]
        lines.append(json.dumps({"episode_id": i, "task_id": i % 2, "success": success, "length": len(steps), "steps": steps}))
    path = tmp_path / "task.jsonl"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    """12 successes with calm actions and 3 failures with shaky ones."""
    spec = SPEC
    config = MonitorConfig.model_validate({"recording": {"min_free_mib": 0}})
    recorder = Recorder(tmp_path / "bag", BagFacts(config=config, spec=spec))
    recorder.open()
    monitor, rng = Monitor(spec, config), np.random.default_rng(0)
    for number in range(15):
        name, good = f"e{number}", number < 12
        recorder.record_episode(EpisodeRecord(event=EpisodeEvent.STARTED, time=0.0, episode_id=name, task="pick", seed=number))
        for i in range(14):
            step = PolicyStep(time=i / 10, episode_id=name, step=i, action=rng.normal(0, 0.1 if good else 0.5, 7))
            recorder.record_step(step)
            recorder.record_report(monitor.update(step))
        outcome = Outcome.SUCCESS if good else Outcome.FAILURE
        ended = EpisodeRecord(event=EpisodeEvent.ENDED, time=2.0, episode_id=name, task="pick", seed=number, outcome=outcome, steps=14)
        recorder.record_episode(ended)
    assert recorder.close(60.0).state == "closed"
    return tmp_path / "bag"


def test_calibrate_then_evaluate_a_bag(run: Any, bag: Path, tmp_path: Path) -> None:
    made = run("calibrate", bag, "--out", tmp_path / "t.yaml", "--metric", "a_ai/o", "--share", "0.8")
    assert made.exit_code == 0, made.output
    identity = read_thresholds(tmp_path / "t.yaml").identity
    assert (identity.policy, identity.config, identity.tasks) == ("p", MonitorConfig().identity(SPEC), ("pick",))
    judged = run("evaluate", bag, "--thresholds", tmp_path / "t.yaml", "--json", "--draws", "20")
    assert judged.exit_code == 0, judged.output
    fields = json.loads(judged.stdout)
    assert fields["episodes"] == 3
    assert fields["thresholds"] == [read_thresholds(tmp_path / "t.yaml").id]


def test_evaluate_leaves_out_what_made_the_thresholds_and_writes_all_files(run: Any, scalars: Path, tmp_path: Path) -> None:
    pytest.importorskip("polars")
    pytest.importorskip("matplotlib")
    run("calibrate", scalars, "--out", tmp_path / "t.yaml", "--share", "0.5", "--metric", "actprobe/chunk_mse")
    judged = run("evaluate", scalars, "--thresholds", tmp_path / "t.yaml", "--out", tmp_path / "found", "--draws", "20")
    assert judged.exit_code == 0, judged.output
    assert "26 episodes made the thresholds" in judged.output
    assert {path.name for path in (tmp_path / "found").iterdir()} == {
        "evaluation.md", "evaluation.json", "scores.parquet", "alarms.parquet", "episodes.parquet", "roc.svg", "actprobe_chunk_mse.svg"
    }  # fmt: skip


def test_thresholds_made_from_everything_cannot_be_judged_on_it(run: Any, scalars: Path, tmp_path: Path) -> None:
    run("calibrate", scalars, "--out", tmp_path / "t.yaml")
    judged = run("evaluate", scalars, "--thresholds", tmp_path / "t.yaml")
    assert isinstance(judged.exception, ConfigError)
    assert "calibrate with --share" in str(judged.exception)


def test_a_task_can_be_left_out_and_judged_alone(run: Any, scalars: Path, tmp_path: Path) -> None:
    run("calibrate", scalars, "--out", tmp_path / "t.yaml", "--leave-out", "1")
    assert read_thresholds(tmp_path / "t.yaml").identity.tasks == ("0",)
    judged = run("evaluate", scalars, "--thresholds", tmp_path / "t.yaml", "--only", "1", "--json", "--draws", "20")
    assert json.loads(judged.stdout)["episodes"] == 26


def test_several_thresholds_judge_each_task_by_those_that_left_it_out(run: Any, scalars: Path, tmp_path: Path) -> None:
    for task in ("0", "1"):
        run("calibrate", scalars, "--out", tmp_path / f"{task}.yaml", "--leave-out", task)
    words = [word for task in ("0", "1") for word in ("--thresholds", tmp_path / f"{task}.yaml")]
    fields = json.loads(run("evaluate", scalars, *words, "--json", "--draws", "20").stdout)
    assert (fields["episodes"], len(fields["thresholds"])) == (52, 2)
    assert {row["task"] for row in fields["alarms"]} == {"0", "1", "all tasks, pooled"}


def test_labels_stand_over_recorded_outcomes(run: Any, scalars: Path, tmp_path: Path) -> None:
    rows = [f"{i % 2}/{i},anna,no," for i in range(35)]
    (tmp_path / "labels.csv").write_text("\n".join(["episode_id,rater,success,quality", *rows]))
    made = run("calibrate", scalars, "--out", tmp_path / "t.yaml", "--labels", tmp_path / "labels.csv")
    assert "5 successful runs among 52 episodes" in str(made.exception)


def test_a_file_is_not_overwritten_without_force(run: Any, scalars: Path, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("mine")
    assert "exists" in str(run("calibrate", scalars, "--out", tmp_path / "t.yaml").exception)
    assert run("calibrate", scalars, "--out", tmp_path / "t.yaml", "--force").exit_code == 0


def test_without_thresholds_every_metric_is_scored(run: Any, scalars: Path) -> None:
    fields = json.loads(run("evaluate", scalars, "--json", "--draws", "20").stdout)
    assert {row["detector"] for row in fields["scores"]} >= {"actprobe/chunk_mse", "baseline: run length", "baseline: noise"}
    assert fields["alarms"] == []

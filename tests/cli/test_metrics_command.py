"""`vla-monitor metrics`, the quick check of a family, and `doctor`."""

from __future__ import annotations

import json
import socket
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pytest

from monitor.cli import checks, contract
from monitor.cli.app import main
from monitor.config import MonitorConfig
from monitor.metrics.base import METRIC_GROUP
from monitor.steps import Family, MetricInfo, PolicyStep, Status

INFO = MetricInfo(
    id="mine", variant="full", label="Mine", family=Family.ACTION, unit="1", low=0.0, high=1.0, higher_means="worse", formula="x", source="me"
)  # fmt: skip


class Family1:
    """A family that breaks the rules it is told to."""

    infos = (INFO,)

    def __init__(self, fault: str) -> None:
        self.fault, self.count = fault, 0

    def update(self, step: PolicyStep, values: Any, statuses: Any) -> tuple[()]:
        self.count += 1
        if self.fault == "raise" and not np.isfinite(step.action).all():
            raise ValueError("bad action")
        if self.fault == "change":
            step.action[:] = 0.0
        values[0] = {"range": 2.0, "memory": min(1.0, self.count / 1000), "nan": np.nan}.get(self.fault, 0.5)
        statuses[0] = Status.OK
        return ()

    def reset(self) -> None:
        pass


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("", ""),
        ("raise", "raises ValueError"),
        ("change", "changes the step"),
        ("range", "leaves its declared range"),
        ("memory", "not those of a new object"),
        ("nan", "status OK without a number"),
    ],
)
def test_broken_rule_is_named(fault: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "_make", lambda name, config: Family1(fault))
    problems = contract.broken_rules("mine", MonitorConfig())
    assert said in " ".join(problems)
    assert bool(problems) == bool(said)


@pytest.mark.parametrize("family", sorted(point.name for point in entry_points(group=METRIC_GROUP)))
def test_installed_family_keeps_the_contract(family: str) -> None:
    assert main(["metrics", "--check", family]) == 0


def test_check_of_an_unknown_family_names_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "--check", "nonsense"]) == 2
    assert "tokens" in capsys.readouterr().err


def test_every_metric_has_unit_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    main(["metrics", "--json"])
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert metrics
    assert all(metric["unit"] and metric["source"] for metric in metrics)


def test_family_filters(capsys: pytest.CaptureFixture[str]) -> None:
    main(["metrics", "--family", "token", "--json"])
    assert {metric["family"] for metric in json.loads(capsys.readouterr().out)["metrics"]} == {"token"}


def test_unknown_family_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "--family", "nonsense"]) == 2
    assert "installed: " in capsys.readouterr().err


def test_doctor_sees_a_taken_port() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        config = MonitorConfig.model_validate({"export": {"port": holder.getsockname()[1]}})
        found = next(finding for finding in checks.check_all(config) if finding.part.startswith("port"))
    assert found.state == "warning"


def test_doctor_survives_a_broken_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> checks.Finding:
        raise OSError("half installed")

    monkeypatch.setattr(checks, "_gl", broken)
    assert any("half installed" in finding.found for finding in checks.check_all(MonitorConfig()))


def test_doctor_without_ros_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_rclpy", lambda: checks.Finding("ROS 2 (rclpy)", "missing", "no module rclpy", "install it"))
    assert main(["doctor"]) == 1

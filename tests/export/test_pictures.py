"""Pictures of a run."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from monitor.export.pictures import CHROMIUM, Pictures, as_png, svg
from monitor.export.terminal import LiveState
from monitor.messages import AlarmRecord, ReportRecord
from monitor.steps import AlarmPhase, AlarmState


def report(step: int) -> ReportRecord:
    return ReportRecord(
        time=0.0, episode_id="e", step=step, verdict="accepted", metrics=("tb_entropy/window",), values=np.array([0.1]),
        statuses=np.zeros(1, np.uint8), active_alarms=(), issues=(), held=False,
    )  # fmt: skip


@pytest.fixture
def alarmed() -> LiveState:
    state = LiveState()
    state.add(report(5))
    alarm = AlarmState(
        name="uncertain", phase=AlarmPhase.ACTIVE, metric="m", value=1.0, threshold=0.5, since=0.0, calibration="", hold=False, text="because"
    )
    state.add_alarm(AlarmRecord(time=0.0, episode_id="e", step=5, state=alarm))
    return state


def test_moment_with_an_alarm_is_kept(alarmed: LiveState, tmp_path: Path) -> None:
    calm = LiveState()
    calm.add(report(29))
    pictures = Pictures()
    for state in (calm, alarmed, calm):
        pictures.look(state)
    (path,) = pictures.save(tmp_path, (), "http://x/metrics")
    assert "uncertain" in path.read_text()


def test_page_is_drawn_when_it_was_seen(alarmed: LiveState, tmp_path: Path) -> None:
    pictures = Pictures()
    pictures.look(alarmed)
    written = pictures.save(tmp_path / "new", ("vla_monitor_steps_total 1.0",), "http://x/metrics")
    assert [path.name for path in written] == ["live_table.svg", "metrics_page.svg"]


def test_nothing_seen_writes_nothing(tmp_path: Path) -> None:
    assert Pictures().save(tmp_path, (), "") == []


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    path = tmp_path / "page.svg"
    path.write_text(svg("vla_monitor_steps_total 1.0", "page"))
    return path


@pytest.mark.skipif(not any(map(shutil.which, CHROMIUM)), reason="needs Chromium")
def test_picture_becomes_png(drawn: Path) -> None:
    made, trouble = as_png([drawn])
    assert (made, trouble, drawn.exists()) == ([drawn.with_suffix(".png")], "", False)
    head = made[0].read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    assert struct.unpack(">II", head[16:]) > (1000, 50)


def test_picture_stays_svg_without_a_browser(drawn: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    made, trouble = as_png([drawn])
    assert (made, drawn.exists()) == ([drawn], True)
    assert "Chromium" in trouble


def test_picture_stays_svg_when_the_browser_fails(drawn: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/false")
    made, trouble = as_png([drawn])
    assert (made, drawn.exists()) == ([drawn], True)
    assert "ended with code 1" in trouble

"""Small bags to work on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.config import MonitorConfig, parse_config
from monitor.engine import Monitor
from monitor.messages import EpisodeEvent, EpisodeRecord, Outcome, step_fields
from monitor.policy import PolicySpec
from monitor.recording import BagFacts, BagWriter, Recorder
from monitor.recording.recorder import STEP_TOPIC
from monitor.recording.types import STEP, typestore
from monitor.steps import PolicyStep


def _config(**recording: Any) -> MonitorConfig:
    alarms = {"shaky_action": {"threshold": 1e-3}, "frozen": None}
    return parse_config({"alarms": alarms, "recording": {"min_free_mib": 0, **recording}}, "test")


@pytest.fixture
def spec() -> PolicySpec:
    return PolicySpec(
        name="p", action_low=(-1.0,) * 7, action_high=(1.0,) * 7, token_kind="per_dimension", token_support=(0, 16), vocab_size=16, control_hz=50.0
    )


@pytest.fixture
def make_facts(spec: PolicySpec) -> Callable[..., BagFacts]:
    """Facts with `recording` settings changed."""
    return lambda **recording: BagFacts(config=_config(**recording), spec=spec, calibration={"file": "none"})


@pytest.fixture
def steps() -> Callable[..., list[PolicyStep]]:
    """`count` steps of an episode, at 50 Hz, with logits; the same for the same arguments."""

    def make(count: int, episode_id: str = "e1") -> list[PolicyStep]:
        random = np.random.default_rng(len(episode_id) + count)
        return [
            PolicyStep(
                time=i / 50,
                episode_id=episode_id,
                step=i,
                action=random.uniform(-1, 1, 7),
                token_logits=random.normal(size=(7, 16)).astype(np.float32),
                tcp_position=random.normal(size=3),
                tcp_quaternion=[1.0, 0.0, 0.0, 0.0],
                gripper=0.5,
            )
            for i in range(count)
        ]

    return make


@pytest.fixture
def record(make_facts: Callable[..., BagFacts]) -> Callable[..., Recorder]:
    """Record episodes with all that a node records, except the steps, reports and alarms of the steps with the given numbers."""

    def run(
        folder: Path,
        episodes: Iterable[list[PolicyStep]],
        *,
        drop_steps: Iterable[int] = (),
        drop_reports: Iterable[int] = (),
        drop_alarms: Iterable[int] = (),
        **settings: Any,
    ) -> Recorder:
        facts = make_facts(**settings)
        recorder = Recorder(folder, facts)
        recorder.open()
        monitor = Monitor(facts.spec, facts.config)
        number = 0
        for episode in episodes:
            name = episode[0].episode_id
            recorder.record_episode(EpisodeRecord(event=EpisodeEvent.STARTED, time=0.0, episode_id=name, instruction="do it"))
            for step in episode:
                report = monitor.update(step)
                _offer(recorder, partial(recorder.record_step, step), lost=number in drop_steps)
                _offer(recorder, partial(recorder.record_report, report), lost=number in drop_reports)
                for alarm in report.alarms:
                    if alarm.changed:
                        _offer(recorder, partial(recorder.record_alarm, alarm, report), lost=number in drop_alarms)
                number += 1
            recorder.record_episode(EpisodeRecord(event=EpisodeEvent.ENDED, time=9.0, episode_id=name, outcome=Outcome.SUCCESS, steps=len(episode)))
        assert recorder.close(60.0).state == "closed"
        return recorder

    return run


def _offer(recorder: Recorder, offer: Callable[[], bool], lost: bool) -> None:
    """Offer a message; with `lost`, as if the queue were full."""
    limit = recorder._limit
    recorder._limit = 0 if lost else limit
    assert offer() is not lost
    recorder._limit = limit


@pytest.fixture
def write_steps(make_facts: Callable[..., BagFacts]) -> Callable[..., Path]:
    """A bag that holds steps only; step i was logged at i ms. Returns the .mcap file."""

    def write(folder: Path, steps: Iterable[PolicyStep], **settings: Any) -> Path:
        with BagWriter(folder, make_facts(**settings)) as writer:
            writer.add_topic(STEP_TOPIC, STEP)
            for i, step in enumerate(steps):
                writer.write(STEP_TOPIC, serialise(step), log_time=i * 1_000_000, publish_time=i * 1_000_000 + 7, sequence=i)
        return writer.path

    return write


def serialise(step: PolicyStep) -> memoryview:
    types: Any = typestore().types
    header = types["std_msgs/msg/Header"](stamp=types["builtin_interfaces/msg/Time"](sec=0, nanosec=0), frame_id="")
    return typestore().serialize_cdr(types[STEP](header=header, **step_fields(step)), STEP)

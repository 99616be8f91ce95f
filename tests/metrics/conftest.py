"""Policies, steps and a way to feed them to one family."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

from monitor.config import MonitorConfig
from monitor.metrics.base import Metric
from monitor.policy import PolicySpec
from monitor.steps import Goal, Issue, PolicyStep, Status, image_facts

settings.register_profile("compiled", deadline=None)  # the first call loads or compiles a kernel
settings.load_profile("compiled")


class Row(NamedTuple):
    """What one family said about one step."""

    values: dict[str, float]
    statuses: dict[str, Status]
    issues: tuple[Issue, ...]


def _feed(metric: Metric, steps: Iterable[PolicyStep]) -> list[Row]:
    rows = []
    keys = [info.key for info in metric.infos]
    for step in steps:
        values: NDArray[np.float64] = np.full(len(keys), np.nan)
        statuses = np.full(len(keys), int(Status.UNAVAILABLE), np.uint8)
        issues = metric.update(step, values, statuses)
        rows.append(Row(dict(zip(keys, values.tolist(), strict=True)), {k: Status(int(s)) for k, s in zip(keys, statuses, strict=True)}, issues))
    return rows


def _spec(**changes: Any) -> PolicySpec:
    facts: dict[str, Any] = {
        "name": "test",
        "action_low": (-1.0,) * 7,
        "action_high": (1.0,) * 7,
        "token_kind": "per_dimension",
        "token_support": (24, 40),
        "vocab_size": 40,
        "horizon": 4,
        "samples": 3,
    }
    return PolicySpec(**{**facts, **changes})


def _step(step: int = 0, **changes: Any) -> PolicyStep:
    facts: dict[str, Any] = {"time": 0.1 * step, "episode_id": "e1", "step": step, "inference_id": step, "action": np.zeros(7)}
    return PolicyStep(**{**facts, **changes})


def _stream(count: int, seed: int = 0, first: int = 0) -> list[PolicyStep]:
    rng = np.random.default_rng(seed)
    return [
        _step(
            first + i,
            instruction="put the cube on the plate",
            action=rng.normal(0, 0.3, 7),
            chunk=rng.normal(0, 0.3, (4, 7)),
            token_logits=rng.normal(0, 2, (7, 16)),
            token_logsumexp=np.full(7, 20.0),
            token_ids=rng.integers(24, 40, 7),
            tcp_position=rng.normal(0, 0.1, 3),
            tcp_quaternion=rng.normal(0, 1, 4),
            gripper=float(rng.random()),
            samples=rng.normal(0, 0.3, (3, 4, 7)),
            joints=rng.normal(0, 1, 7),
            goal=Goal(task="put_on", object_position=rng.normal(0, 0.1, 3), target_position=np.ones(3), grasped=i % 2 == 1),
            image_times={"front": 0.1 * (first + i) - 0.02, "wrist": 0.1 * (first + i) - 0.03},
            image_facts={name: image_facts(rng.integers(0, 256, (8, 8, 3))) for name in ("front", "wrist")},
            inference_seconds=0.05,
        )
        for i in range(count)
    ]


@pytest.fixture
def feed() -> Callable[[Metric, Iterable[PolicyStep]], list[Row]]:
    """Feed steps to a family as the engine does; one Row for each."""
    return _feed


@pytest.fixture
def make_spec() -> Callable[..., PolicySpec]:
    """A policy with seven action tokens out of sixteen ids, of a head of forty."""
    return _spec


@pytest.fixture
def make_step() -> Callable[..., PolicyStep]:
    """A step with a zero action and nothing else, one inference per step."""
    return _step


@pytest.fixture
def make_stream() -> Callable[..., list[PolicyStep]]:
    """Random steps with every part."""
    return _stream


@pytest.fixture
def config() -> MonitorConfig:
    """Default settings."""
    return MonitorConfig()

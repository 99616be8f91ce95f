"""Quick check of one metric family, for those who write a plug-in: the rules of `monitor.metrics.base.Metric` that can be tried in a second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.cli.catalogue import generous_spec
from monitor.config import MonitorConfig
from monitor.engine import load_metrics
from monitor.metrics.base import Metric
from monitor.steps import PolicyStep, Status

STEPS = 40
Row = tuple[NDArray[np.float64], NDArray[np.uint8]]
_BAD: tuple[dict[str, Any], ...] = (
    {"action": np.full(7, np.nan)},
    {"action": np.zeros(3)},
    {"token_logits": np.full((7, 256), np.nan, np.float32)},
    {"token_logits": np.zeros((0, 256), np.float32)},
    {"tcp_position": np.full(3, np.nan), "tcp_quaternion": np.zeros(4)},
    {"chunk": np.full((8, 7), np.inf)},
    {"time": float("nan")},
)


def broken_rules(name: str, config: MonitorConfig) -> list[str]:
    """Try the installed family `name`; returns a sentence per rule that it breaks. Raises ConfigError if it is not installed or no metric."""
    used, fresh, third = (_make(name, config) for _ in range(3))
    problems: list[str] = []
    keys = [info.key for info in used.infos]
    if len(set(keys)) != len(keys):
        problems.append("infos: a key occurs twice")
    steps = _stream(0)
    rows, raised = _feed(used, steps)
    problems += raised
    problems += _odd_values(used, rows)
    used.reset()
    again, _ = _feed(used, _stream(1))
    new, _ = _feed(fresh, _stream(1))
    if not _same(again, new):
        problems.append("reset: the numbers afterwards are not those of a new object")
    if not all(_equal(step, other) for step, other in zip(steps, _stream(0), strict=True)):
        problems.append("update: changes the step that it is given")
    problems += _feed(third, [step for bad in _BAD for step in (*_stream(2)[:9], replace(_stream(2)[9], **bad))])[1]
    return problems


def _make(name: str, config: MonitorConfig) -> Metric:
    return load_metrics(generous_spec(), config.model_copy(update={"metrics": (name,)}))[0]


def _stream(seed: int) -> list[PolicyStep]:
    rng = np.random.default_rng(seed)
    return [
        PolicyStep(
            time=i / 10,
            episode_id="contract",
            step=i,
            action=rng.uniform(-1, 1, 7),
            chunk=rng.uniform(-1, 1, (8, 7)),
            token_logits=rng.normal(size=(7, 256)).astype(np.float32),
            token_ids=rng.integers(0, 256, 7),
            samples=rng.normal(size=(8, 8, 7)).astype(np.float32),
            tcp_position=rng.uniform(0, 0.01, 3) + 0.01 * i,
            tcp_quaternion=np.array([1.0, 0.0, 0.0, 0.0]),
            joints=rng.uniform(-1, 1, 7),
            gripper=0.5,
            inference_seconds=0.03,
        )
        for i in range(STEPS)
    ]


def _feed(metric: Metric, steps: Sequence[PolicyStep]) -> tuple[list[Row], list[str]]:
    rows: list[Row] = []
    for step in steps:
        values = np.full(len(metric.infos), np.nan)
        statuses = np.full(len(metric.infos), int(Status.UNAVAILABLE), np.uint8)
        try:
            metric.update(step, values, statuses)
        except Exception as error:  # the very thing that is looked for
            return rows, [f"update: raises {type(error).__name__} at step {step.step}: {error}"]
        rows.append((values, statuses))
    return rows, []


def _odd_values(metric: Metric, rows: Sequence[Row]) -> Iterator[str]:
    for i, info in enumerate(metric.infos):
        values = np.array([row[0][i] for row in rows])
        statuses = np.array([row[1][i] for row in rows])
        if np.any(statuses > max(Status)):
            yield f"{info.key}: a status that does not exist ({statuses.max()})"
        if np.any((statuses == Status.OK) & ~np.isfinite(values)):
            yield f"{info.key}: status OK without a number"
        stated = values[np.isfinite(values)]
        if np.any((stated < info.low) | (stated > info.high)):
            yield f"{info.key}: {stated.min():g} to {stated.max():g} leaves its declared range {info.low:g} to {info.high:g}"


def _same(one: Sequence[Row], other: Sequence[Row]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a, b, equal_nan=True) and np.array_equal(s, t) for (a, s), (b, t) in zip(one, other, strict=True)
    )


def _equal(step: PolicyStep, other: PolicyStep) -> bool:
    return all(np.array_equal(getattr(step, name), getattr(other, name)) for name in ("action", "chunk", "token_logits", "samples", "tcp_position"))

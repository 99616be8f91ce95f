"""What every family must keep: one suite over all that are installed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pytest

from monitor import Monitor
from monitor.config import GripperConfig, MonitorConfig
from monitor.metrics.base import METRIC_GROUP, Metric
from monitor.policy import PolicySpec
from monitor.steps import Goal, PolicyStep, Status, image_facts

FAMILIES = {point.name: point for point in entry_points(group=METRIC_GROUP)}
Feed = Callable[..., Any]
WHOLE_EPISODE = {"instruction/changes", "tb_entropy/sw_max", "ot/q", "ot/window", "ot/regress", "ot/stall", "stac/sum"}
"""Metrics that look back to the start of the episode."""


@pytest.fixture(params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> Callable[[PolicySpec, MonitorConfig], Metric]:
    return FAMILIES[request.param].load()


def same(a: Any, b: Any) -> bool:
    """Two lists of rows are equal bit for bit."""
    return all(
        x.statuses == y.statuses and np.array_equal(list(x.values.values()), list(y.values.values()), equal_nan=True)
        for x, y in zip(a, b, strict=True)
    )


def windowed(rows: Any) -> Any:
    """Rows without the metrics that look back to the start of the episode."""
    return [
        row._replace(
            values={key: value for key, value in row.values.items() if key not in WHOLE_EPISODE},
            statuses={key: status for key, status in row.statuses.items() if key not in WHOLE_EPISODE},
        )
        for row in rows
    ]


def test_the_families_are_installed() -> None:
    expected = {"tokens", "actions", "tool", "motion", "validity", "goal", "sampling", "plans", "seam", "timing", "scale", "gripper", "camera"}
    assert expected <= set(FAMILIES)


def test_infos_are_complete_and_unique(family: Any, make_spec: Any, config: MonitorConfig) -> None:
    infos = family(make_spec(), config).infos
    assert len({info.key for info in infos}) == len(infos)
    for info in infos:
        assert all((info.id, info.variant, info.label, info.unit, info.higher_means, info.formula, info.source))
        assert info.low <= info.high


def test_reset_equals_new(family: Any, make_spec: Any, make_stream: Any, feed: Feed, config: MonitorConfig) -> None:
    used = family(make_spec(), config)
    feed(used, make_stream(30, seed=1))
    used.reset()
    assert same(feed(used, make_stream(30, seed=2)), feed(family(make_spec(), config), make_stream(30, seed=2)))


def test_two_objects_share_no_state(family: Any, make_spec: Any, make_stream: Any, feed: Feed, config: MonitorConfig) -> None:
    alone = feed(family(make_spec(), config), make_stream(20, seed=1))
    first, second = family(make_spec(), config), family(make_spec(), config)
    mixed = []
    for a, b in zip(make_stream(20, seed=1), make_stream(20, seed=2), strict=True):
        mixed += feed(first, [a])
        feed(second, [b])
    assert same(mixed, alone)


def arrays_of(step: PolicyStep) -> dict[str, np.ndarray]:
    return {name: getattr(step, name) for name in PolicyStep.__slots__ if isinstance(getattr(step, name), np.ndarray)}


def test_inputs_are_not_changed(family: Any, make_spec: Any, make_stream: Any, feed: Feed, config: MonitorConfig) -> None:
    steps = make_stream(12)
    before = [{name: array.copy() for name, array in arrays_of(step).items()} for step in steps]
    feed(family(make_spec(), config), steps)
    for step, arrays in zip(steps, before, strict=True):
        assert all(np.array_equal(array, arrays[name]) for name, array in arrays_of(step).items())


def test_inputs_are_not_kept(family: Any, make_spec: Any, make_stream: Any, feed: Feed, config: MonitorConfig) -> None:
    metric, rows = family(make_spec(), config), []
    for step in make_stream(20):
        rows += feed(metric, [step])
        for array in arrays_of(step).values():
            array[...] = 0
    assert same(rows, feed(family(make_spec(), config), make_stream(20)))


def test_read_only_inputs_are_taken(family: Any, make_spec: Any, make_stream: Any, feed: Feed, config: MonitorConfig) -> None:
    steps = make_stream(12)
    for step in steps:
        for array in arrays_of(step).values():
            array.setflags(write=False)
    assert same(feed(family(make_spec(), config), steps), feed(family(make_spec(), config), make_stream(12)))


BAD: dict[str, dict[str, Any]] = {
    "nan action": {"action": np.full(7, np.nan)},
    "infinite action": {"action": np.array([np.inf, *[0.0] * 6])},
    "short action": {"action": np.zeros(3)},
    "long action": {"action": np.zeros(9)},
    "empty action": {"action": np.zeros(0)},
    "nan logits": {"token_logits": np.full((7, 16), np.nan)},
    "no finite logit": {"token_logits": np.full((7, 16), -np.inf)},
    "wide logits": {"token_logits": np.zeros((7, 17))},
    "no token": {"token_logits": np.zeros((0, 16))},
    "many tokens": {"token_logits": np.zeros((300, 16))},
    "no column": {"token_logits": np.zeros((7, 0))},
    "few ids": {"token_logits": np.zeros((7, 16)), "token_ids": np.array([24])},
    "foreign ids": {"token_logits": np.zeros((7, 16)), "token_ids": np.full(7, 3)},
    "few logsumexp": {"token_logits": np.zeros((7, 16)), "token_logsumexp": np.zeros(2)},
    "nan logsumexp": {"token_logits": np.zeros((7, 16)), "token_logsumexp": np.full(7, np.nan)},
    "negative probabilities": {"token_probs": np.full((7, 16), -1.0)},
    "rising top-k": {"token_topk": np.array([[-5.0, -1.0]])},
    "empty top-k": {"token_topk": np.zeros((7, 0))},
    "nan chunk": {"chunk": np.full((4, 7), np.nan)},
    "narrow chunk": {"chunk": np.zeros((4, 2))},
    "empty chunk": {"chunk": np.zeros((0, 7))},
    "nan position": {"tcp_position": np.full(3, np.nan)},
    "flat position": {"tcp_position": np.zeros(2)},
    "nan quaternion": {"tcp_position": np.zeros(3), "tcp_quaternion": np.full(4, np.nan)},
    "zero quaternion": {"tcp_position": np.zeros(3), "tcp_quaternion": np.zeros(4)},
    "short quaternion": {"tcp_position": np.zeros(3), "tcp_quaternion": np.zeros(3)},
    "nan gripper": {"tcp_position": np.zeros(3), "gripper": float("nan")},
    "nan time": {"time": float("nan")},
    "few samples": {"samples": np.zeros((1, 4, 7))},
    "narrow samples": {"samples": np.zeros((3, 4, 2))},
    "no rows of samples": {"samples": np.zeros((3, 0, 7))},
    "flat goal": {"tcp_position": np.zeros(3), "goal": Goal(task="pick_up", object_position=np.zeros(2))},
    "nan goal": {"tcp_position": np.zeros(3), "goal": Goal(task="put_on", object_position=np.zeros(3), target_position=np.full(3, np.nan))},
    "nan joints": {"joints": np.full(6, np.nan)},
    "nan inference time": {"inference_seconds": float("nan")},
    "negative inference time": {"inference_seconds": -1.0},
    "nan image time": {"image_times": {"front": float("nan")}},
    "future image": {"image_times": {"front": 9.0}},
    "empty image": {"image_times": {"front": 1.0}, "image_facts": {"front": image_facts(None)}},
    "facts without times": {"image_facts": {"front": image_facts(np.zeros((4, 4, 3)))}},
    "chunk offset beyond": {"chunk": np.zeros((4, 7)), "chunk_offset": 9},
    "negative chunk offset": {"chunk": np.zeros((4, 7)), "chunk_offset": -3},
    "samples": {"samples": np.full((2, 4, 7), np.nan)},
}


@pytest.mark.parametrize("changes", BAD.values(), ids=BAD.keys())
def test_bad_data_becomes_a_status(
    family: Any, changes: dict[str, Any], make_spec: Any, make_stream: Any, make_step: Any, feed: Feed, config: MonitorConfig
) -> None:
    metric = family(make_spec(), config)
    rows = feed(metric, [*make_stream(10), make_step(10, **changes), *make_stream(30, first=11)])
    for row in rows:
        for key, status in row.statuses.items():
            assert (status is Status.OK) == (not np.isnan(row.values[key])), key
    assert same(windowed(rows[-1:]), windowed(feed(family(make_spec(), config), make_stream(30, first=11))[-1:]))


def test_values_lie_in_the_declared_range(family: Any, make_spec: Any, make_stream: Any, feed: Feed, config: MonitorConfig) -> None:
    metric = family(make_spec(), config)
    for row in feed(metric, make_stream(40)):
        assert all(not info.low > row.values[info.key] and not row.values[info.key] > info.high for info in metric.infos)


def test_the_end_of_a_stream_equals_its_last_window_alone(family: Any, make_spec: Any, make_stream: Any, feed: Feed, config: MonitorConfig) -> None:
    steps = make_stream(60)
    whole = feed(family(make_spec(), config), steps)[-1:]
    assert same(windowed(whole), windowed(feed(family(make_spec(), config), steps[-2 * config.window :])[-1:]))


def footprint(metric: Metric) -> dict[str, int]:
    """Bytes of everything that the family holds."""
    return {name: held.nbytes if isinstance(held, np.ndarray) else sys.getsizeof(held) for name, held in vars(metric).items()}


def test_memory_stops_growing(family: Any, make_spec: Any, make_stream: Any, feed: Feed, config: MonitorConfig) -> None:
    metric = family(make_spec(), config)
    feed(metric, make_stream(20))
    before = footprint(metric)
    feed(metric, make_stream(400, first=20))
    assert footprint(metric) == before


@pytest.mark.parametrize("window", [4, 5, 17])
def test_short_and_odd_windows_fill(family: Any, window: int, make_spec: Any, make_stream: Any, feed: Feed) -> None:
    rows = feed(family(make_spec(), MonitorConfig(window=window)), make_stream(window + 30))
    assert Status.WARMING_UP not in rows[-1].statuses.values()


def test_a_policy_that_gives_nothing_is_unavailable(family: Any, make_step: Any, feed: Feed, config: MonitorConfig) -> None:
    rows = feed(family(PolicySpec(name="bare"), config), [make_step(i) for i in range(10)])
    told = {key for key, status in rows[-1].statuses.items() if status is not Status.UNAVAILABLE}
    assert told <= {"invalid/action", "age/steps", "rate/jitter"}


@pytest.mark.parametrize("kind", ["per_dimension", "chunk", "none"])
def test_no_family_fails_on_bad_data_in_any_order(kind: str, make_spec: Any, make_stream: Any, make_step: Any, config: MonitorConfig) -> None:
    rng = np.random.default_rng(5)
    monitor, changes, good = Monitor(make_spec(token_kind=kind), config), list(BAD.values()), make_stream(200)
    for i in range(200):
        bad = changes[rng.integers(len(changes))]
        monitor.update(good[i] if rng.random() < 0.3 else make_step(i, **bad))
    assert monitor.counters["accepted"] == 200
    assert not monitor.counters["metric_failed"]
    assert not monitor.counters["failed"]


def test_the_same_steps_give_the_same_bits(make_spec: Any, make_stream: Any, config: MonitorConfig) -> None:
    one, two = Monitor(make_spec(), config), Monitor(make_spec(), config)
    for a, b in zip(make_stream(60), make_stream(60), strict=True):
        assert one.update(a).values.tobytes() == two.update(b).values.tobytes()


def test_every_metric_speaks_when_everything_is_given(make_spec: Any, make_stream: Any, config: MonitorConfig) -> None:
    config = config.model_copy(update={"gripper": GripperConfig(high_means="open")})
    monitor = Monitor(make_spec(), config)
    spoken = set()
    for step in make_stream(200):
        spoken |= {value.key for value in monitor.update(step) if value.status in (Status.OK, Status.UNINFORMATIVE)}
    assert {info.key for info in monitor.infos} - spoken == set()

"""Hand-made episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from monitor.assess.series import EpisodeSeries, Origin, SeriesSet
from monitor.steps import Family, MetricInfo, Status

ORIGIN = Origin(policy="p", config="c")


def _info(key: str = "m/full", family: Family = Family.TOKEN) -> MetricInfo:
    name, _, variant = key.partition("/")
    return MetricInfo(id=name, variant=variant, label=name.upper(), family=family, unit="1", low=0, high=1, higher_means="", formula="", source="")


def _episode(series: Sequence[float], name: str = "e1", **changes: Any) -> EpisodeSeries:
    values = np.array(series, dtype=np.float64)
    statuses = np.where(np.isnan(values), int(Status.UNAVAILABLE), int(Status.OK)).astype(np.uint8)
    facts: dict[str, Any] = {
        "origin": ORIGIN,
        "task": "pick",
        "episode_id": name,
        "success": True,
        "length": values.size,
        "dt": 0.1,
        "values": {"m/full": values},
        "statuses": {"m/full": statuses},
        "source": "bag",
    }
    return EpisodeSeries(**{**facts, **changes})


@pytest.fixture
def make_episode() -> Callable[..., EpisodeSeries]:
    """An episode with one metric, `m/full`; NaN makes no statement."""
    return _episode


@pytest.fixture
def make_set() -> Callable[..., SeriesSet]:
    """A set of episodes whose metrics are those of `m/full`."""
    return lambda episodes: SeriesSet(episodes=tuple(episodes), infos={"m/full": _info()})


@pytest.fixture
def make_info() -> Callable[..., MetricInfo]:
    """What a metric is."""
    return _info

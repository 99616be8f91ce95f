"""Which metrics suit which policy."""

from __future__ import annotations

import re
from typing import Any

import pytest

from monitor.metrics import primary_metrics
from monitor.metrics.defaults import reason_unavailable
from monitor.metrics.table import installed_infos

TOKENS = {"token_support": (24, 40), "vocab_size": 40}
KINDS: dict[str, dict[str, Any]] = {
    "one token a dimension": {"token_kind": "per_dimension", **TOKENS, "horizon": 1},
    "token chunks": {"token_kind": "chunk", **TOKENS, "horizon": 8, "executed": 4},
    "flow": {"token_kind": "none", "horizon": 50, "executed": 25},
    "flow to the end": {"token_kind": "none", "horizon": 16, "executed": 16},
}


@pytest.mark.parametrize(
    ("kind", "first", "lacks"),
    [
        ("one token a dimension", "tb_entropy/sw_max", "stac_single/full"),
        ("token chunks", "tb_entropy/sw_max", "reversal_rate/full"),
        ("flow", "stac_single/full", "tb_entropy/sw_max"),
        ("flow to the end", "reversal_rate/full", "stac_single/full"),
    ],
)
def test_the_best_metric_comes_first(kind: str, first: str, lacks: str, make_spec: Any) -> None:
    found = primary_metrics(make_spec(**KINDS[kind]))
    assert found[0] == first
    assert lacks not in found


@pytest.mark.parametrize("kind", KINDS)
def test_primary_metrics_are_computed_and_can_speak(kind: str, make_spec: Any) -> None:
    spec = make_spec(**KINDS[kind])
    keys = {info.key: info.id for info in installed_infos()}
    assert all(reason_unavailable(spec, keys[key]) == "" for key in primary_metrics(spec))


@pytest.mark.parametrize(
    ("metric", "changes", "reason"),
    [
        ("tb_leak", {"token_kind": "none"}, "emits no action tokens"),
        ("tce", {"horizon": 4, "executed": 4}, r"do not overlap \(4 of 4"),
        ("ev", {"samples": 0}, "gives no samples"),
    ],
)
def test_the_reason_is_named(metric: str, changes: dict[str, Any], reason: str, make_spec: Any) -> None:
    assert re.search(reason, reason_unavailable(make_spec(**changes), metric))

"""Which metrics to look at first, by kind of policy, and why others cannot speak."""

from __future__ import annotations

from monitor.policy import PolicySpec

_ALWAYS = ("frozen/flag", "blocked/flag")


def primary_metrics(spec: PolicySpec) -> tuple[str, ...]:
    """Keys of the metrics that tell most about this kind of policy, the best first.

    One token a dimension: the sliding maximum of TB-E. Token chunks: that, and whether plans agree. Flow and diffusion chunks have no tokens: whether
    plans agree, and how often the action turns back. Plans that do not overlap cannot be compared. Standing still is asked of all.
    """
    overlapping = ("stac_single/full",) if spec.horizon > spec.executed else ()
    if spec.token_kind == "none" or spec.token_support is None:
        found = (*overlapping, "reversal_rate/full")
    elif spec.token_kind == "chunk":
        found = ("tb_entropy/sw_max", *overlapping)
    else:
        found = ("tb_entropy/sw_max",)
    return (*found, *_ALWAYS)


def reason_unavailable(spec: PolicySpec, metric: str) -> str:
    """Why the metric with this id (`tb_entropy`, `stac_single`) can never speak for such a policy; empty if it may."""
    if metric.startswith("tb_") and (spec.token_kind == "none" or spec.token_support is None):
        return f"{spec.name} emits no action tokens"
    if metric in ("stac_single", "tce", "stac") and spec.horizon <= spec.executed:
        return f"plans of {spec.name} do not overlap ({spec.executed} of {spec.horizon} actions are executed)"
    if metric in ("ev", "ace", "stac") and spec.samples < 2:
        return f"{spec.name} gives no samples"
    return ""

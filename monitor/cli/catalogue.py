"""The installed metrics as rows, for a policy that gives everything."""

from __future__ import annotations

from typing import Any

from monitor.config import MonitorConfig
from monitor.errors import ConfigError
from monitor.policy import PolicySpec
from monitor.steps import MetricInfo


def generous_spec() -> PolicySpec:
    """Describe a policy that gives all parts, so that every family has something to compute."""
    return PolicySpec(
        name="any",
        action_low=(-1.0,) * 7,
        action_high=(1.0,) * 7,
        token_kind="per_dimension",
        token_support=(0, 256),
        vocab_size=256,
        horizon=8,
        executed=4,
        samples=8,
        cameras=("front", "wrist"),
    )


def installed_infos(config: MonitorConfig) -> tuple[MetricInfo, ...]:
    """Facts about every metric that is installed. Raises ConfigError as `monitor.engine.load_metrics`."""
    from monitor.engine import load_metrics

    return tuple(info for metric in load_metrics(generous_spec(), config) for info in metric.infos)


def catalogue(config: MonitorConfig, family: str | None = None) -> list[dict[str, Any]]:
    """One row per metric. Raises ConfigError for a family that does not exist."""
    infos = installed_infos(config)
    families = sorted({info.family.value for info in infos})
    if family is not None and family not in families:
        raise ConfigError(f"--family {family}: no such family; installed: {', '.join(families)}")
    return [
        {
            "key": info.key,
            "label": info.title,
            "family": info.family.value,
            "unit": info.unit,
            "range": f"{info.low:g} to {info.high:g}",
            "low": info.low,
            "high": info.high,
            "higher_means": info.higher_means,
            "formula": info.formula,
            "source": info.source,
        }
        for info in infos
        if family is None or info.family.value == family
    ]

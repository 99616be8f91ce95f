"""What a bag must say about itself so that its numbers can be made again: configuration, policy, versions, calibration."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from monitor.config import MonitorConfig, default_alarms, parse_config
from monitor.errors import BagError, ConfigError
from monitor.policy import PolicySpec

RECORD_NAME = "vla_monitor"
END_NAME = "vla_monitor_end"  # written at close: why the recording ended (empty: it was closed), and JSON of the messages offered by topic
FORMAT = "1"

_CURE = "give both to replay it: --config FILE --policy-facts FILE"
_PACKAGES = ("vla-monitor", "numpy", "numba", "pydantic", "mcap", "rosbags", "zstandard")


@dataclass(frozen=True, slots=True, kw_only=True)
class BagFacts:
    """Facts beside the messages. `calibration` is free text-to-text (identity of thresholds, their file, ...)."""

    config: MonitorConfig
    spec: PolicySpec
    calibration: Mapping[str, str] = field(default_factory=dict)

    def as_strings(self) -> dict[str, str]:
        """Text to text, JSON inside: MCAP metadata and rosbag2's custom_data hold nothing else."""
        return {
            "format": FORMAT,
            "config": json.dumps(_config_tree(self.config)),
            "config_identity": self.config.identity(self.spec),
            "policy": json.dumps(self.spec.model_dump(mode="json")),
            "versions": json.dumps(_versions()),
            "calibration": json.dumps(dict(self.calibration)),
        }


def facts_from(strings: Mapping[str, str], where: str) -> BagFacts:
    """Read back what `as_strings` made.

    Raises:
        BagError: config or policy is absent or is no JSON, or the policy's facts are not legal.
        ConfigError: the configuration does not fit this version.
    """
    missing = [key for key in ("config", "policy") if key not in strings]
    if missing:
        raise BagError(f"{where}: has no {' and no '.join(missing)} in its metadata, so it was not recorded by vla-monitor; {_CURE}")
    try:
        config, policy, calibration = (json.loads(strings.get(key, "{}")) for key in ("config", "policy", "calibration"))
        spec = PolicySpec.model_validate(policy)
    except json.JSONDecodeError as error:
        raise BagError(f"{where}: metadata is not JSON ({error}); the bag was changed by another program; {_CURE}") from error
    except ValidationError as error:
        raise BagError(f"{where}: the recorded policy facts do not fit this version of vla-monitor: {error}; {_CURE}") from error
    return BagFacts(config=parse_config(config, f"{where}: recorded config"), spec=spec, calibration=calibration)


def load_policy_facts(path: Path) -> PolicySpec:
    """Read a PolicySpec from a YAML or JSON file, for bags that do not hold one.

    Raises:
        ConfigError: the file cannot be read, or does not describe a policy; each key that is wrong is named.
    """
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give a YAML or JSON file with the policy's facts") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: is neither YAML nor JSON: {error}") from error
    try:
        return PolicySpec.model_validate(tree)
    except ValidationError as error:
        wrong = [f"{'.'.join(str(part) for part in detail['loc']) or 'policy facts'}: {detail['msg']}" for detail in error.errors()]
        known = ", ".join(PolicySpec.model_fields)
        raise ConfigError("\n".join(f"{path}: {line}" for line in wrong) + f"\nknown keys: {known}") from error


def _config_tree(config: MonitorConfig) -> dict[str, Any]:
    """The config as JSON that parses to an equal config: a default alarm that was removed must be named as null."""
    tree = config.model_dump(mode="json")
    tree["alarms"].update({name: None for name in default_alarms() if name not in config.alarms})
    return tree


def package_version(package: str) -> str:
    """Installed version, or `unknown` (a source tree that was never installed)."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), "machine": platform.machine(), **{name: package_version(name) for name in _PACKAGES}}

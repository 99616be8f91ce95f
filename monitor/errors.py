"""The errors a caller of vla-monitor can meet.

MonitorError
├── ConfigError   a configuration or a checkpoint's facts are wrong
├── StepError     a record of one control step cannot be built
├── BagError      a recording cannot be read or written
├── PolicyError   a policy adapter cannot be loaded or run
└── MissingPartError   an optional part is not installed

Each message says the place, what was found, what was expected and what to do.
"""

from __future__ import annotations


class MonitorError(Exception):
    """Base of every error that vla-monitor raises on purpose."""


class ConfigError(MonitorError):
    """A configuration file, a parameter or a policy's declared facts are wrong."""


class StepError(MonitorError):
    """A record of one control step has a shape or type that cannot be repaired."""


class BagError(MonitorError):
    """A recording cannot be read or written."""


class PolicyError(MonitorError):
    """A policy adapter cannot be loaded, or its checkpoint is incomplete."""


class MissingPartError(MonitorError):
    """An optional part of the installation is absent; the message says how to get it."""

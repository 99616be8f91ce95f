"""vla-monitor: says, live and afterwards, how sure a robot policy is and how steady the robot moves.

    PolicyStep -> Monitor.update -> StepReport

This module is the public API; everything else may move between versions.
"""

from monitor.aggregate import AlarmSpan, EpisodeSummary, MetricSummary
from monitor.config import MonitorConfig, load_config
from monitor.engine import Monitor
from monitor.errors import BagError, ConfigError, MissingPartError, MonitorError, PolicyError, StepError
from monitor.policy import Observation, Policy, PolicySpec, Robot, load_policy, load_robot
from monitor.steps import AlarmPhase, AlarmState, Family, Goal, Issue, MetricInfo, MetricValue, PolicyStep, Status, StepReport

__all__ = [
    "AlarmPhase",
    "AlarmSpan",
    "AlarmState",
    "BagError",
    "ConfigError",
    "EpisodeSummary",
    "Family",
    "Goal",
    "Issue",
    "MetricInfo",
    "MetricSummary",
    "MetricValue",
    "MissingPartError",
    "Monitor",
    "MonitorConfig",
    "MonitorError",
    "Observation",
    "Policy",
    "PolicyError",
    "PolicySpec",
    "PolicyStep",
    "Robot",
    "Status",
    "StepError",
    "StepReport",
    "load_config",
    "load_policy",
    "load_robot",
]

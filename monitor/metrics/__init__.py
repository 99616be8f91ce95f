"""Metrics of a policy's uncertainty and a robot's steadiness: one file per family, and pure functions that work alone.

Families (classes, one object per monitor): TokenMetrics, ActionMetrics, ToolMetrics, MotionDetector, ValidityMetrics. Others are found through
the entry-point group `vla_monitor.metrics`.
"""

from monitor.metrics.actions import ActionMetrics, instability, instability_norm, normalised
from monitor.metrics.motion import MotionDetector
from monitor.metrics.tokens import TokenMetrics, TokenScores, token_metrics
from monitor.metrics.tool import ToolMetrics
from monitor.metrics.trajectory import (
    jerk_gradient,
    jerk_online,
    published_jerk,
    relative_rotation,
    resample,
    root_mean_square,
    rotation_increments,
    tool_instability,
)
from monitor.metrics.validity import ValidityMetrics

__all__ = [
    "ActionMetrics",
    "MotionDetector",
    "TokenMetrics",
    "TokenScores",
    "ToolMetrics",
    "ValidityMetrics",
    "instability",
    "instability_norm",
    "jerk_gradient",
    "jerk_online",
    "normalised",
    "published_jerk",
    "relative_rotation",
    "resample",
    "root_mean_square",
    "rotation_increments",
    "token_metrics",
    "tool_instability",
]

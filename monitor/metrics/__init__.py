"""Metrics of a policy's uncertainty and a robot's steadiness: one file per family, and pure functions that work alone.

Families (classes, one object per monitor) are found through the entry-point group `vla_monitor.metrics`; those here are ours.
"""

from monitor.metrics.actions import ActionMetrics, instability, instability_norm, normalised, reversal_rate
from monitor.metrics.camera import CameraMetrics
from monitor.metrics.defaults import primary_metrics
from monitor.metrics.goal import GoalMetrics, Progress, kind_of, optimal_trajectory
from monitor.metrics.gripper import GripperMetrics
from monitor.metrics.motion import MotionDetector
from monitor.metrics.plans import PlanMetrics, action_chunk_magnitude, chunk_overlap, mmd2
from monitor.metrics.sampling import SamplingMetrics, chunk_entropy, execution_variability
from monitor.metrics.scale import ScaleMetrics
from monitor.metrics.seam import SeamMetrics
from monitor.metrics.timing import TimingMetrics
from monitor.metrics.tokens import TokenMetrics, TokenScores, motion_weighted, sliding_maximum, token_metrics
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
    "CameraMetrics",
    "GoalMetrics",
    "GripperMetrics",
    "MotionDetector",
    "PlanMetrics",
    "Progress",
    "SamplingMetrics",
    "ScaleMetrics",
    "SeamMetrics",
    "TimingMetrics",
    "TokenMetrics",
    "TokenScores",
    "ToolMetrics",
    "ValidityMetrics",
    "action_chunk_magnitude",
    "chunk_entropy",
    "chunk_overlap",
    "execution_variability",
    "instability",
    "instability_norm",
    "jerk_gradient",
    "jerk_online",
    "kind_of",
    "mmd2",
    "motion_weighted",
    "normalised",
    "optimal_trajectory",
    "primary_metrics",
    "published_jerk",
    "relative_rotation",
    "resample",
    "reversal_rate",
    "root_mean_square",
    "rotation_increments",
    "sliding_maximum",
    "token_metrics",
    "tool_instability",
]

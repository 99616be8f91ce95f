"""Quality of service of every topic, in one place."""

from __future__ import annotations

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy


def _profile(depth: int, *, reliable: bool, latched: bool = False) -> QoSProfile:
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )


def without_history(profile: QoSProfile) -> QoSProfile:
    """Make the same for publishers that keep nothing for late joiners."""
    return _profile(profile.depth, reliable=profile.reliability is ReliabilityPolicy.RELIABLE)


SENSOR = _profile(5, reliable=False)
"""What the node asks of cameras and joints: every publisher matches it."""

SENSOR_RELIABLE = _profile(10, reliable=True)
"""What the simulated robot offers, and what the node asks with `control.reliable_input`."""

ACTION = _profile(10, reliable=True)
REPORT = _profile(200, reliable=True)
"""Reports and steps: deep enough for a subscriber that is late by a few seconds at 50 Hz."""

INSTRUCTION = _profile(1, reliable=True, latched=True)
"""The instruction: who joins late gets the last one."""

INSTRUCTION_HEARD = _profile(10, reliable=True, latched=True)
"""The same for the subscriber: as deep as that of episode events, so that none is lost while the node is busy."""

EPISODE = _profile(10, reliable=True, latched=True)
"""Episode events: who joins late gets the last ones, in order."""

ALARM = _profile(50, reliable=True, latched=True)
"""Phase changes of all alarms: who joins late learns which are active."""

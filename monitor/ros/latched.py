"""Latched topics heard from every publisher: one that keeps its last messages for late joiners, and one that does not.

A subscription that asks for kept messages is never matched with a publisher that keeps none. So there are two subscriptions, and each message is
taken once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.subscription import MessageInfo

from monitor.ros.qos import without_history

REMEMBERED = 100


class _Once:
    """Takes a message that comes over both subscriptions once, in the publisher's order."""

    def __init__(self, callback: Callable[[Any], None]) -> None:
        self._callback = callback
        self._seen: deque[tuple[object, ...]] = deque(maxlen=REMEMBERED)
        self._newest = 0

    def take(self, kept: bool, message: Any, info: MessageInfo) -> None:
        """`kept`: came over the subscription that gets history too."""
        sent = info["source_timestamp"]
        key = (sent, info["publication_sequence_number"], str(info.get("publisher_gid")))
        if key in self._seen or (kept and sent < self._newest):  # the latter: history from before what was heard live
            return
        self._seen.append(key)
        self._newest = sent
        self._callback(message)


def listen_latched(node: Node, kind: type[Any], topic: str, callback: Callable[[Any], None], profile: QoSProfile) -> None:
    """Call back with each message on a topic, the last ones of latched publishers included. `profile` must ask for them."""
    assert profile.durability is DurabilityPolicy.TRANSIENT_LOCAL
    once = _Once(callback)

    def kept(message: Any, info: MessageInfo) -> None:
        once.take(True, message, info)

    def live(message: Any, info: MessageInfo) -> None:
        once.take(False, message, info)

    silent = SubscriptionEventCallbacks(use_default_callbacks=False)  # that it hears no publisher without history is no news
    node.create_subscription(kind, topic, kept, profile, event_callbacks=silent)
    node.create_subscription(kind, topic, live, without_history(profile))

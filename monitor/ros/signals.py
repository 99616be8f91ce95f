"""SIGINT and SIGTERM as an event. No ROS in here."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop(threading.Event):
    """Set by a signal, or by `set`."""

    received: int | None = None
    """The first signal that came."""


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """An event that SIGINT and SIGTERM set instead of what they do. Main thread only."""
    stop = Stop()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        stop.received = stop.received or number
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

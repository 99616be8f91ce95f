"""Start, spin and stop of a ROS process: signals, Python's log lines, and Fast DDS settings."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from monitor.ros.plan import BOOTSTRAP_GUARD, LOCAL_DDS
from monitor.ros.signals import stop_on_signals

SPIN_S = 0.2


def local_dds(environment: MutableMapping[str, str] | None = None) -> None:
    """Set what keeps DDS on this machine and off shared memory (whose leftovers of killed processes print warnings), unless it is set already.

    Must come before `rclpy.init`; `environment` is this process's own by default.
    """
    target = os.environ if environment is None else environment
    for name, value in LOCAL_DDS.items():
        target.setdefault(name, value)


@contextmanager
def ros(arguments: Sequence[str] | None) -> Iterator[threading.Event]:
    """rclpy, ready; gives an event that SIGINT and SIGTERM set. Main thread only."""
    os.environ.pop(BOOTSTRAP_GUARD, None)  # it is for this process, not for its children
    with stop_on_signals() as stop:
        rclpy.init(args=list(arguments) if arguments is not None else None, signal_handler_options=SignalHandlerOptions.NO)
        try:
            yield stop
        finally:
            rclpy.try_shutdown()


def spin(node: Node, stop: threading.Event) -> None:
    """Serve callbacks until `stop` is set. A callback that raises is told and costs nothing else."""
    executor = SingleThreadedExecutor(context=node.context)
    executor.add_node(node)
    try:
        while not stop.is_set() and node.context.ok():
            try:
                executor.spin_once(timeout_sec=SPIN_S)
            except ExternalShutdownException:
                return
            except Exception as error:  # one bad message must not end the node
                node.get_logger().error(f"a callback failed: {type(error).__name__}: {error}", throttle_duration_sec=5.0)
    finally:
        executor.remove_node(node)
        executor.shutdown(timeout_sec=1.0)


class _ToRos(logging.Handler):
    def __init__(self, node: Node) -> None:
        super().__init__(logging.INFO)
        self._logger = node.get_logger()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.ERROR:
            self._logger.error(text)
        elif record.levelno >= logging.WARNING:
            self._logger.warning(text)
        else:
            self._logger.info(text)


@contextmanager
def python_log(node: Node) -> Iterator[None]:
    """Send the lines of the package's Python loggers to the node's."""
    handler, package = _ToRos(node), logging.getLogger("monitor")
    package.addHandler(handler)
    try:
        yield
    finally:
        package.removeHandler(handler)

"""Listen to a running `vla_monitor`: plain records, no ROS types, for terminal views and demos."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from monitor_msgs.msg import Alarm, Episode, PolicyStep, StepReport
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy

from monitor import steps
from monitor.errors import StepError
from monitor.messages import AlarmRecord, EpisodeRecord, ReportRecord, alarm_from, episode_from, report_from, step_from
from monitor.ros import qos
from monitor.ros.latched import listen_latched
from monitor.ros.runtime import SPIN_S, local_dds

Record = TypeVar("Record")


class Watcher:
    """A subscriber with a context of its own; any number can live in one process. Callbacks run in the thread that calls `run`.

    Args:
        on_report, on_alarm, on_episode, on_step: called with each record; None: not listened to.
        monitor: the node's name with namespace.
        domain_id: default: the environment's ROS_DOMAIN_ID.
        local: keep DDS on this machine, as `vla-monitor up` does.
    """

    def __init__(
        self,
        on_report: Callable[[ReportRecord], None] | None = None,
        on_alarm: Callable[[AlarmRecord], None] | None = None,
        on_episode: Callable[[EpisodeRecord], None] | None = None,
        on_step: Callable[[steps.PolicyStep], None] | None = None,
        *,
        monitor: str = "/vla_monitor",
        domain_id: int | None = None,
        local: bool = True,
    ) -> None:
        if local:
            local_dds()
        self._context = Context()
        self._context.init(args=[], domain_id=domain_id)
        self._node = Node("vla_monitor_watch", context=self._context, use_global_arguments=False)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        namespace = monitor.rsplit("/", 1)[0]
        self._monitor = monitor
        self._listen(StepReport, f"{monitor}/report", qos.REPORT, report_from, on_report)
        self._listen(Alarm, f"{monitor}/alarm", qos.ALARM, alarm_from, on_alarm)
        self._listen(Episode, f"{namespace}/episode", qos.EPISODE, episode_from, on_episode)
        self._listen(PolicyStep, f"{monitor}/policy_step", qos.REPORT, step_from, on_step)

    @property
    def connected(self) -> bool:
        """True once the monitor is there and is heard."""
        return self._node.count_publishers(f"{self._monitor}/report") > 0

    def run(self, stop: threading.Event) -> None:
        """Call back until `stop` is set."""
        while not stop.is_set():
            self._executor.spin_once(timeout_sec=SPIN_S)

    def close(self) -> None:
        """Leave."""
        self._executor.shutdown(timeout_sec=1.0)
        self._node.destroy_node()
        self._context.try_shutdown()

    def _listen(self, kind: type[Any], topic: str, profile: Any, read: Callable[[object], Record], call: Callable[[Record], None] | None) -> None:
        if call is None:
            return

        def on_message(message: object) -> None:
            try:
                record = read(message)
            except StepError as error:
                self._node.get_logger().warning(f"{topic}: {error}", throttle_duration_sec=5.0)
                return
            call(record)

        if profile.durability is DurabilityPolicy.TRANSIENT_LOCAL:
            listen_latched(self._node, kind, topic, on_message, profile)
        else:
            self._node.create_subscription(kind, topic, on_message, profile)

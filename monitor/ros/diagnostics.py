"""What `/diagnostics` says: is the node judging, is it recorded, is there a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

if TYPE_CHECKING:
    from monitor.ros.node import VlaMonitorNode


class Diagnostics:
    """Publishes three entries: steps, bag, page. Executor's thread."""

    def __init__(self, node: VlaMonitorNode) -> None:
        self._node = node
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._done = self._lost = 0

    def publish(self) -> None:
        """Say how things stand; called once a second."""
        message = DiagnosticArray(status=[self._steps(), self._bag(), self._page()])
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(message)

    def _steps(self) -> DiagnosticStatus:
        totals = self._node.totals()
        done, lost = totals["done"], totals["skipped"] + totals["overrun"] + totals["policy_failed"] + totals["step_failed"]
        new, newly_lost = done - self._done, lost - self._lost
        self._done, self._lost = done, lost
        median, tail = self._node.loop.latency_s(0.5), self._node.loop.latency_s(0.99)
        values = {name: str(count) for name, count in totals.items()}
        if median is not None and tail is not None:
            values |= {"latency_p50_s": f"{median:.4f}", "latency_p99_s": f"{tail:.4f}"}
        if new:
            level, text = (DiagnosticStatus.WARN, f"{newly_lost} steps lost in the last second") if newly_lost else (DiagnosticStatus.OK, "judging")
        else:
            level, text = (DiagnosticStatus.ERROR, "every step is lost") if newly_lost else (DiagnosticStatus.STALE, "no observation")
        return self._status("steps", level, text, values)

    def _bag(self) -> DiagnosticStatus:
        trouble = self._node.recorder.trouble
        return self._status("bag", DiagnosticStatus.WARN if trouble else DiagnosticStatus.OK, self._node.recorder.status_text, {})

    def _page(self) -> DiagnosticStatus:
        trouble = self._node.exporter.trouble
        text = f"exporter off: {trouble}" if trouble else self._node.exporter.status_text
        return self._status("page", DiagnosticStatus.WARN if trouble else DiagnosticStatus.OK, text, {})

    def _status(self, task: str, level: bytes, text: str, values: dict[str, str]) -> DiagnosticStatus:
        pairs = [KeyValue(key=key, value=value) for key, value in values.items()]
        hardware = self._node.config.export.robot
        return DiagnosticStatus(level=level, name=f"{self._node.get_name()}: {task}", message=text, hardware_id=hardware, values=pairs)

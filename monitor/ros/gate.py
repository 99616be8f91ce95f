"""Gate: what the robot gets, the policy's action or a safe one. No ROS in here."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor.config import GateConfig
from monitor.policy import PolicySpec
from monitor.steps import AlarmPhase, Float, StepReport


class Decision(NamedTuple):
    """What to send. `action` is None when there is no safe one (absolute actions before the first was sent); `reason` is empty unless held."""

    action: Float | None
    held: bool
    reason: str


class Gate:
    """Decides once a step, in one thread.

    The safe action of a `delta` policy is zero, with the gripper as it was last sent; of an `absolute` policy, the action that was last sent.
    """

    def __init__(self, config: GateConfig, spec: PolicySpec) -> None:
        self._config, self._spec = config, spec
        self._sent: Float | None = None

    @property
    def needs_report(self) -> bool:
        """False if no report can change the decision, so that the action need not wait for the monitor."""
        return self._config.mode == "hold" or self._config.on_monitor_failure == "hold"

    def reset(self) -> None:
        """A new episode: the last action is not worth repeating."""
        self._sent = None

    def decide(self, action: Float, report: StepReport | None) -> Decision:
        """Pass the action or hold it. `report` is None when the monitor failed."""
        reason = self._reason(report) if self.needs_report else ""
        if not reason:
            self._sent = action
            return Decision(action, False, "")
        return Decision(self._safe(), True, reason)

    def _reason(self, report: StepReport | None) -> str:
        if report is None or report.verdict == "failed":
            return "the monitor failed" if self._config.on_monitor_failure == "hold" else ""
        if self._config.mode != "hold":
            return ""
        holding = [f"{alarm.name}: {alarm.text}" for alarm in report.alarms if alarm.hold and alarm.phase is AlarmPhase.ACTIVE]
        return "; ".join(holding)

    def _safe(self) -> Float | None:
        if self._spec.action_kind == "absolute":
            return self._sent
        safe = np.zeros(self._spec.action_dim)
        gripper = list(self._spec.groups.get("gripper", ()))
        if self._sent is not None and len(self._sent) == len(safe):
            safe[gripper] = self._sent[gripper]
        return safe

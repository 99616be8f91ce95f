"""Gate: what the robot gets, the policy's action or a safe one. No ROS in here."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from monitor.config import GateConfig
from monitor.policy import PolicySpec
from monitor.steps import AlarmPhase, Float, PolicyStep, StepReport


class Decision(NamedTuple):
    """What to send; None: nothing. `reason` says why it is not the policy's action; empty if it is."""

    action: Float | None
    held: bool
    reason: str


class Gate:
    """Decides once a step, `begin` then `decide`, in one thread; `release` may come from any.

    Withholding goes on until `release` is called or, with `gate.release: alarm`, until a step at which no alarm that may hold is active. A new
    episode does not end it. The safe action of a `delta` policy is zero, with the gripper as it was last sent, else as it is measured; of an
    `absolute` policy, the action that was last sent. As long as neither is known, nothing is sent.
    """

    def __init__(self, config: GateConfig, spec: PolicySpec) -> None:
        self._config, self._spec = config, spec
        self._gripper = list(spec.groups.get("gripper", ()))
        self._sent: Float | None = None
        self._why = ""
        self._opening: float | None = None
        self._instead: Decision | None = None

    @property
    def needs_report(self) -> bool:
        """False if no report can change the decision, so that the action need not wait for the monitor."""
        return self._config.mode == "hold" or self._config.on_monitor_failure == "hold"

    def reset(self) -> None:
        """A new episode: the last action is not worth repeating."""
        self._sent = None

    def release(self) -> str:
        """Pass actions again, from the next step on. Returns what was done, for whoever asked."""
        why, self._why = self._why, ""
        return f"released; actions were withheld: {why}. If that is still so, they will be withheld again" if why else "nothing was withheld"

    def begin(self, step: PolicyStep, opening: float | None) -> PolicyStep:
        """The step as it is judged and recorded: while actions are withheld, with the safe one as `action` and the policy's as `raw_action`.

        `opening` is the gripper's as measured. When nothing is sent, the step stays the policy's.
        """
        self._opening, self._instead = opening, None
        if not self._why:
            return step
        safe = self._safe()
        self._instead = Decision(safe, True, self._why)
        if safe is None:
            return step
        own = step.raw_action is not None and self._length_is_right(step.action) and bool(np.isfinite(step.action).all())
        return replace(step, action=safe, raw_action=step.raw_action if own else step.action)

    def decide(self, step: PolicyStep, report: StepReport | None) -> Decision:
        """Pass the action of the policy's own step, or withhold it; `report` is of the step that `begin` gave, None if it is not waited for."""
        reason = self._reason(report) if report is not None else ""
        if reason:
            self._why = reason
        elif self._config.release == "alarm":
            self._why = ""
        if self._instead is not None:  # what was judged is what is sent, even if this report releases
            decision = self._instead._replace(reason=reason or self._instead.reason)
        elif reason:
            decision = Decision(self._safe(), True, reason)
        elif not self._length_is_right(step.action):
            decision = Decision(None, False, f"it has {len(step.action)} numbers, the policy's actions have {self._spec.action_dim}")
        else:
            decision = Decision(step.action, False, "")
        if decision.action is not None:
            self._sent = decision.action
        return decision

    def _reason(self, report: StepReport) -> str:
        if report.verdict == "failed":
            return "the monitor failed" if self._config.on_monitor_failure == "hold" else ""
        if self._config.mode == "report":
            return ""
        return "; ".join(f"{alarm.name}: {alarm.text}" for alarm in report.alarms if alarm.hold and alarm.phase is AlarmPhase.ACTIVE)

    def _safe(self) -> Float | None:
        sent = self._sent
        if self._spec.action_kind == "absolute":
            return sent if sent is not None and np.isfinite(sent).all() else None
        safe = np.zeros(self._spec.action_dim)
        if not self._gripper:
            return safe
        if sent is not None and np.isfinite(sent[self._gripper]).all():
            safe[self._gripper] = sent[self._gripper]
        elif self._opening is not None and math.isfinite(self._opening):
            safe[self._gripper] = self._opening
        else:
            return None
        return safe

    def _length_is_right(self, action: Float) -> bool:
        return len(action) == self._spec.action_dim

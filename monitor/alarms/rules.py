"""Static thresholds and the alarm state machine.

    quiet -> pending -> active -> cooling down -> quiet

`for_steps` consecutive statements beyond the threshold make an alarm active (1: at once), `clear_steps` back inside let it cool down for
`cooldown_s`, in which it cannot become active again. A step without a statement (status other than OK) breaks a pending count, and neither clears
an active alarm nor raises a quiet one: unknown is not calm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.config import AlarmConfig, default_alarms
from monitor.errors import ConfigError
from monitor.steps import AlarmPhase, AlarmState, MetricInfo, Status

_OK = int(Status.OK)


class AlarmRule:
    """One alarm over one metric; used from one thread."""

    def __init__(self, name: str, config: AlarmConfig, index: int, info: MetricInfo) -> None:
        self.name, self.config, self.index, self.info = name, config, index, info
        self._above = config.direction == "above"
        self._threshold = config.threshold
        self.state: AlarmState | None = None
        self.reset()

    def reset(self) -> AlarmState | None:
        """Return to quiet. Returns the state that says so, if it was not quiet before."""
        over = None if self.state is None else replace(self.state, phase=AlarmPhase.QUIET, changed=True, text=f"{self.name}: the episode is over")
        self.phase = AlarmPhase.QUIET
        self.state = None
        self._since = 0.0
        self._streak = 0
        return over

    def update(self, value: float, stated: bool, time: float) -> AlarmState | None:
        """Take one value (`stated`: its status is OK) at `time` in s. Returns the state unless it is and was quiet."""
        beyond = stated and (value > self._threshold if self._above else value < self._threshold)
        before = self.phase
        if before is AlarmPhase.QUIET and not beyond:
            return None
        self._advance(beyond, stated, time)
        changed = self.phase is not before
        if changed:
            self._since = time
        state = AlarmState(
            name=self.name,
            phase=self.phase,
            metric=self.info.key,
            value=value if stated else None,
            threshold=self._threshold,
            since=self._since,
            calibration=self.config.calibration,
            hold=self.config.hold,
            text=self._text(value, stated),
            changed=changed,
        )
        self.state = None if self.phase is AlarmPhase.QUIET else state
        return state

    def _advance(self, beyond: bool, stated: bool, time: float) -> None:
        if self.phase is AlarmPhase.COOLING_DOWN:
            if time - self._since < self.config.cooldown_s:
                return
            self._enter(AlarmPhase.QUIET)
        if self.phase is AlarmPhase.ACTIVE:
            if stated:
                self._streak = 0 if beyond else self._streak + 1
            if self._streak >= self.config.clear_steps:
                self._enter(AlarmPhase.COOLING_DOWN if self.config.cooldown_s > 0 else AlarmPhase.QUIET)
        elif not beyond:
            self._enter(AlarmPhase.QUIET)
        else:
            self._streak += 1
            if self._streak >= self.config.for_steps:
                self._enter(AlarmPhase.ACTIVE)
            else:
                self.phase = AlarmPhase.PENDING

    def _enter(self, phase: AlarmPhase) -> None:
        self.phase, self._streak = phase, 0

    def _text(self, value: float, stated: bool) -> str:
        name = f"{self.info.label} {self.info.variant}"
        if not stated:
            return f"{name}: no statement"
        side = "above" if self._above else "below"
        unit = "" if self.info.unit == "1" else f" {self.info.unit}"
        return f"{name} {value:.3g}{unit}, alarm {side} {self._threshold:.3g} ({self.config.calibration})"


class AlarmBoard:
    """All alarms of a monitor. A default alarm whose metric is not computed is left out.

    Raises:
        ConfigError: another alarm names a metric that is not computed.
    """

    def __init__(self, alarms: Mapping[str, AlarmConfig], infos: tuple[MetricInfo, ...]) -> None:
        keys = {info.key: i for i, info in enumerate(infos)}
        defaults = default_alarms()
        self.rules: list[AlarmRule] = []
        for name, config in alarms.items():
            if config.metric not in keys:
                if config == defaults.get(name):
                    continue
                raise ConfigError(f"alarms.{name}.metric: {config.metric!r} is not computed; known: {', '.join(keys)}")
            index = keys[config.metric]
            self.rules.append(AlarmRule(name, config, index, infos[index]))

    def reset(self) -> tuple[AlarmState, ...]:
        """Return every alarm to quiet; returns the states of those that were not."""
        over = [rule.reset() for rule in self.rules]
        return tuple(state for state in over if state is not None)

    def states(self) -> tuple[AlarmState, ...]:
        """Those that are not quiet, as of the last step."""
        return tuple(replace(rule.state, changed=False) for rule in self.rules if rule.state is not None)

    def update(self, values: NDArray[np.float64], statuses: NDArray[np.uint8], time: float) -> tuple[AlarmState, ...]:
        """Take the row of one step; returns the states that are not quiet or have just become so."""
        row: list[float] = values.tolist()
        known: list[int] = statuses.tolist()
        states: list[Any] = [rule.update(row[rule.index], known[rule.index] == _OK, time) for rule in self.rules]
        return tuple(state for state in states if state is not None)

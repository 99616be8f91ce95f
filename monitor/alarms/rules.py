"""Thresholds and the alarm state machine.

    quiet -> pending -> active -> cooling down -> quiet

`for_steps` consecutive statements beyond the threshold make an alarm active (1: at once), `clear_steps` back inside let it cool down for
`cooldown_s`, in which it cannot become active again. A step without a statement (status other than OK) breaks a pending count, and neither clears
an active alarm nor raises a quiet one: unknown is not calm.

An alarm that votes is no alarm of its own: it lends its voice to the vote (see `monitor.alarms.vote`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from monitor.alarms.vote import Vote
from monitor.config import AlarmConfig, VoteConfig, default_alarms
from monitor.errors import ConfigError
from monitor.steps import AlarmPhase, AlarmState, MetricInfo, Status

_OK = int(Status.OK)


class Timing(Protocol):
    """What the state machine takes from a config."""

    @property
    def for_steps(self) -> int:
        """Consecutive steps that make the alarm active."""
        ...

    @property
    def clear_steps(self) -> int:
        """Consecutive steps that end it."""
        ...

    @property
    def cooldown_s(self) -> float:
        """Time in s in which it cannot become active again."""
        ...


class AlarmMachine:
    """The phases of one alarm."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self.reset()

    def reset(self) -> None:
        """Return to quiet."""
        self.phase = AlarmPhase.QUIET
        self.since = 0.0
        self._streak = 0

    def advance(self, beyond: bool, stated: bool, time: float) -> bool:
        """Take one step at `time` in s; returns True if the phase has changed."""
        before = self.phase
        self._advance(beyond, stated, time)
        if self.phase is before:
            return False
        self.since = time
        return True

    def _advance(self, beyond: bool, stated: bool, time: float) -> None:
        if self.phase is AlarmPhase.COOLING_DOWN:
            if time - self.since < self._timing.cooldown_s:
                return
            self._enter(AlarmPhase.QUIET)
        if self.phase is AlarmPhase.ACTIVE:
            if stated:
                self._streak = 0 if beyond else self._streak + 1
            if self._streak >= self._timing.clear_steps:
                self._enter(AlarmPhase.COOLING_DOWN if self._timing.cooldown_s > 0 else AlarmPhase.QUIET)
        elif not beyond:
            self._enter(AlarmPhase.QUIET)
        else:
            self._streak += 1
            if self._streak >= self._timing.for_steps:
                self._enter(AlarmPhase.ACTIVE)
            else:
                self.phase = AlarmPhase.PENDING

    def _enter(self, phase: AlarmPhase) -> None:
        self.phase, self._streak = phase, 0


class AlarmRule:
    """One alarm over one metric; used from one thread."""

    def __init__(self, name: str, config: AlarmConfig, index: int, info: MetricInfo) -> None:
        self.name, self.config, self.index, self.info = name, config, index, info
        self._above = config.direction == "above"
        self._band = config.band
        self._machine = AlarmMachine(config)
        self.reset()

    def reset(self) -> None:
        """Return to quiet."""
        self._machine.reset()
        self.threshold = self.config.threshold if self._band is None else self._band[0]
        self._streak = 0

    @property
    def phase(self) -> AlarmPhase:
        """The phase after the last step."""
        return self._machine.phase

    def update(self, value: float, stated: bool, time: float, step: int = 0) -> AlarmState | None:
        """Take one value (`stated`: its status is OK) at `time` in s, at `step` of the episode. Returns the state unless it is and was quiet."""
        beyond = self.beyond(value, stated, step)
        if self._machine.phase is AlarmPhase.QUIET and not beyond:
            return None
        changed = self._machine.advance(beyond, stated, time)
        return AlarmState(
            name=self.name,
            phase=self._machine.phase,
            metric=self.info.key,
            value=value if stated else None,
            threshold=self.threshold,
            since=self._machine.since,
            calibration=self.config.calibration,
            hold=self.config.hold,
            text=self.text(value, stated),
            changed=changed,
        )

    def beyond(self, value: float, stated: bool, step: int) -> bool:
        """True if the value is a statement beyond the threshold of this step."""
        band = self._band
        if band is not None:
            self.threshold = band[step if step < len(band) else -1]
        return stated and (value > self.threshold if self._above else value < self.threshold)

    def voice(self, value: float, stated: bool, step: int) -> bool:
        """As `beyond`, once that has held for `for_steps` statements in a row."""
        self._streak = self._streak + 1 if self.beyond(value, stated, step) else 0
        return self._streak >= self.config.for_steps

    def text(self, value: float, stated: bool) -> str:
        """Metric, value, threshold and where the threshold comes from."""
        name = self.info.title
        if not stated:
            return f"{name}: no statement"
        side = "above" if self._above else "below"
        unit = "" if self.info.unit == "1" else f" {self.info.unit}"
        return f"{name} {value:.3g}{unit}, alarm {side} {self.threshold:.3g} ({self.config.calibration})"


class AlarmBoard:
    """All alarms of a monitor. A default alarm whose metric is not computed is left out.

    Attributes:
        activations: name -> how often it became active (a voter: how often its voice was raised). Counts on over episodes.

    Raises:
        ConfigError: another alarm names a metric that is not computed, or a name is used twice.
    """

    def __init__(self, alarms: Mapping[str, AlarmConfig], infos: tuple[MetricInfo, ...], vote: VoteConfig | None = None) -> None:
        keys = {info.key: i for i, info in enumerate(infos)}
        defaults = default_alarms()
        self.rules: list[AlarmRule] = []
        voters: list[AlarmRule] = []
        for name, config in alarms.items():
            if config.metric not in keys:
                if config == defaults.get(name):
                    continue
                raise ConfigError(f"alarms.{name}.metric: {config.metric!r} is not computed; known: {', '.join(keys)}")
            index = keys[config.metric]
            (voters if config.votes else self.rules).append(AlarmRule(name, config, index, infos[index]))
        self.activations: Counter[str] = Counter({rule.name: 0 for rule in (*self.rules, *voters)})
        self.vote: Vote | None = None
        if voters:
            settings = vote or VoteConfig()
            if settings.name in self.activations:
                raise ConfigError(f"vote.name: {settings.name!r} is the name of an alarm too; choose another")
            self.vote = Vote(settings, voters, AlarmMachine(settings), self.activations)
        self._steps = 0
        self._open: tuple[AlarmState, ...] = ()

    def reset(self) -> tuple[AlarmState, ...]:
        """Return every alarm to quiet; returns the states that say so of those that were not."""
        over = tuple(replace(state, phase=AlarmPhase.QUIET, changed=True, text=f"{state.name}: the episode is over") for state in self._open)
        for rule in self.rules:
            rule.reset()
        if self.vote is not None:
            self.vote.reset()
        self._steps = 0
        self._open = ()
        return over

    def states(self) -> tuple[AlarmState, ...]:
        """Those that are not quiet, as of the last step."""
        return tuple(replace(state, changed=False) for state in self._open)

    def update(self, values: NDArray[np.float64], statuses: NDArray[np.uint8], time: float, step: int | None = None) -> tuple[AlarmState, ...]:
        """Take the row of one step; returns the states that are not quiet or have just become so.

        `step`: number inside the episode, for thresholds that change with it; by default rows since `reset` are counted.
        """
        row: list[float] = values.tolist()
        known: list[int] = statuses.tolist()
        number = self._steps if step is None else step
        self._steps += 1
        states: list[Any] = [rule.update(row[rule.index], known[rule.index] == _OK, time, number) for rule in self.rules]
        if self.vote is not None:
            states.append(self.vote.update(row, known, time, number))
        found = tuple(state for state in states if state is not None)
        self._open = tuple(state for state in found if state.phase is not AlarmPhase.QUIET)
        for state in found:
            if state.changed and state.phase is AlarmPhase.ACTIVE:
                self.activations[state.name] += 1
        return found

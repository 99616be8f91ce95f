"""The vote: one alarm out of several calibrated metrics.

any: one voice is enough (recall). two_families: metrics of two families within `within_s` (precision). weighted: the voices of the last
`within_s` hold `quorum` of all weights. Metrics without a statement keep their weight in the total: what is not known does not make the others
louder.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from monitor.config import AlarmConfig, VoteConfig
from monitor.errors import ConfigError
from monitor.steps import AlarmPhase, AlarmState, Family, MetricInfo, Status

_OK = int(Status.OK)


class Voter(Protocol):
    """A rule over one metric, as the vote sees it."""

    name: str
    config: AlarmConfig
    index: int
    info: MetricInfo
    threshold: float

    def voice(self, value: float, stated: bool, step: int) -> bool:
        """True while beyond the threshold."""
        ...

    def text(self, value: float, stated: bool) -> str:
        """Metric, value, threshold, calibration."""
        ...

    def reset(self) -> None:
        """Forget the episode."""
        ...


class Phases(Protocol):
    """The state machine of the alarm."""

    phase: AlarmPhase
    since: float

    def advance(self, beyond: bool, stated: bool, time: float) -> bool:
        """Take one step; True if the phase has changed."""
        ...

    def reset(self) -> None:
        """Return to quiet."""
        ...


class Vote:
    """One alarm over several voters; used from one thread.

    Raises:
        ConfigError: a weight names a metric that has no voice, all weights are zero, or `two_families` is asked of voters of one family.
    """

    def __init__(self, config: VoteConfig, voters: Sequence[Voter], machine: Phases, raised: Counter[str]) -> None:
        self.config, self.voters = config, tuple(voters)
        self._machine, self._raised = machine, raised
        self.families = tuple(dict.fromkeys(voter.info.family for voter in self.voters))
        unknown = config.weights.keys() - {voter.info.key for voter in self.voters}
        if unknown:
            raise ConfigError(f"vote.weights: {min(unknown)!r} has no voice; voters: {', '.join(voter.info.key for voter in self.voters)}")
        if config.mode == "two_families" and len(self.families) < 2:
            raise ConfigError(
                f"vote.mode: two_families, but all voters are of the family {self.families[0]}; calibrate metrics of another, or use any"
            )
        self._weights = [config.weights.get(voter.info.key, 1.0) for voter in self.voters]
        self._needed = config.quorum * sum(self._weights) * (1.0 - 1e-12)  # sums of weights round
        if sum(self._weights) <= 0:
            raise ConfigError("vote.weights: all are zero; give one metric a weight")
        self.reset()

    def reset(self) -> None:
        """Forget the episode."""
        self._machine.reset()
        for voter in self.voters:
            voter.reset()
        self._voices = [False] * len(self.voters)
        self._last = [-math.inf] * len(self.voters)

    def update(self, row: Sequence[float], known: Sequence[int], time: float, step: int) -> AlarmState | None:
        """Take the row of one step: values, statuses, `time` in s, number of the step. Returns the state unless it is and was quiet."""
        stated = False
        for i, voter in enumerate(self.voters):
            says = known[voter.index] == _OK
            stated = stated or says
            speaks = voter.voice(row[voter.index], says, step)
            if speaks:
                self._last[i] = time
                if not self._voices[i]:
                    self._raised[voter.name] += 1
            self._voices[i] = speaks
        majority = self._decide(time)
        if not majority and self._machine.phase is AlarmPhase.QUIET:
            return None
        changed = self._machine.advance(majority, stated, time)
        leader = self._leader()
        says = known[leader.index] == _OK
        return AlarmState(
            name=self.config.name,
            phase=self._machine.phase,
            metric=leader.info.key,
            value=row[leader.index] if says else None,
            threshold=leader.threshold,
            since=self._machine.since,
            calibration=leader.config.calibration,
            hold=self.config.hold,
            text=self._text(leader, row, known, time),
            changed=changed,
        )

    def _decide(self, time: float) -> bool:
        if self.config.mode == "any":
            return any(self._voices)
        recent = self._recent(time)
        if self.config.mode == "two_families":
            return len({self.voters[i].info.family for i in recent}) >= 2
        return bool(recent) and sum(self._weights[i] for i in recent) >= self._needed

    def _recent(self, time: float) -> list[int]:
        return [i for i, last in enumerate(self._last) if time - last <= self.config.within_s]

    def _leader(self) -> Voter:
        """The voter that the alarm is reported under: the first that speaks now, else the one that spoke last."""
        speaking = [i for i, voice in enumerate(self._voices) if voice]
        return self.voters[speaking[0] if speaking else max(range(len(self.voters)), key=lambda i: self._last[i])]

    def _text(self, leader: Voter, row: Sequence[float], known: Sequence[int], time: float) -> str:
        """The leader in full, then one word on each other family."""
        recent = set(self._recent(time))
        parts = [leader.text(row[leader.index], known[leader.index] == _OK)]
        for family in self.families:
            if family is not leader.info.family:
                parts.append(f"{family}: {self._family_text(family, recent, known)}")
        return "; ".join(parts)

    def _family_text(self, family: Family, recent: set[int], known: Sequence[int]) -> str:
        members = [i for i, voter in enumerate(self.voters) if voter.info.family is family]
        spoke = [self.voters[i] for i in members if i in recent]
        if spoke:
            return "agrees (" + ", ".join(voter.info.title for voter in spoke) + ")"
        return "calm" if any(known[self.voters[i].index] == _OK for i in members) else "no statement"

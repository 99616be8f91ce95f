"""Replay: make a recording's reports again from its steps, and tell whether they are the same, bit for bit.

What was not recorded is named, not called a difference: a step that was dropped by the recorder's queue, or lost with a damaged chunk, changes
the windows of the steps behind it, so the rest of its episode is replayed but not compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from monitor.config import MonitorConfig
from monitor.engine import Monitor
from monitor.messages import AlarmRecord, EpisodeEvent, EpisodeRecord, Outcome, ReportRecord, report_fields, report_from
from monitor.policy import PolicySpec
from monitor.recording.mcap_scan import Damage
from monitor.recording.reader import BagMessage, BagReader
from monitor.steps import AlarmState, PolicyStep, StepReport

_PATIENCE = 200  # steps for which a recorded report waits for its step, and the other way round

_Key = tuple[str, int, bytes]


class ReplayPair(NamedTuple):
    """A report as it was recorded and as it came out now; one of the two is None where a message was lost.

    `comparable` is False where the two may differ for a good reason: another configuration, or a step that is missing before.
    """

    recorded: ReportRecord | None
    recomputed: StepReport | None
    comparable: bool


class Difference(NamedTuple):
    """Where a recomputed number is not the recorded one. `what` is a metric (id/variant), an alarm, or a field of the report."""

    topic: str
    episode_id: str
    step: int
    what: str
    recorded: object
    recomputed: object

    def __str__(self) -> str:
        return f"{self.topic}: episode {self.episode_id!r}, step {self.step}: {self.what}: recorded {self.recorded!r}, now {self.recomputed!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayEpisode:
    """An episode of the bag. `missing_steps`: known to be lost inside it. `cut`: the recording ends in it; it has neither failed nor succeeded."""

    episode_id: str
    steps: int = 0
    missing_steps: int = 0
    instruction: str = ""
    outcome: Outcome = Outcome.UNKNOWN
    ended: bool = False
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """What a replay found.

    Attributes:
        steps: steps fed to the monitor. reports: recorded reports. compared: reports that were compared; different: of these, not the same.
        not_compared: reports that could not be compared (see the module). alarms_compared, alarms_different: recorded alarm changes, likewise.
        missing_steps: steps known to be lost; missing_reports: steps without a recorded report.
        first: the first difference. cut: the end of the recording is not there.
    """

    path: Path
    steps: int = 0
    reports: int = 0
    compared: int = 0
    different: int = 0
    not_compared: int = 0
    alarms_compared: int = 0
    alarms_different: int = 0
    missing_steps: int = 0
    missing_reports: int = 0
    first: Difference | None = None
    episodes: tuple[ReplayEpisode, ...] = ()
    cut: bool = False
    damage: tuple[Damage, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def identical(self) -> bool:
        """Something was compared, and nothing differed."""
        return self.compared > 0 and self.different == 0 and self.alarms_different == 0


def replay(path: Path, *, config: MonitorConfig | None = None, spec: PolicySpec | None = None) -> Iterator[ReplayPair]:
    """Yield recorded and recomputed reports, in the order of the recording.

    Args:
        path: bag folder, .mcap or .db3 file.
        config: settings to use instead of the recorded ones; unless they are equal, no pair is comparable.
        spec: policy facts to use instead of the recorded ones, likewise. With both, a bag that holds neither is compared as it is.

    Raises:
        BagError: the bag cannot be read, or holds neither config nor policy and none is given.
        ConfigError: the recorded configuration does not fit this version.
    """
    return _Replay(path, config, spec).pairs()


def compare(path: Path, *, config: MonitorConfig | None = None, spec: PolicySpec | None = None) -> ReplayResult:
    """Replay a bag to its end and compare. Arguments and errors as `replay`."""
    run = _Replay(path, config, spec)
    for _ in run.pairs():
        pass
    return run.result()


@dataclass(slots=True)
class _Counts:
    steps: int = 0
    reports: int = 0
    compared: int = 0
    different: int = 0
    not_compared: int = 0
    alarms_compared: int = 0
    alarms_different: int = 0
    missing_steps: int = 0
    missing_reports: int = 0


@dataclass(slots=True)
class _Made:
    """A recomputed report that waits for its recorded one (`seen`: it came), kept a while for alarms."""

    report: StepReport
    key: _Key
    comparable: bool
    number: int
    seen: bool = False


@dataclass(slots=True)
class _State:
    """Of the episode that is being replayed."""

    episode_id: str | None = None
    broken: bool = False
    sequence: int = -1
    orphans: int = 0  # recorded reports without a step, since the last step
    broken_episodes: set[str] = field(default_factory=set)


class _Replay:
    def __init__(self, path: Path, config: MonitorConfig | None, spec: PolicySpec | None) -> None:
        self._reader = BagReader(path)
        self._ours = bool(self._reader.metadata)  # written by our Recorder: messages are numbered, and a report stands behind its step
        self._trusted = True
        if self._ours or config is None or spec is None:
            facts = self._reader.facts()
            self._trusted = config in (None, facts.config) and spec in (None, facts.spec)
            config, spec = config or facts.config, spec or facts.spec
        self._monitor = Monitor(spec, config)
        self._counts = _Counts()
        self._first: Difference | None = None
        self._episodes: dict[str, ReplayEpisode] = {}
        self._state = _State()
        self._made: deque[_Made] = deque()
        self._waiting: deque[tuple[int, BagMessage]] = deque()  # recorded reports and alarms, with the number of steps fed when they came

    def pairs(self) -> Iterator[ReplayPair]:
        for message in self._reader.messages((PolicyStep, ReportRecord, AlarmRecord, EpisodeRecord)):
            record = message.record
            if isinstance(record, PolicyStep):
                self._feed(message, record)
            elif isinstance(record, EpisodeRecord):
                self._note_episode(record)
            else:
                self._counts.reports += isinstance(record, ReportRecord)
                self._waiting.append((self._counts.steps, message))
            yield from self._settle(final=False)
        yield from self._settle(final=True)

    def result(self) -> ReplayResult:
        counts = {name: getattr(self._counts, name) for name in _Counts.__slots__}
        episodes = list(self._episodes.values())
        if self._reader.cut and episodes and not episodes[-1].ended:
            episodes[-1] = replace(episodes[-1], cut=True)
        return ReplayResult(
            path=self._reader.path,
            first=self._first,
            episodes=tuple(episodes),
            cut=self._reader.cut,
            damage=tuple(self._reader.damage),
            notices=tuple(self._reader.notices),
            **counts,
        )

    def _feed(self, message: BagMessage, step: PolicyStep) -> None:
        missing = self._missing_before(message)
        state = self._state
        if step.episode_id != state.episode_id:
            state.episode_id = step.episode_id
            # what is missing before step 0 belonged to the episode before; a later beginning is incomplete
            state.broken = step.step > 0
        elif missing:
            state.broken = True
        episode = self._episodes.get(step.episode_id) or ReplayEpisode(episode_id=step.episode_id, instruction=step.instruction)
        inside = missing if state.broken else 0
        self._episodes[step.episode_id] = replace(episode, steps=episode.steps + 1, missing_steps=episode.missing_steps + inside)
        self._counts.missing_steps += missing
        self._counts.steps += 1
        state.orphans = 0
        report = self._monitor.update(step)
        self._made.append(_Made(report, _key(report), self._trusted and not state.broken, self._counts.steps))

    def _missing_before(self, message: BagMessage) -> int:
        """Count the steps lost just before this one: by their numbers if they have any, else by the reports that had no step."""
        if not self._ours:
            return self._state.orphans
        before, self._state.sequence = self._state.sequence, message.sequence
        return max(0, message.sequence - before - 1)

    def _note_episode(self, record: EpisodeRecord) -> None:
        episode = self._episodes.get(record.episode_id) or ReplayEpisode(episode_id=record.episode_id)
        ended = record.event is EpisodeEvent.ENDED
        self._episodes[record.episode_id] = replace(
            episode, instruction=episode.instruction or record.instruction, ended=ended, outcome=record.outcome if ended else episode.outcome
        )

    def _settle(self, final: bool) -> Iterator[ReplayPair]:
        """Compare in order what has both sides; a report whose step does not come is settled when patience ends."""
        while self._waiting:
            since, message = self._waiting[0]
            record = message.record
            assert isinstance(record, ReportRecord | AlarmRecord)
            made = self._find(record)
            if made is None and not final and self._counts.steps - since < _PATIENCE and not self._ours:
                break
            self._waiting.popleft()
            if isinstance(record, AlarmRecord):
                self._compare_alarm(message.topic, record, made)
            else:
                yield self._compare_report(message.topic, record, made)
        if final:
            self._counts.missing_steps += self._state.orphans
        while self._made and (final or self._counts.steps - self._made[0].number >= _PATIENCE):
            made = self._made.popleft()
            if not made.seen:
                self._counts.missing_reports += 1
                yield ReplayPair(None, made.report, False)

    def _find(self, record: ReportRecord | AlarmRecord) -> _Made | None:
        """The recomputed report of the same step; for a report, the first that has not been taken yet."""
        key = _key(record)
        takes = isinstance(record, ReportRecord)
        for made in self._made:
            if made.key == key and not (takes and made.seen):
                return made
        return None

    def _compare_report(self, topic: str, recorded: ReportRecord, made: _Made | None) -> ReplayPair:
        if made is None:  # the step was not recorded: what follows in this episode had another past
            self._counts.not_compared += 1
            self._state.orphans += 1
            self._state.broken_episodes.add(recorded.episode_id)
            return ReplayPair(recorded, None, False)
        made.seen = True
        comparable = made.comparable and recorded.episode_id not in self._state.broken_episodes
        if not comparable:
            self._counts.not_compared += 1
            return ReplayPair(recorded, made.report, False)
        self._counts.compared += 1
        difference = _report_difference(topic, recorded, made.report)
        self._counts.different += difference is not None
        self._first = self._first or difference
        return ReplayPair(recorded, made.report, True)

    def _compare_alarm(self, topic: str, recorded: AlarmRecord, made: _Made | None) -> None:
        if made is None or not made.comparable or recorded.episode_id in self._state.broken_episodes:
            return
        self._counts.alarms_compared += 1
        difference = _alarm_difference(topic, recorded, made.report.alarms)
        self._counts.alarms_different += difference is not None
        self._first = self._first or difference


def _key(record: ReportRecord | AlarmRecord | StepReport) -> _Key:
    return record.episode_id, record.step, np.float64(record.time).tobytes()


def _same(one: Any, other: Any) -> bool:
    """Bit for bit; any NaN equals any NaN."""
    if isinstance(one, float) and isinstance(other, float):
        return (one != one and other != other) or np.float64(one).tobytes() == np.float64(other).tobytes()
    return bool(one == other)


def _report_difference(topic: str, recorded: ReportRecord, report: StepReport) -> Difference | None:
    now = report_from(_Fields(report_fields(report)))

    def differs(what: str, one: object, other: object) -> Difference:
        return Difference(topic, recorded.episode_id, recorded.step, what, one, other)

    if recorded.verdict != now.verdict:
        return differs("verdict", recorded.verdict, now.verdict)
    if recorded.metrics != now.metrics:
        return differs("metrics", recorded.metrics, now.metrics)
    for key, one, other in zip(now.metrics, recorded.statuses.tolist(), now.statuses.tolist(), strict=True):
        if one != other:
            return differs(f"{key} status", one, other)
    for key, one, other in zip(now.metrics, recorded.values.tolist(), now.values.tolist(), strict=True):
        if not _same(one, other):
            return differs(key, one, other)
    if recorded.active_alarms != now.active_alarms:
        return differs("active alarms", recorded.active_alarms, now.active_alarms)
    codes, codes_now = [issue.code for issue in recorded.issues], [issue.code for issue in now.issues]
    return None if codes == codes_now else differs("issues", codes, codes_now)


def _alarm_difference(topic: str, recorded: AlarmRecord, alarms: tuple[AlarmState, ...]) -> Difference | None:
    state = recorded.state
    now = next((alarm for alarm in alarms if alarm.name == state.name), None)
    if now is None:
        return Difference(topic, recorded.episode_id, recorded.step, f"alarm {state.name}", state.phase.name, None)
    for name in ("phase", "metric", "value", "threshold", "since", "calibration", "hold", "text"):
        one, other = getattr(state, name), getattr(now, name)
        if not _same(one, other):
            return Difference(topic, recorded.episode_id, recorded.step, f"alarm {state.name} {name}", one, other)
    return None


class _Fields:
    """A dictionary as attributes."""

    def __init__(self, fields: dict[str, object]) -> None:
        self.__dict__.update(fields)

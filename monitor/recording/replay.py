"""Replay: make a recording's reports again from its steps, and tell whether they are the same, bit for bit.

What was not recorded is named, not called a difference: a step that was dropped by the recorder's queue, or lost with a damaged chunk, changes
the windows of the steps behind it, so the rest of its episode is replayed but not compared. A replay is good only if nothing was left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from monitor.aggregate import EpisodeSummary
from monitor.config import MonitorConfig
from monitor.engine import Monitor
from monitor.errors import BagError, ConfigError
from monitor.messages import AlarmRecord, EpisodeEvent, EpisodeRecord, Outcome, ReportRecord, report_fields, report_from
from monitor.policy import PolicySpec
from monitor.recording.mcap_scan import Damage
from monitor.recording.reader import BagMessage, BagReader
from monitor.recording.recorder import STEP_TOPIC
from monitor.steps import AlarmPhase, AlarmState, MetricInfo, PolicyStep, StepReport

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
        not_compared: reports that could not be compared (see the module). alarms_compared, alarms_different, alarms_not_compared: recorded alarm
            changes, likewise.
        missing_steps: steps known to be lost; missing_reports, missing_alarms: made again here, but not in the recording.
        first: the first difference. cut: the end of the recording is not there.
        stopped: why recording ended by itself (disk full), in one sentence; empty if it was closed.
        other_settings: configuration or policy facts were replaced, so nothing was compared.
        summaries: what the monitor says about each episode, in their order. records: the last event of each episode that has one, by its id.
        infos: facts about the metrics that were computed.
    """

    path: Path
    steps: int = 0
    reports: int = 0
    compared: int = 0
    different: int = 0
    not_compared: int = 0
    alarms_compared: int = 0
    alarms_different: int = 0
    alarms_not_compared: int = 0
    missing_steps: int = 0
    missing_reports: int = 0
    missing_alarms: int = 0
    first: Difference | None = None
    episodes: tuple[ReplayEpisode, ...] = ()
    cut: bool = False
    damage: tuple[Damage, ...] = ()
    notices: tuple[str, ...] = ()
    stopped: str = ""
    other_settings: bool = False
    summaries: tuple[EpisodeSummary, ...] = ()
    records: Mapping[str, EpisodeRecord] = field(default_factory=dict)
    infos: tuple[MetricInfo, ...] = ()

    @property
    def identical(self) -> bool:
        """Something was compared, and nothing of it differed. Says nothing of what was not compared: see `good`."""
        return self.compared > 0 and self.different == 0 and self.alarms_different == 0

    @property
    def complete(self) -> bool:
        """Everything that was published is there and was compared."""
        left_out = (self.not_compared, self.alarms_not_compared, self.missing_steps, self.missing_reports, self.missing_alarms)
        return self.compared > 0 and not any(left_out)

    @property
    def good(self) -> bool:
        """The bag is whole, and everything that was published was compared and is equal; under other settings: every step is there."""
        if self.cut or self.damage or self.stopped or self.steps == 0:
            return False
        return self.missing_steps == 0 if self.other_settings else self.identical and self.complete

    @property
    def verdict(self) -> str:
        """Text for the user: what was compared, how it came out, and what was not compared."""
        parts = [f"replay: {self._compared_text()}"]
        if self.not_compared and not self.other_settings:
            alarms = f" and {self.alarms_not_compared} alarm changes" if self.alarms_not_compared else ""
            parts.append(f"{self.not_compared} reports{alarms} could not be compared (a step is missing before them in their episode)")
        lost = ((self.missing_steps, "steps"), (self.missing_reports, "reports"), (self.missing_alarms, "alarm changes"))
        parts += [f"{count} {what} were not recorded" for count, what in lost if count and not (self.other_settings and what != "steps")]
        if self.cut:
            parts.append("the recording was cut, its last episode is unfinished")
        if self.stopped:
            parts.append(f"the recording ended before the run did: {self.stopped}")
        return "".join(["; ".join(parts), *(f"\n{damage.text}" for damage in self.damage)])

    def _compared_text(self) -> str:
        if self.steps == 0 and self.reports == 0:
            return "nothing recorded: the bag holds no step"
        if self.other_settings:
            return f"{self.steps} steps with other settings; not compared with the recording"
        if self.compared == 0:
            return f"{self.steps} steps, but no report that could be compared"
        if not self.identical:
            return f"{self.different} of {self.compared} reports and {self.alarms_different} alarm changes DIFFER; first: {self.first}"
        number = f"{self.compared} reports" if self.complete else f"only {self.compared} of {self.reports} reports were compared: they"
        return f"{number} and {self.alarms_compared} alarm changes are the same as live, bit for bit"


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
    alarms_not_compared: int = 0
    missing_steps: int = 0
    missing_reports: int = 0
    missing_alarms: int = 0


@dataclass(slots=True)
class _Made:
    """A recomputed report that waits for its recorded one (`seen`: it came), kept a while for alarms (`told`: those that came).

    `before`: the episode before, if this report may tell the end of its alarms.
    """

    report: StepReport
    key: _Key
    comparable: bool
    number: int
    before: str | None
    seen: bool = False
    told: set[tuple[str, AlarmPhase]] = field(default_factory=set)


@dataclass(slots=True)
class _State:
    """Of the episode that is being replayed."""

    episode_id: str | None = None
    broken: bool = False
    before: str | None = None  # the episode before, until a report has told the end of its alarms
    gaps: set[str] = field(default_factory=set)  # episodes of which a step is missing
    sequence: int = -1
    orphans: int = 0  # recorded reports without a step, since the last step
    broken_episodes: set[str] = field(default_factory=set)


class _Replay:
    def __init__(self, path: Path, config: MonitorConfig | None, spec: PolicySpec | None) -> None:
        self._reader = BagReader(path)
        self._ours = bool(self._reader.metadata)  # written by our Recorder: messages are numbered, and a report stands behind its step
        self._trusted = True
        if config is None or spec is None:
            facts = self._reader.facts()
            self._trusted = config in (None, facts.config) and spec in (None, facts.spec)
            config, spec = config or facts.config, spec or facts.spec
        elif self._ours:
            with suppress(BagError, ConfigError):  # what cannot be read is what the caller replaces
                facts = self._reader.facts()
                self._trusted = (config, spec) == (facts.config, facts.spec)
        self._monitor = Monitor(spec, config)
        self._counts = _Counts()
        self._first: Difference | None = None
        self._episodes: dict[str, ReplayEpisode] = {}
        self._records: dict[str, EpisodeRecord] = {}
        self._summaries: list[EpisodeSummary] = []
        self._alarms_recorded = self._ours  # another recorder may have left that topic out
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
                self._alarms_recorded = self._alarms_recorded or isinstance(record, AlarmRecord)
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
            stopped=self._reader.ended_because,
            other_settings=not self._trusted,
            summaries=(*self._summaries, self._monitor.summary()) if self._counts.steps else (),
            records=self._records,
            infos=self._monitor.infos,
            **counts,
        )

    def _feed(self, message: BagMessage, step: PolicyStep) -> None:
        missing = self._missing_before(message)
        state = self._state
        begins = step.episode_id != state.episode_id
        if begins:
            state.before, state.episode_id = state.episode_id, step.episode_id
            if missing and state.before is not None:
                state.gaps.add(state.before)
            # what is missing before step 0 belonged to the episode before; a later beginning is incomplete, unless the numbers say that none was lost
            state.broken = step.step > 0 and (missing > 0 or not self._ours)
        elif missing:
            state.broken = True
        if state.broken:
            state.gaps.add(step.episode_id)
        episode = self._episodes.get(step.episode_id) or ReplayEpisode(episode_id=step.episode_id, instruction=step.instruction)
        inside = missing if state.broken else 0
        self._episodes[step.episode_id] = replace(episode, steps=episode.steps + 1, missing_steps=episode.missing_steps + inside)
        self._counts.missing_steps += missing
        self._counts.steps += 1
        state.orphans = 0
        report = self._monitor.update(step)
        if begins and self._counts.steps > 1 and self._monitor.finished is not None:
            self._summaries.append(self._monitor.finished)
        self._made.append(_Made(report, _key(report), self._trusted and not state.broken, self._counts.steps, state.before))
        if report.verdict == "accepted":
            state.before = None

    def _missing_before(self, message: BagMessage) -> int:
        """Count the steps lost just before this one: by their numbers if they have any, else by the reports that had no step."""
        if not self._ours:
            return self._state.orphans
        before, self._state.sequence = self._state.sequence, message.sequence
        return max(0, message.sequence - before - 1)

    def _note_episode(self, record: EpisodeRecord) -> None:
        episode = self._episodes.get(record.episode_id) or ReplayEpisode(episode_id=record.episode_id)
        ended = record.event is EpisodeEvent.ENDED
        self._records[record.episode_id] = record
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
        if final:  # behind the last step that is there
            unseen = self._reader.offered.get(STEP_TOPIC, 0) - (self._state.sequence + 1) if self._ours else 0
            self._counts.missing_steps += max(self._state.orphans, unseen)
        while self._made and (final or self._counts.steps - self._made[0].number >= _PATIENCE):
            made = self._made.popleft()
            self._counts.missing_alarms += self._untold(made)
            if not made.seen:
                self._counts.missing_reports += 1
                yield ReplayPair(None, made.report, False)

    def _untold(self, made: _Made) -> int:
        """Count the alarm changes of a report that should be in the recording and are not."""
        if not self._alarms_recorded or not made.comparable or made.report.episode_id in self._state.broken_episodes:
            return 0
        changed = {(alarm.name, alarm.phase) for alarm in made.report.alarms if alarm.changed}
        return sum(phase is not AlarmPhase.QUIET or made.before not in self._state.gaps for _, phase in changed - made.told)

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
            self._state.gaps.add(recorded.episode_id)
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
        state = recorded.state
        if state.name not in self._monitor.config.alarms:
            return  # the node's own, such as recording_stopped
        inherited = made is not None and made.before in self._state.gaps and state.phase is AlarmPhase.QUIET
        if made is None or inherited or not made.comparable or recorded.episode_id in self._state.broken_episodes:
            self._counts.alarms_not_compared += 1
            return
        made.told.add((state.name, state.phase))
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
    named = [alarm for alarm in alarms if alarm.name == state.name]  # two, when it ended with the last episode and is back
    now = next((alarm for alarm in named if alarm.phase is state.phase), named[-1] if named else None)
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

"""ControlLoop: policy, monitor, gate and outputs in one worker thread. No ROS in here.

Whoever collects observations hands them over and goes on; one that still waits when the next comes is dropped and counted. Nothing raises out of the
loop: a policy or an output that fails costs one step, is counted and told.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from monitor.engine import Monitor
from monitor.messages import EpisodeEvent, EpisodeRecord
from monitor.policy import Observation, Policy, with_image_facts
from monitor.ros.gate import Gate
from monitor.steps import AlarmState, Float, PolicyStep, StepReport

TELL_EVERY_S = 5.0

log = logging.getLogger(__name__)


class Outputs(Protocol):
    """Where results go. Each call may fail; `stamp_ns` is that of the observation."""

    def action(self, episode_id: str, step: int, action: Float, held: bool, stamp_ns: int) -> None:
        """Send an action to the controller."""
        ...

    def result(self, step: PolicyStep, report: StepReport, held: bool, stamp_ns: int) -> None:
        """Publish a step and its report."""
        ...

    def alarm(self, alarm: AlarmState, report: StepReport, stamp_ns: int) -> None:
        """Publish an alarm that changed its phase."""
        ...


class Sink(Protocol):
    """Something that is fed with every step, beside the topics: recorder, exporter."""

    def episode(self, record: EpisodeRecord) -> None:
        """An episode begins or ends."""
        ...

    def step(self, observation: Observation, step: PolicyStep, report: StepReport, held: bool, update_seconds: float) -> None:
        """A step and what the monitor said; `update_seconds` is the wall time of that."""
        ...


@dataclass(frozen=True, slots=True)
class _Work:
    observation: Observation
    stamp_ns: int
    complete: float  # steady clock, when the observation was complete


class Teller:
    """Says a kind of trouble at once, then at most once in `every_s`, with the number of times since."""

    def __init__(self, say: Callable[[str], None], every_s: float = TELL_EVERY_S) -> None:
        self._say, self._every_s = say, every_s
        self._last: dict[str, float] = {}
        self._unsaid: Counter[str] = Counter()
        self._lock = threading.Lock()

    def tell(self, kind: str, text: str) -> None:
        """Tell `text`, or count it."""
        with self._lock:
            now = time.monotonic()
            if now - self._last.get(kind, -self._every_s) < self._every_s:
                self._unsaid[kind] += 1
                return
            self._last[kind] = now
            more = self._unsaid.pop(kind, 0)
        self._say(f"{text} ({more} more since the last line)" if more else text)


class ControlLoop:
    """Owns the worker thread; `begin`, `end` and `offer` come from one other thread.

    Args:
        policy: used in the worker only, as is the monitor.
        say: takes lines about trouble, already thinned out.
        sinks: fed after the action is out.
    """

    def __init__(
        self,
        policy: Policy,
        monitor: Monitor,
        gate: Gate,
        outputs: Outputs,
        *,
        sinks: tuple[Sink, ...] = (),
        say: Callable[[str], None] = log.warning,
    ) -> None:
        self._policy, self._monitor, self._gate, self._outputs = policy, monitor, gate, outputs
        self.sinks = sinks  # set before start
        self.teller = Teller(say)
        self._counters: Counter[str] = Counter(overrun=0, policy_failed=0, step_failed=0, output_failed=0, not_sent=0, held=0, done=0)
        self._queue: deque[_Work | EpisodeRecord] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._instruction: str | None = None  # what the policy was reset with; None: not yet, or in vain
        self._latencies: deque[float] = deque(maxlen=200)
        self._thread = threading.Thread(target=self._run, name="vla-monitor-loop", daemon=True)

    @property
    def counters(self) -> Mapping[str, int]:
        """Totals, a closed set.

        Steps `done`, `held`, dropped because the last one took too long (`overrun`), without action because the policy's had a wrong length
        (`not_sent`), given up because the policy raised (`policy_failed`) or anything else did (`step_failed`); and outputs that raised.
        """
        return self._counters

    def latency_s(self, share: float = 0.5) -> float | None:
        """From a complete observation to the action, over the last 200 steps: the median, or another share of them."""
        values = sorted(self._latencies)
        return values[min(int(share * len(values)), len(values) - 1)] if values else None

    def start(self) -> None:
        """Start the worker."""
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Do what waits, end the worker; False if it did not end in time."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.ident is not None:  # else never started
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def episode(self, record: EpisodeRecord) -> None:
        """An episode begins or ends, after everything that was offered before."""
        with self._wake:
            self._queue.append(record)
            self._wake.notify()

    def offer(self, observation: Observation, stamp_ns: int, complete: float) -> None:
        """Hand over an observation that was complete at `complete` (steady clock); it replaces one that still waits."""
        work = _Work(observation, stamp_ns, complete)
        with self._wake:
            if self._queue and isinstance(self._queue[-1], _Work):
                self._queue[-1] = work
                self._counters["overrun"] += 1
                late = True
            else:
                self._queue.append(work)
                late = False
            self._wake.notify()
        if late:
            self.teller.tell("overrun", "a step was dropped: the policy is slower than the observations")

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._queue and not self._stopping:
                    self._wake.wait()
                if not self._queue:
                    return
                work = self._queue.popleft()
            try:
                if isinstance(work, _Work):
                    self._step(work)
                else:
                    self._episode(work)
            except Exception as error:  # the loop must outlive every fault
                self._counters["step_failed"] += 1
                self.teller.tell("step", f"a step failed and is skipped: {type(error).__name__}: {error}")

    def _episode(self, record: EpisodeRecord) -> None:
        for sink in self.sinks:
            self._guarded("recording an episode", sink.episode, record)
        if record.event is EpisodeEvent.STARTED:
            self._gate.reset()
            self._reset(record.instruction)

    def _reset(self, instruction: str) -> bool:
        """Reset the policy; if it fails, the next step tries again."""
        self._instruction = None
        try:
            self._policy.reset(instruction)
        except Exception as error:
            self._blame_policy(error)
            return False
        self._instruction = instruction
        return True

    def _act(self, observation: Observation) -> PolicyStep | None:
        """Ask the policy; None if it failed."""
        if observation.instruction != self._instruction and not self._reset(observation.instruction):
            return None
        try:
            step = self._policy.act(observation)
            if not isinstance(step, PolicyStep):
                raise TypeError(f"act returned {type(step).__name__}, expected a PolicyStep")
        except Exception as error:
            self._blame_policy(error)
            return None
        return step

    def _blame_policy(self, error: Exception) -> None:
        self._counters["policy_failed"] += 1
        self.teller.tell("policy", f"the policy failed and its step is skipped: {type(error).__name__}: {error}")

    def _step(self, work: _Work) -> None:
        observation = work.observation
        own = self._act(observation)
        if own is None:
            return
        step = self._gate.begin(own, observation.gripper if own.gripper is None else own.gripper)
        sent = None if self._gate.needs_report else self._send(own, None, work)
        step = with_image_facts(step, observation)
        begun = time.perf_counter()
        report = self._monitor.update(step)
        update_seconds = time.perf_counter() - begun
        held = self._send(own, report, work) if sent is None else sent
        self._guarded("publishing a report", self._outputs.result, step, report, held, work.stamp_ns)
        for alarm in report.alarms:
            if alarm.changed:
                self._guarded("publishing an alarm", self._outputs.alarm, alarm, report, work.stamp_ns)
        for sink in self.sinks:
            self._guarded("recording or exporting", sink.step, observation, step, report, held, update_seconds)
        self._counters["done"] += 1

    def _send(self, step: PolicyStep, report: StepReport | None, work: _Work) -> bool:
        decision = self._gate.decide(step, report)
        if decision.held:
            self._counters["held"] += 1
            self.teller.tell("held", f"step {step.step} of {step.episode_id}: action withheld, {decision.reason}")
        elif decision.action is None:
            self._counters["not_sent"] += 1
            self.teller.tell("not_sent", f"step {step.step} of {step.episode_id}: action not sent, {decision.reason}")
        if decision.action is not None:
            self._guarded("publishing an action", self._outputs.action, step.episode_id, step.step, decision.action, decision.held, work.stamp_ns)
        self._latencies.append(time.monotonic() - work.complete)
        return decision.held

    def _guarded(self, what: str, call: Callable[..., None], *args: object) -> None:
        try:
            call(*args)
        except Exception as error:  # an output's fault must not cost the robot its policy
            self._counters["output_failed"] += 1
            self.teller.tell(what, f"{what} failed: {type(error).__name__}: {error}")

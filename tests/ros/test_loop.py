"""Policy, monitor and gate together: NaN actions, latched withholding, faults of every part, and a policy that is too slow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from processes import until
from tiny import TinyPolicy

from monitor.config import GateConfig, MonitorConfig
from monitor.engine import Monitor
from monitor.messages import EpisodeEvent, EpisodeRecord
from monitor.policy import Observation, PolicySpec
from monitor.ros.gate import Decision, Gate
from monitor.ros.loop import ControlLoop, Sink, Teller
from monitor.steps import AlarmPhase, AlarmState, Float, PolicyStep, StepReport


class Outputs:
    def __init__(self, breaks: bool = False) -> None:
        self.actions: dict[int, tuple[Float, bool]] = {}
        self.reports: list[tuple[StepReport, bool]] = []
        self.steps: dict[int, PolicyStep] = {}
        self.alarms: list[tuple[int, str, AlarmPhase]] = []
        self.breaks = breaks

    def action(self, episode_id: str, step: int, action: Float, held: bool, stamp_ns: int) -> None:
        self.actions[step] = (action, held)

    def result(self, step: PolicyStep, report: StepReport, held: bool, stamp_ns: int) -> None:
        if self.breaks:
            raise RuntimeError("no network")
        self.reports.append((report, held))
        self.steps[step.step] = step

    def alarm(self, alarm: AlarmState, report: StepReport, stamp_ns: int) -> None:
        self.alarms.append((report.step, alarm.name, alarm.phase))


class ListSink:
    def __init__(self) -> None:
        self.episodes: list[EpisodeRecord] = []

    def episode(self, record: EpisodeRecord) -> None:
        self.episodes.append(record)

    def step(self, observation: Observation, step: PolicyStep, report: StepReport, held: bool, update_seconds: float) -> None: ...


STARTED = EpisodeRecord(event=EpisodeEvent.STARTED, time=0.0, episode_id="e", instruction="go")


def observe(step: int) -> Observation:
    pose = np.array([0.4 + 0.01 * step, 0.0, 0.1])
    return Observation(
        time=step * 0.05,
        episode_id="e",
        step=step,
        instruction="go",
        tcp_position=pose,
        tcp_quaternion=np.array([1.0, 0, 0, 0]),
        joints=np.zeros(7),
        gripper=0.5,
    )


def play(
    policy: TinyPolicy,
    config: GateConfig,
    steps: int,
    outputs: Outputs | None = None,
    monitor: Monitor | None = None,
    before: Callable[[int, Gate, ControlLoop], None] = lambda step, gate, loop: None,
    sinks: tuple[Sink, ...] = (),
) -> tuple[Outputs, ControlLoop, list[str]]:
    """Some steps of one episode; `before` is called before each."""
    out, said, gate = outputs or Outputs(), [], Gate(config, policy.spec)
    loop = ControlLoop(policy, monitor or Monitor(policy.spec, MonitorConfig(gate=config)), gate, out, say=said.append, sinks=sinks)
    loop.start()
    loop.episode(STARTED)
    for step in range(steps):
        before(step, gate, loop)
        loop.offer(observe(step), step, time.monotonic())
        until(lambda: not loop._queue, f"step {step} is taken", 30)
    assert loop.stop()
    return out, loop, said


FAULTS = {20: "nan", 22: "inf"}
LATCHING = GateConfig(mode="hold")


def test_hold_withholds_invalid_actions_and_says_why() -> None:
    out, loop, said = play(TinyPolicy(FAULTS), GateConfig(mode="hold", release="alarm"), 40)
    assert (20, "invalid_action", AlarmPhase.ACTIVE) in out.alarms, "at once"
    for step in FAULTS:
        action, held = out.actions[step]
        assert held
        assert action.tolist() == [0, 0, 0, 0, 0, 0, 1], "zero delta, gripper as it was sent"
    assert not out.actions[19][1]
    assert not out.actions[39][1]
    assert all(np.isfinite(action).all() for action, _ in out.actions.values())
    assert loop.counters["held"] == sum(held for _, held in out.reports) >= 2
    assert any("invalid_action" in line for line in said)


def held_steps(out: Outputs) -> list[int]:
    return [report.step for report, held in out.reports if held]


def test_withholding_goes_on_until_somebody_releases_it() -> None:
    told = []

    def release_at_30(step: int, gate: Gate, loop: ControlLoop) -> None:
        if step == 30:
            until(lambda: loop.counters["done"] == 30, "30 steps")
            told.append(gate.release())

    out, _, _ = play(TinyPolicy({20: "nan"}), LATCHING, 35, before=release_at_30)
    assert held_steps(out) == list(range(20, 30))
    assert "invalid_action" in told[0]
    assert Gate(LATCHING, TinyPolicy().spec).release() == "nothing was withheld"


def test_a_release_does_not_let_a_bad_action_pass() -> None:
    out, _, _ = play(TinyPolicy(dict.fromkeys(range(20, 30), "nan")), LATCHING, 32, before=lambda step, gate, loop: step == 25 and gate.release())
    assert held_steps(out) == list(range(20, 32))
    assert all(np.isfinite(action).all() for action, _ in out.actions.values())


def test_a_new_episode_does_not_release() -> None:
    def restart(step: int, gate: Gate, loop: ControlLoop) -> None:
        if step == 22:
            loop.episode(STARTED)

    out, _, _ = play(TinyPolicy({20: "nan"}), LATCHING, 25, before=restart)
    assert held_steps(out) == [20, 21, 22, 23, 24]
    assert out.actions[21][0].tolist() == [0, 0, 0, 0, 0, 0, 1], "the gripper as last sent"
    assert out.actions[22][0].tolist() == [0, 0, 0, 0, 0, 0, 0.5], "the gripper as measured"


@pytest.mark.parametrize("release", ["service", "alarm"])
def test_monitor_and_bag_get_the_action_that_was_sent(release: Literal["service", "alarm"]) -> None:
    out, _, _ = play(TinyPolicy({20: "nan", 21: "nan"}), GateConfig(mode="hold", release=release), 30)
    assert np.isnan(out.steps[20].action).all(), "where withholding begins, the policy's action is judged"
    assert held_steps(out)[:3] == [20, 21, 22]
    for step in held_steps(out)[1:]:
        sent = out.steps[step]
        assert sent.action.tolist() == out.actions[step][0].tolist() == [0, 0, 0, 0, 0, 0, 1]
        assert sent.raw_action is not None
        assert np.isnan(sent.raw_action).all() == (step == 21)
    reports = {report.step: report for report, _ in out.reports}
    assert reports[21]["invalid/action"].value == 7, "the policy's action is still judged"
    assert out.steps[19].raw_action is None
    assert (29 in held_steps(out)) == (release == "service")


def test_report_only_tells() -> None:
    out, loop, _ = play(TinyPolicy(FAULTS), GateConfig(), 25)
    assert np.isnan(out.actions[20][0]).all()
    assert loop.counters["held"] == 0
    assert (20, "invalid_action", AlarmPhase.ACTIVE) in out.alarms


class BrokenMonitor(Monitor):
    def update(self, step: PolicyStep) -> StepReport:
        return replace(super().update(step), verdict="failed")


@pytest.mark.parametrize(("choice", "held"), [("pass", False), ("hold", True)])
def test_what_the_robot_gets_when_the_monitor_fails(choice: str, held: bool) -> None:
    policy, gate = TinyPolicy(), GateConfig(on_monitor_failure=choice)
    out, _, _ = play(policy, gate, 3, monitor=BrokenMonitor(policy.spec))
    assert [h for _, h in out.actions.values()] == [held] * 3


def test_a_policy_that_raises_costs_its_step_only() -> None:
    out, loop, said = play(TinyPolicy({3: "raise"}), GateConfig(), 8)
    assert sorted(out.actions) == [0, 1, 2, 4, 5, 6, 7]
    assert loop.counters["policy_failed"] == 1
    assert any("RuntimeError: the policy broke" in line for line in said)


def test_a_reset_that_raises_is_tried_again_and_no_stale_policy_acts() -> None:
    policy, sink = TinyPolicy(), ListSink()
    policy.bad_resets = 2
    out, loop, said = play(policy, GateConfig(), 5, sinks=(sink,))
    assert [record.event for record in sink.episodes] == [EpisodeEvent.STARTED], "recorded all the same"
    assert policy.resets == ["go"] * 3
    assert sorted(out.actions) == [1, 2, 3, 4]
    assert loop.counters["policy_failed"] == 2
    assert any("the reset broke" in line for line in said)


def test_faults_that_are_not_the_policys_are_counted_apart() -> None:
    class Faulty(Monitor):
        def update(self, step: PolicyStep) -> StepReport:
            raise RuntimeError("no report")

    policy = TinyPolicy()
    _, loop, _ = play(policy, GateConfig(), 3, monitor=Faulty(policy.spec))
    assert (loop.counters["policy_failed"], loop.counters["step_failed"]) == (0, 3)


def test_a_policy_that_returns_no_step_is_blamed() -> None:
    policy = TinyPolicy()
    policy.act = lambda observation: None  # type: ignore[assignment,method-assign,return-value]
    _, loop, said = play(policy, GateConfig(), 2)
    assert (loop.counters["policy_failed"], loop.counters["step_failed"]) == (2, 0)
    assert any("expected a PolicyStep" in line for line in said)


@pytest.mark.parametrize("mode", ["report", "hold"])
def test_an_action_of_wrong_length_is_never_sent(mode: Literal["report", "hold"]) -> None:
    out, loop, said = play(TinyPolicy({3: "short"}), GateConfig(mode=mode, release="alarm"), 12)
    assert all(len(action) == 7 for action, _ in out.actions.values())
    assert (3 in out.actions) == (mode == "hold"), "the safe action"
    assert loop.counters["not_sent"] == (mode == "report")
    assert any("3 numbers" in line for line in said) == (mode == "report")
    assert {report.step for report, _ in out.reports} == set(range(12))
    reports = {report.step: report for report, _ in out.reports}
    assert reports[3]["invalid/action"].value == 7


def test_a_loop_that_never_started_can_be_stopped() -> None:
    policy = TinyPolicy()
    assert ControlLoop(policy, Monitor(policy.spec), Gate(GateConfig(), policy.spec), Outputs()).stop()


def test_an_output_that_raises_does_not_stop_the_actions() -> None:
    out, loop, said = play(TinyPolicy(), GateConfig(), 5, outputs=Outputs(breaks=True))
    assert len(out.actions) == 5
    assert loop.counters["output_failed"] == 5
    assert len([line for line in said if "no network" in line]) == 1, "told once, then counted"


def test_a_slow_policy_gets_the_newest_observation() -> None:
    policy, out = TinyPolicy(), Outputs()
    entered, go = threading.Event(), threading.Event()
    act = policy.act

    def slow(observation: Observation) -> PolicyStep:
        entered.set()
        assert go.wait(30)
        return act(observation)

    policy.act = slow  # type: ignore[method-assign]
    loop = ControlLoop(policy, Monitor(policy.spec), Gate(GateConfig(), policy.spec), out, say=lambda line: None)
    loop.start()
    loop.offer(observe(0), 0, 0.0)
    assert entered.wait(30)
    for step in (1, 2, 3):
        loop.offer(observe(step), step, 0.0)
    go.set()
    assert loop.stop()
    assert sorted(out.actions) == [0, 3]
    assert loop.counters["overrun"] == 2


QUIET = StepReport(time=0, episode_id="e", step=0, verdict="accepted", infos=(), values=np.zeros(0), statuses=np.zeros(0, np.uint8))
FAILED = replace(QUIET, verdict="failed")
CAREFUL = GateConfig(on_monitor_failure="hold", release="alarm")


def decide(gate: Gate, value: float, report: StepReport, opening: float | None = None) -> Decision:
    step = PolicyStep(time=0, episode_id="e", step=0, action=np.full(7, value))
    gate.begin(step, opening)
    return gate.decide(step, report)


def test_absolute_actions_are_held_at_the_last_one_sent() -> None:
    gate = Gate(CAREFUL, PolicySpec(name="a", action_kind="absolute"))
    assert decide(gate, 1.0, FAILED).action is None, "nothing is safe before the first action"
    assert decide(gate, 2.0, QUIET).action is None, "what was judged is what was sent: nothing"
    decide(gate, 2.0, QUIET)
    held = decide(gate, 1.0, FAILED)
    assert held.held
    assert held.action is not None
    assert held.action.tolist() == [2.0] * 7


def test_held_gripper_never_closes_by_itself() -> None:
    gate = Gate(CAREFUL, PolicySpec(name="d"))
    assert decide(gate, 1.0, FAILED) == Decision(None, True, "the monitor failed"), "nothing is known of the gripper"
    assert decide(gate, 1.0, FAILED, float("nan")).action is None
    for opening, expected in ((0.8, 0.8), (0.3, 0.8)):  # once told, it stays so
        held = decide(gate, 1.0, FAILED, opening)
        assert held.action is not None
        assert held.action.tolist() == [0, 0, 0, 0, 0, 0, expected]
    bare = decide(Gate(CAREFUL, PolicySpec(name="d", groups={})), 1.0, FAILED)
    assert bare.action is not None
    assert not bare.action.any()


def test_teller_counts_what_it_does_not_say() -> None:
    said: list[str] = []
    teller = Teller(said.append, every_s=0.05)
    for _ in range(3):
        teller.tell("a", "trouble")
    time.sleep(0.06)
    teller.tell("a", "trouble")
    assert said == ["trouble", "trouble (2 more since the last line)"]

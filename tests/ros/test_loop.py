"""Policy, monitor and gate together: NaN actions (D2), faults of every part, and a policy that is too slow."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from processes import until
from tiny import TinyPolicy

from monitor.config import GateConfig, MonitorConfig
from monitor.engine import Monitor
from monitor.messages import EpisodeEvent, EpisodeRecord
from monitor.policy import Observation, PolicySpec
from monitor.ros.gate import Gate
from monitor.ros.loop import ControlLoop, Teller
from monitor.steps import AlarmPhase, AlarmState, Float, PolicyStep, StepReport


class Outputs:
    def __init__(self, breaks: bool = False) -> None:
        self.actions: dict[int, tuple[Float, bool]] = {}
        self.reports: list[tuple[StepReport, bool]] = []
        self.alarms: list[tuple[int, str, AlarmPhase]] = []
        self.breaks = breaks

    def action(self, episode_id: str, step: int, action: Float, held: bool, stamp_ns: int) -> None:
        self.actions[step] = (action, held)

    def result(self, step: PolicyStep, report: StepReport, held: bool, stamp_ns: int) -> None:
        if self.breaks:
            raise RuntimeError("no network")
        self.reports.append((report, held))

    def alarm(self, alarm: AlarmState, report: StepReport, stamp_ns: int) -> None:
        self.alarms.append((report.step, alarm.name, alarm.phase))


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
    policy: TinyPolicy, gate: GateConfig, steps: int, outputs: Outputs | None = None, monitor: Monitor | None = None
) -> tuple[Outputs, ControlLoop, list[str]]:
    out, said = outputs or Outputs(), []
    loop = ControlLoop(policy, monitor or Monitor(policy.spec, MonitorConfig(gate=gate)), Gate(gate, policy.spec), out, say=said.append)
    loop.start()
    loop.episode(EpisodeRecord(event=EpisodeEvent.STARTED, time=0.0, episode_id="e", instruction="go"))
    for step in range(steps):
        loop.offer(observe(step), step, time.monotonic())
        until(lambda done=step + 1: loop.counters["done"] + loop.counters["policy_failed"] == done, f"step {step}", 30)
    assert loop.stop()
    return out, loop, said


FAULTS = {20: "nan", 22: "inf"}


def test_hold_withholds_invalid_actions_and_says_why() -> None:
    out, loop, said = play(TinyPolicy(FAULTS), GateConfig(mode="hold"), 40)
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


def test_report_only_tells() -> None:
    out, loop, _ = play(TinyPolicy(FAULTS), GateConfig(), 25)
    assert np.isnan(out.actions[20][0]).all()
    assert loop.counters["held"] == 0
    assert (20, "invalid_action", AlarmPhase.ACTIVE) in out.alarms


class BrokenMonitor(Monitor):
    def update(self, step: PolicyStep) -> StepReport:
        return self._report(step, "failed", (), (), 4)


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


def test_absolute_actions_are_held_at_the_last_one_sent() -> None:
    spec = PolicySpec(name="a", action_kind="absolute")
    gate = Gate(GateConfig(on_monitor_failure="hold"), spec)
    assert gate.decide(np.ones(7), None).action is None, "nothing is safe before the first action"
    quiet = StepReport(time=0, episode_id="e", step=0, verdict="accepted", infos=(), values=np.zeros(0), statuses=np.zeros(0, np.uint8))
    gate.decide(np.full(7, 2.0), quiet)
    held = gate.decide(np.ones(7), None)
    assert held.held
    assert held.action is not None
    assert held.action.tolist() == [2.0] * 7


def test_teller_counts_what_it_does_not_say() -> None:
    said: list[str] = []
    teller = Teller(said.append, every_s=0.05)
    for _ in range(3):
        teller.tell("a", "trouble")
    time.sleep(0.06)
    teller.tell("a", "trouble")
    assert said == ["trouble", "trouble (2 more since the last line)"]

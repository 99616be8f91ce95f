"""Monitor: order of steps, episodes, faults. The families' own numbers are tested in tests/metrics."""

import dataclasses
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from monitor import Family, Issue, MetricInfo, Monitor, MonitorConfig, PolicySpec, PolicyStep, Status
from monitor.config import AlarmConfig, parse_config
from monitor.errors import ConfigError

SPEC = PolicySpec(name="test", action_low=(-1.0,) * 7, action_high=(1.0,) * 7)


class LastAction:
    """A family of one: the first number of the action."""

    def __init__(self, key: str = "last", family: Family = Family.ACTION) -> None:
        self.infos = (
            MetricInfo(
                id=key, variant="full", label=key, family=family, unit="1", low=0, high=1, higher_means="larger", formula="a[0]", source="test"
            ),
        )
        self.steps_since_reset = 0

    def update(self, step: PolicyStep, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        self.steps_since_reset += 1
        if self.steps_since_reset < 2:
            statuses[0] = Status.WARMING_UP
            return ()
        values[0], statuses[0] = step.action[0], Status.OK
        return ()

    def reset(self) -> None:
        self.steps_since_reset = 0


class Broken(LastAction):
    def update(self, step: PolicyStep, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        values[0] = 5.0
        raise ZeroDivisionError("on purpose")


class Flag(LastAction):
    """frozen/flag, equal to the action's second number."""

    def __init__(self) -> None:
        super().__init__()
        self.infos = (dataclasses.replace(self.infos[0], id="frozen", variant="flag", family=Family.MOTION),)

    def update(self, step: PolicyStep, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        values[0], statuses[0] = step.action[1], Status.OK
        return ()


def quiet(**alarms: AlarmConfig) -> MonitorConfig:
    return MonitorConfig().model_copy(update={"alarms": alarms})


def step(n: int, value: float = 0.5, *, episode: str = "e1", time: float | None = None, frozen: float = 0.0, instruction: str = "go") -> PolicyStep:
    action = [value, frozen, 0, 0, 0, 0, 0]
    return PolicyStep(time=n / 10 if time is None else time, episode_id=episode, step=n, action=action, instruction=instruction)  # type: ignore[arg-type]


def monitor(*families: LastAction, **alarms: AlarmConfig) -> Monitor:
    return Monitor(SPEC, quiet(**alarms), metrics=families or (LastAction(),))


def test_warm_up_is_null_with_a_status() -> None:
    value = monitor().update(step(0))["last/full"]
    assert value.value is None
    assert value.status is Status.WARMING_UP


def test_a_value_carries_its_status_and_unit() -> None:
    m = monitor()
    m.update(step(0))
    assert m.update(step(1, 0.25))["last/full"] == ("last/full", 0.25, Status.OK, "1")


def test_an_unknown_metric_is_named_with_the_known_ones() -> None:
    with pytest.raises(KeyError, match="known: last/full"):
        monitor().update(step(0))["lost/full"]


def test_a_duplicate_step_is_ignored_and_counted() -> None:
    m = monitor()
    m.update(step(0))
    report = m.update(step(0, 0.9))
    assert report.verdict == "duplicate"
    assert report["last/full"].value is None
    assert m.counters["duplicate"] == 1


def test_a_late_step_is_ignored_and_counted() -> None:
    m = monitor()
    m.update(step(0))
    m.update(step(2))
    assert m.update(step(1)).verdict == "late"
    assert m.counters["late"] == 1


def test_a_missing_step_is_an_issue() -> None:
    m = monitor()
    m.update(step(0))
    assert m.update(step(4)).issues == (Issue("gap", "steps 1 to 3 are missing"),)


def test_a_new_episode_restarts_warm_up() -> None:
    m = monitor()
    m.update(step(0))
    m.update(step(1))
    assert m.update(step(0, episode="e2"))["last/full"].status is Status.WARMING_UP


def test_a_new_episode_leaves_the_summary_of_the_old_one() -> None:
    m = monitor()
    for n, value in enumerate([0.0, 0.2, 0.6]):
        m.update(step(n, value))
    m.update(step(0, episode="e2"))
    assert m.finished is not None
    summary = m.finished["last/full"]
    assert (m.finished.episode_id, m.finished.steps) == ("e1", 3)
    assert (summary.count, summary.max) == (2, 0.6)
    assert summary.mean == pytest.approx(0.4)
    assert summary.ok_share == pytest.approx(2 / 3)


def test_warm_up_steps_do_not_enter_the_mean() -> None:
    m = monitor()
    m.update(step(0, 100.0))
    m.update(step(1, 0.2))
    assert m.summary()["last/full"].mean == 0.2


def test_a_metric_that_never_spoke_has_null_aggregates() -> None:
    m = monitor()
    m.update(step(0))
    summary = m.summary()["last/full"]
    assert (summary.count, summary.mean, summary.max, summary.sliding_max) == (0, None, None, None)


def test_sliding_maximum_is_the_largest_mean_over_the_span() -> None:
    config = quiet().model_copy(update={"sliding_seconds": 0.3})
    m = Monitor(SPEC, config, metrics=(LastAction(),))
    values = [0.0, 0.1, 0.9, 0.7, 0.2, 0.3, 0.1]
    for n, value in enumerate(values):
        m.update(step(n, value))
    told = values[1:]
    assert m.summary()["last/full"].sliding_max == pytest.approx(max(sum(told[i : i + 3]) / 3 for i in range(len(told) - 2)))


def test_in_a_short_episode_the_sliding_maximum_is_the_mean() -> None:
    m = monitor()
    for n in range(4):
        m.update(step(n, n / 10))
    assert m.summary()["last/full"].sliding_max == pytest.approx(0.2)


def test_a_value_that_is_held_for_a_chunk_counts_once() -> None:
    m = monitor(LastAction("tb", Family.TOKEN))
    inferences = [0, 1, 1, 1, 1, 2]
    for n, (inference, value) in enumerate(zip(inferences, [0.0, 1.0, 1.0, 1.0, 1.0, 0.0], strict=True)):
        m.update(dataclasses.replace(step(n, value), inference_id=inference, chunk_offset=max(0, n - 1) if inference == 1 else 0))
    summary = m.summary()["tb/full"]
    assert (summary.count, summary.mean) == (2, 0.5)


def test_time_going_backwards_is_flagged_and_does_not_stop_the_monitor() -> None:
    m = monitor()
    m.update(step(0, time=100.0))
    report = m.update(step(1, time=50.0))
    assert [issue.code for issue in report.issues] == ["time_backwards"]
    assert report["last/full"].status is Status.OK


def test_an_alarm_cools_down_by_step_count_when_time_stands_still() -> None:
    m = monitor(high=AlarmConfig(metric="last/full", threshold=0.8, clear_steps=1, cooldown_s=0.15))
    values = [0.0, 0.9, 0.1, 0.1, 0.1]
    phases = [[a.phase.name for a in m.update(step(n, v, time=7.0)).alarms] for n, v in enumerate(values)]
    assert phases == [[], ["ACTIVE"], ["COOLING_DOWN"], ["COOLING_DOWN"], ["QUIET"]]


def test_after_a_jump_of_the_clock_only_one_step_is_flagged() -> None:
    m = monitor()
    times = [0.0, 0.1, 1e6, 0.3, 0.4, 0.5]
    codes = [[issue.code for issue in m.update(step(n, time=t)).issues] for n, t in enumerate(times)]
    assert codes == [[], [], [], ["time_backwards"], [], []]


def test_an_infinite_time_does_not_poison_the_rest() -> None:
    m = monitor()
    codes = [[issue.code for issue in m.update(step(n, time=t)).issues] for n, t in enumerate([0.0, math.inf, 0.2, 0.3])]
    assert codes == [[], ["time_backwards"], [], []]


def test_an_alarm_that_is_active_at_the_end_of_an_episode_is_told_as_over() -> None:
    m = monitor(high=AlarmConfig(metric="last/full", threshold=0.8))
    m.update(step(0))
    m.update(step(1, 0.9))
    told = m.update(step(0, episode="e2")).alarms
    assert [(a.name, a.phase.name, a.changed) for a in told] == [("high", "QUIET", True)]
    assert m.update(step(1, episode="e2")).alarms == ()


def test_a_duplicate_step_still_carries_the_active_alarms() -> None:
    m = monitor(high=AlarmConfig(metric="last/full", threshold=0.8))
    m.update(step(0))
    m.update(step(1, 0.9))
    again = m.update(step(1, 0.9))
    assert [(a.name, a.phase.name, a.changed) for a in again.alarms] == [("high", "ACTIVE", False)]


def test_a_step_is_not_changed_when_the_policy_uses_its_buffer_again() -> None:
    buffer = np.zeros(7)
    made = PolicyStep(time=0.0, episode_id="e", step=0, action=buffer)
    buffer[:] = 9.0
    assert made.action.max() == 0.0


def test_a_family_that_raises_is_invalid_and_the_others_speak() -> None:
    m = monitor(Broken("broken"), LastAction())
    m.update(step(0))
    report = m.update(step(1))
    assert report["broken/full"] == ("broken/full", None, Status.INVALID, "1")
    assert report["last/full"].status is Status.OK
    assert [issue.code for issue in report.issues] == ["metric_failed"]
    assert m.counters["metric_failed"] == 2


def test_a_step_of_another_type_is_answered_with_failed() -> None:
    m = monitor()
    report = m.update(None)  # type: ignore[arg-type]
    assert report.verdict == "failed"
    assert m.counters["failed"] == 1


def test_while_frozen_steadiness_is_uninformative() -> None:
    m = monitor(LastAction(), Flag())
    m.update(step(0))
    assert m.update(step(1, frozen=1.0))["last/full"].status is Status.UNINFORMATIVE


def test_while_frozen_token_metrics_stay_valid() -> None:
    m = monitor(LastAction("tb", Family.TOKEN), Flag())
    m.update(step(0))
    assert m.update(step(1, frozen=1.0))["tb/full"].status is Status.OK


def test_an_alarm_span_has_first_and_last_active_step() -> None:
    m = monitor(high=AlarmConfig(metric="last/full", threshold=0.8, clear_steps=1, cooldown_s=0))
    for n, value in enumerate([0.0, 0.1, 0.9, 0.9, 0.1]):
        m.update(step(n, value))
    assert [(s.name, s.first_step, s.last_step) for s in m.summary().alarms] == [("high", 2, 3)]


def test_a_new_instruction_restarts_token_and_action_windows_but_not_the_tool() -> None:
    action, tool = LastAction("a"), LastAction("tcp", Family.TOOL)
    m = monitor(action, tool)
    m.update(step(0))
    report = m.update(step(1, instruction="stop"))
    assert report["a/full"].status is Status.WARMING_UP
    assert report["tcp/full"].status is Status.OK


def test_a_new_instruction_restarts_plans_too() -> None:
    m = monitor(LastAction("plan", Family.PLAN))
    m.update(step(0))
    assert m.update(step(1, instruction="stop"))["plan/full"].status is Status.WARMING_UP


def codes(m: Monitor, *instructions: str) -> list[list[str]]:
    return [[issue.code for issue in m.update(step(n, instruction=text)).issues] for n, text in enumerate(instructions)]


def test_an_instruction_that_is_lost_is_told_once() -> None:
    assert codes(monitor(), "go", "", "") == [[], ["instruction_empty", "instruction_changed"], []]


def test_a_blank_instruction_is_told() -> None:
    assert codes(monitor(), "  ", "  ") == [["instruction_empty"], []]


def test_an_episode_that_lacks_the_instruction_is_told() -> None:
    m = monitor()
    m.update(step(0))
    assert [issue.code for issue in m.update(step(0, episode="e2", instruction="")).issues] == ["instruction_empty"]


def test_a_policy_that_never_had_instructions_is_not_asked_for_one() -> None:
    assert codes(monitor(), "", "") == [[], []]


def test_alarms_that_cannot_speak_are_told_once_an_episode() -> None:
    m = monitor(LastAction("tb_entropy", Family.TOKEN), unsure=AlarmConfig(metric="tb_entropy/full", threshold=0.5))
    told = Issue("unavailable", "test emits no action tokens: no statement from alarm unsure")
    assert m.update(step(0)).issues == (told,)
    assert m.update(step(1)).issues == ()
    assert m.update(step(0, episode="e2")).issues == (told,)


def test_reset_ends_the_episode_and_keeps_the_counters() -> None:
    m = monitor()
    m.update(step(0))
    m.reset()
    assert m.summary().steps == 0
    assert m.finished is not None
    assert m.counters["accepted"] == 1


def test_reports_do_not_share_memory_with_the_monitor() -> None:
    m = monitor()
    m.update(step(0))
    report = m.update(step(1, 0.3))
    m.update(step(2, 0.9))
    assert report["last/full"].value == 0.3


def test_two_families_with_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="'last/full' is computed by 2 families"):
        monitor(LastAction(), LastAction())


def test_a_family_that_is_not_installed_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no family 'tokenz' is installed; known: .*tokens"):
        Monitor(SPEC, parse_config({"metrics": ["tokenz"]}, "here"))


def test_two_monitors_share_nothing() -> None:
    one, two = monitor(), monitor()
    one.update(step(0))
    assert two.counters["accepted"] == 0


def test_the_same_steps_give_the_same_bits() -> None:
    rng = np.random.default_rng(7)
    steps = [
        PolicyStep(
            time=n / 10, episode_id="e", step=n, action=rng.normal(size=7), tcp_position=rng.normal(size=3), tcp_quaternion=[1.0, 0, 0, 0]  # type: ignore[arg-type]
        )
        for n in range(40)
    ]  # fmt: skip
    one, two = Monitor(SPEC), Monitor(SPEC)
    for s in steps:
        a, b = one.update(s), two.update(s)
        assert a.values.tobytes() == b.values.tobytes()
        assert a.statuses.tobytes() == b.statuses.tobytes()
        assert a.alarms == b.alarms


def test_non_finite_time_does_not_raise() -> None:
    m = monitor()
    assert m.update(step(0, time=math.nan)).verdict == "accepted"

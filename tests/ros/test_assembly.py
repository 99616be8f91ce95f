"""Observations out of parts: complete, late, missing, delayed, and a clock that jumps back."""

from __future__ import annotations

from monitor.ros.assembly import Assembled, Assembler, Skipped

S = 1_000_000_000


def assembler(cameras: tuple[str, ...] = ("front",)) -> Assembler:
    return Assembler(("tool_pose", "joint_states"), cameras, timeout_s=1.0, grace_s=0.1)


def put_all(a: Assembler, stamp: int, now: float, *, image: int | None = None, without: str = "") -> None:
    for name, at in (("camera/front", stamp if image is None else image), ("joint_states", stamp), ("tool_pose", stamp)):
        if name != without:
            a.put(name, at, f"{name}@{at}", now)


def test_complete_when_all_parts_share_the_stamp_in_any_order() -> None:
    a = assembler()
    a.put("tool_pose", S, "pose", 0.0)
    assert a.ready(0.0) is None
    a.put("camera/front", S, "picture", 0.01)
    assert a.ready(0.01) is None
    a.put("joint_states", S, "joints", 0.02)
    assert a.ready(0.02) == Assembled(S, {"tool_pose": (S, "pose"), "camera/front": (S, "picture"), "joint_states": (S, "joints")})
    assert a.ready(0.03) is None, "a step is given once"


def test_joints_of_the_step_before_do_not_count() -> None:
    a = assembler()
    put_all(a, S, 0.0)
    assert isinstance(a.ready(0.0), Assembled)
    put_all(a, 2 * S, 0.1, without="joint_states")
    assert a.ready(0.1) is None
    a.put("joint_states", 2 * S, "new", 0.12)
    found = a.ready(0.12)
    assert isinstance(found, Assembled)
    assert found.parts["joint_states"] == (2 * S, "new")


def test_a_delayed_camera_keeps_its_stamp_and_costs_no_time() -> None:
    a = assembler()
    for step in range(1, 4):
        put_all(a, step * S, step * 1.0, image=S // 2)
        found = a.ready(step * 1.0)
        assert isinstance(found, Assembled)
        assert found.parts["camera/front"][0] == S // 2


def test_a_picture_that_stays_away_is_replaced_for_a_while_then_missing() -> None:
    a = assembler()
    put_all(a, S, 0.0)
    assert isinstance(a.ready(0.0), Assembled)
    put_all(a, 2 * S, 0.5, without="camera/front")
    assert a.ready(0.55) is None
    found = a.ready(0.61)
    assert isinstance(found, Assembled)
    assert found.parts["camera/front"][0] == S, "its own old stamp is told"
    put_all(a, 3 * S, 1.5, without="camera/front")
    assert a.ready(1.61) == Skipped(3 * S, "missing: camera/front")


def test_a_step_that_is_overtaken_is_told() -> None:
    a = assembler()
    a.put("tool_pose", S, "pose", 0.0)
    assert a.put("tool_pose", 2 * S, "pose", 0.05) == Skipped(S, "missing: joint_states, camera/front")


def test_late_messages_are_counted_and_a_clock_that_jumps_back_starts_anew() -> None:
    a = assembler(())
    put_all(a, 100 * S, 0.0)
    assert isinstance(a.ready(0.0), Assembled)
    put_all(a, 100 * S - S // 2, 0.1)
    assert a.ready(0.1) is None
    assert a.late == 1
    put_all(a, 5 * S, 0.2)
    found = a.ready(0.2)
    assert isinstance(found, Assembled)
    assert found.stamp_ns == 5 * S


def test_timer_takes_what_is_there() -> None:
    a = assembler()
    assert a.latest(S, 0.0) == Skipped(S, "missing: tool_pose, joint_states, camera/front")
    put_all(a, S, 0.0)
    assert isinstance(a.latest(S, 0.9), Assembled)
    assert isinstance(a.latest(S, 1.1), Skipped)


def test_with_the_timer_no_part_is_late_or_pushed_out() -> None:
    a = Assembler(("tool_pose",), (), timeout_s=1.0, grace_s=0.1, timer=True)
    for step in range(5):
        assert a.put("tool_pose", step * S // 20, "pose", step * 0.05) is None
        found = a.latest(step * S // 20 + S // 50, step * 0.05 + 0.02)
        assert isinstance(found, Assembled)
        assert a.put("tool_pose", step * S // 20 + 1, "older than the tick, and used at the next", step * 0.05 + 0.02) is None
    assert a.late == 0
    assert a.ready(9.0) is None


def test_an_episode_event_drops_older_steps_only() -> None:
    a = assembler(())
    a.put("tool_pose", 2 * S, "pose", 0.0)
    a.reset(2 * S)
    a.put("joint_states", 2 * S, "joints", 0.0)
    assert isinstance(a.ready(0.0), Assembled), "its event came after its parts"
    a.put("tool_pose", 3 * S, "pose", 0.1)
    a.reset(4 * S)
    assert a.ready(9.0) is None

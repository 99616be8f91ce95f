"""The node and a robot as two real processes that talk over DDS."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import numpy as np
import pytest
from processes import Pair, listening, until

from monitor.messages import EpisodeEvent, Outcome
from monitor.recording import BagReader
from monitor.recording.replay import compare
from monitor.steps import AlarmPhase


def test_one_episode_is_reported_recorded_and_replayed_bit_for_bit(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair, listening(pair.domain) as heard:
        node = pair.node()
        until(heard.connected, "the node is heard")
        robot = pair.robot({"steps": 40})
        assert robot.ends() == 0, robot.output
        until(lambda: len(heard.reports) == 40 and len(heard.episodes) == 2, "40 reports")
        node.popen.send_signal(signal.SIGTERM)
        assert node.ends() == 0, node.output
    assert (robot.count("steps"), robot.count("no_action"), robot.count("success")) == (40, 0, 1)
    assert [report.step for report in heard.reports] == list(range(40))
    assert {report.verdict for report in heard.reports} == {"accepted"}
    started, ended = heard.episodes
    assert (started.event, started.task, started.seed) == (EpisodeEvent.STARTED, "move", 3)
    assert (ended.event, ended.outcome, ended.steps) == (EpisodeEvent.ENDED, Outcome.SUCCESS, 40)

    bag = BagReader(pair.bag())
    steps, reports = list(bag.steps()), list(bag.reports())
    assert not bag.cut
    assert len(steps) == len(reports) == len(list(bag.images())) == 40
    assert steps[0].goal is not None
    assert steps[0].instruction == "move it"
    np.testing.assert_allclose(np.diff([step.time for step in steps]), 0.05, atol=1e-6)
    for live, kept in zip(heard.reports, reports, strict=True):
        assert live.values.tobytes() == kept.values.tobytes()
        assert live.statuses.tobytes() == kept.statuses.tobytes()
    assert [episode.outcome for episode in bag.episodes()] == [Outcome.UNKNOWN, Outcome.SUCCESS]
    replayed = compare(pair.bag())
    assert replayed.identical, replayed.first
    assert replayed.compared == 40


@pytest.mark.parametrize("release", ["service", "alarm"])
def test_nan_actions_are_held_over_the_node(tmp_path: Path, release: str) -> None:
    faults = {"20": "nan", "21": "nan", "22": "inf"}
    with Pair(tmp_path) as pair, listening(pair.domain) as heard:
        node = pair.node({"faults": faults}, gate__mode="hold", gate__release=release)
        until(heard.connected, "the node is heard")
        robot = pair.robot({"steps": 40})
        assert robot.ends() == 0, robot.output
        until(lambda: len(heard.reports) == 40, "40 reports")
        node.popen.send_signal(signal.SIGTERM)
        assert node.ends() == 0, node.output
    active = [(alarm.step, alarm.state.name) for alarm in heard.alarms if alarm.state.phase is AlarmPhase.ACTIVE]
    assert (20, "invalid_action") in active
    held = [report.step for report in heard.reports if report.held]
    assert set(held) >= {20, 21, 22}
    assert 19 not in held
    assert (39 in held) == (release == "service")
    steps = {step.step: step for step in BagReader(pair.bag()).steps()}
    assert steps[21].action.tolist() == [0, 0, 0, 0, 0, 0, 1], "what was sent"
    assert steps[21].raw_action is not None
    assert np.isnan(steps[21].raw_action).all(), "what the policy wanted"
    replayed = compare(pair.bag())
    assert replayed.identical, replayed.first
    assert robot.count("held") == len(held)
    assert robot.count("not_finite") == 0, "nothing but finite numbers has left the gate"
    assert node.says("action withheld, invalid_action")


def test_kill_of_the_node_leaves_a_readable_bag_and_the_robot_goes_on(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair, listening(pair.domain) as heard:
        node = pair.node()
        until(heard.connected, "the node is heard")
        robot = pair.robot({"steps": 60}, action_timeout_s=0.3)
        until(lambda: len(heard.reports) >= 30, "30 reports")
        node.popen.kill()
        assert robot.ends() == 0, robot.output
    assert robot.says("standing still")
    assert robot.count("steps") == 60
    assert robot.count("no_action") > 0
    bag = BagReader(pair.bag())
    steps = list(bag.steps())
    assert bag.cut
    assert len(steps) >= 10, "at most the last half second is lost"
    result = compare(pair.bag())
    assert result.identical, result.first


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_close_the_bag_in_the_middle_of_an_episode(tmp_path: Path, number: signal.Signals) -> None:
    with Pair(tmp_path) as pair, listening(pair.domain) as heard:
        node = pair.node()
        until(heard.connected, "the node is heard")
        pair.robot({"steps": 150})
        until(lambda: len(heard.reports) >= 10, "10 reports")
        node.popen.send_signal(number)
        assert node.ends() == 0, node.output
    assert (pair.bag() / "metadata.yaml").is_file()
    bag = BagReader(pair.bag())
    last = list(bag.episodes())[-1]
    assert not bag.cut
    assert (last.event, last.outcome) == (EpisodeEvent.ENDED, Outcome.UNKNOWN)
    assert len(list(bag.steps())) == len(list(bag.reports())) >= 10
    assert compare(pair.bag()).identical


def test_a_missing_picture_skips_steps_and_is_told_once_in_a_while(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair, listening(pair.domain) as heard:
        node = pair.node(control__image_timeout_s=0.1)
        until(heard.connected, "the node is heard")
        robot = pair.robot({"steps": 12, "blind": 5}, action_timeout_s=0.3)
        assert robot.ends() == 0, robot.output
        until(lambda: len(heard.reports) >= 5, "5 reports")
        node.popen.send_signal(signal.SIGTERM)
        assert node.ends() == 0
    assert robot.count("no_action") > 0
    assert [report.step for report in heard.reports[:5]] == list(range(5))
    lines = [line for line in node.output.splitlines() if "missing: camera/front" in line]
    assert 1 <= len(lines) <= 2, node.output


def test_a_taken_port_is_told_and_costs_no_step(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        with Pair(tmp_path) as pair, listening(pair.domain) as heard:
            node = pair.node(export__port=holder.getsockname()[1])
            until(heard.connected, "the node is heard")
            robot = pair.robot({"steps": 20})
            assert robot.ends() == 0, robot.output
            until(lambda: len(heard.reports) == 20, "20 reports")
    assert robot.count("no_action") == 0
    assert node.says("page off")


def test_wrong_settings_end_the_node_with_a_line_and_code_2(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        node = pair.node(export__prot=1)
        assert node.ends() == 2
        assert node.says("did you mean 'port'")
        assert "Traceback" not in node.output
        robot = pair.robot(episodes=["dance"])
        assert robot.ends() == 2
        assert robot.says("no task 'dance'; tasks: move, wait")


def test_a_robot_without_monitor_gives_up_with_code_1(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        robot = pair.robot(monitor_timeout_s=0.3)
        assert robot.ends() == 1
        assert robot.says("nobody sends actions")


def test_several_episodes_as_fast_as_possible_lose_nothing(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair, listening(pair.domain) as heard:
        pair.node()
        until(heard.connected, "the node is heard")
        robot = pair.robot({"steps": 25, "delay": 0.2}, episodes=[f"move:{seed}" for seed in range(6)], rate_factor=0.0)
        assert robot.ends() == 0, robot.output
        until(lambda: len(heard.reports) == 150, "150 reports")
    assert (robot.count("steps"), robot.count("no_action"), robot.count("success")) == (150, 0, 6)
    assert [report.step for report in heard.reports] == list(range(25)) * 6
    assert len({report.episode_id for report in heard.reports}) == 6


def test_a_node_that_is_started_again_joins_the_running_episode(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair, listening(pair.domain) as heard:
        first = pair.node()
        until(heard.connected, "the node is heard")
        robot = pair.robot({"steps": 199}, action_timeout_s=0.3)
        until(lambda: len(heard.reports) >= 5, "5 reports")
        first.popen.kill()
        first.ends()
        before = len(heard.reports)
        pair.node()
        until(lambda: len(heard.reports) >= before + 5, "reports of the second node")
        assert robot.popen.poll() is None, "still the same episode"
        assert robot.ends() == 0, robot.output
    assert len({report.episode_id for report in heard.reports}) == 1
    assert len(list(pair.bags.iterdir())) == 2

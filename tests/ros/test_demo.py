"""What `vla-monitor up` starts, for real: the simulated Panda and the bundled policy, over DDS."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from processes import listening, new_domain, until

from monitor.messages import EpisodeEvent
from monitor.recording import BagReader
from monitor.recording.replay import compare
from monitor.ros.plan import make_plan
from monitor.ros.up import Running

WEIGHTS = sorted((Path(__file__).parents[2] / "policies" / "bundled").rglob("*.safetensors"))


@pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="the extra `sim` is not installed")
@pytest.mark.skipif(not WEIGHTS, reason="the bundled policy has no weights in this checkout")
def test_up_runs_the_bundled_policy_in_the_simulator(tmp_path: Path) -> None:
    said: list[str] = []
    domain = new_domain()
    plan = make_plan(
        {"episodes": "pick_up:3,pick_up:4:camera_covered", "rate_factor": "0", "port": "0", "bags": str(tmp_path / "bags"), "gate": "hold"}
    )
    with listening(domain) as heard, Running(plan, say=said.append, environment={"ROS_DOMAIN_ID": str(domain)}) as running:
        codes = running.wait()
        until(lambda: sum(episode.event is EpisodeEvent.ENDED for episode in heard.episodes) == 2, "both ends are heard")
    assert codes == {"vla_monitor": 0, "sim_robot": 0}, said
    assert not any("RTPS" in line for line in said)
    ended = [episode for episode in heard.episodes if episode.event is EpisodeEvent.ENDED]
    (folder,) = (tmp_path / "bags").iterdir()
    bag = BagReader(folder)
    steps = list(bag.steps())
    assert len(steps) == sum(episode.steps for episode in ended)
    assert steps[0].token_logits is not None
    assert len(list(bag.images())) == len(steps) * len(steps[0].image_times)
    replayed = compare(folder)
    assert replayed.identical, replayed.first
    assert replayed.compared == len(steps)

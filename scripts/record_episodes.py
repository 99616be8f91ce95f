"""Record labelled episodes of a policy on a simulated robot, without ROS: one bag for each task and perturbation. Bags that are there are kept.

python scripts/record_episodes.py --seeds 50 --perturbations none,object_moved --out build/detection/bags
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from monitor import Monitor, MonitorConfig, Policy, Robot, load_policy, load_robot
from monitor.messages import EpisodeEvent, EpisodeRecord, Outcome
from monitor.policy import with_image_facts
from monitor.recording import BagFacts, Recorder


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="bundled")
    parser.add_argument("--robot", default="sim")
    parser.add_argument("--tasks", default="", help="comma-separated; default: all of the robot")
    parser.add_argument("--perturbations", default="", help="comma-separated, with `none`; default: none and all of the robot")
    parser.add_argument("--seeds", type=int, default=15, help="episodes of each task and perturbation")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/detection/bags"))
    given = parser.parse_args()
    policy, robot = load_policy(given.policy), load_robot(given.robot)
    tasks = given.tasks.split(",") if given.tasks else robot.tasks
    perturbations = given.perturbations.split(",") if given.perturbations else ("none", *robot.perturbations)
    for task in tasks:
        for perturbation in perturbations:
            folder = given.out / f"{task}_{perturbation}"
            if (folder / "metadata.yaml").is_file():
                continue
            seeds = range(given.first_seed, given.first_seed + given.seeds)
            won = record(policy, robot, task, "" if perturbation == "none" else perturbation, seeds, folder)
            sys.stderr.write(f"{folder}: {won} of {given.seeds} succeeded\n")
    return 0


def record(policy: Policy, robot: Robot, task: str, perturbation: str, seeds: range, folder: Path) -> int:
    """Run and record; returns the number of successes. A bag that was cut short is made anew under a part name first."""
    part = folder.with_name(folder.name + ".part")
    for old in part.glob("*"):
        old.unlink()
    if part.is_dir():
        part.rmdir()
    config = MonitorConfig.model_validate({"recording": {"images": "none"}})
    monitor = Monitor(policy.spec, config)
    recorder = Recorder(part, BagFacts(config=monitor.config, spec=policy.spec))
    recorder.open()
    won = 0
    for seed in seeds:
        name = f"{task}_{seed}_{perturbation or 'none'}"
        observation = robot.reset(task, seed, perturbation=perturbation or None, episode_id=name)
        policy.reset(observation.instruction)
        started = EpisodeRecord(
            event=EpisodeEvent.STARTED,
            time=observation.time,
            episode_id=name,
            task=task,
            instruction=observation.instruction,
            perturbation=perturbation,
            seed=seed,
        )
        recorder.record_episode(started)
        steps = 0
        while not robot.done:
            step = with_image_facts(policy.act(observation), observation)
            recorder.record_step(step)
            recorder.record_report(monitor.update(step))
            observation = robot.step(step.action)
            steps += 1
        won += robot.success
        outcome = Outcome.SUCCESS if robot.success else Outcome.FAILURE
        recorder.record_episode(replace(started, event=EpisodeEvent.ENDED, time=observation.time, outcome=outcome, steps=steps))
    recorder.close(60.0)
    part.rename(folder)
    return won


if __name__ == "__main__":
    sys.exit(main())

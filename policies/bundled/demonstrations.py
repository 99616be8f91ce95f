"""Demonstrations: the scripted expert drives, its actions are disturbed, its clean action is the label (DART).

    python -m policies.bundled.demonstrations --episodes 7000 --work build/bundled

Two processes by default; whole shards are kept, so that a second call goes on where the first stopped.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policies.base import progress
from policies.bundled.dataset import START_SEEDS, TRAINING_SEEDS, WORK, FrameList, save

EPISODES_A_SHARD = 100
SCENES_A_SHARD = 500
STEPS_A_SCENE = 3
KEEP = 0.5
"""Share of the steps that is stored: neighbours look alike, new episodes teach more."""


class Disturbance:
    """Noise on executed actions, drawn anew for each episode: slow drift, pushes that last a few steps, and wrong gripper commands."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._scale = rng.choice([0.0, 0.3, 0.7, 1.0], p=[0.2, 0.3, 0.3, 0.2])
        self._drift = np.zeros(4)
        self._push = np.zeros(4)
        self._push_left = self._flip_left = 0

    def __call__(self, action: NDArray[np.float64]) -> NDArray[np.float64]:
        """The action (7,) as executed."""
        rng, scale = self._rng, self._scale
        self._drift = 0.7 * self._drift + rng.normal(0, (0.007, 0.007, 0.007, 0.03)) * scale
        if self._push_left == 0 and rng.random() < 0.05 * scale:
            self._push_left = int(rng.integers(2, 6))
            self._push = rng.uniform(-1, 1, 4) * (0.035, 0.035, 0.03, 0.1)
        if self._flip_left == 0 and rng.random() < 0.025 * scale:
            self._flip_left = int(rng.integers(2, 5))
        noise = self._drift + (self._push if self._push_left else 0)
        disturbed = action.copy()
        disturbed[:3] += noise[:3]
        disturbed[5] += noise[3]
        if self._flip_left:
            disturbed[6] = 1 - disturbed[6]
        self._push_left, self._flip_left = max(self._push_left - 1, 0), max(self._flip_left - 1, 0)
        return disturbed


def record_shard(path: Path, shard: int) -> int:
    """Record one shard of episodes of all tasks; returns its number of frames."""
    from policies.sim.expert import Expert
    from policies.sim.robot import SimRobot

    robot = SimRobot()
    expert = Expert(robot)
    frames = FrameList()
    for number in range(shard * EPISODES_A_SHARD, (shard + 1) * EPISODES_A_SHARD):
        seed = TRAINING_SEEDS + number
        rng = np.random.default_rng([7, seed])
        disturb = Disturbance(rng)
        observation = robot.reset(robot.tasks[number % len(robot.tasks)], seed)
        while not robot.done:
            label = expert.act()
            if rng.random() < KEEP:
                frames.add(observation, label, seed)
            observation = robot.step(disturb(label))
    robot.close()
    save(path, frames.frames())
    return len(frames)


def record_starts(path: Path, shard: int) -> int:
    """Record the first steps of many scenes, undisturbed; returns the number of frames.

    There the model must listen: later in an attempt the hand is already above the right object, and looking is enough.
    """
    from policies.sim.expert import Expert
    from policies.sim.robot import SimRobot

    robot = SimRobot()
    expert = Expert(robot)
    frames = FrameList()
    for number in range(shard * SCENES_A_SHARD, (shard + 1) * SCENES_A_SHARD):
        seed = START_SEEDS + number
        observation = robot.reset(robot.tasks[number % len(robot.tasks)], seed)
        for _ in range(STEPS_A_SCENE):
            label = expert.act()
            frames.add(observation, label, seed)
            observation = robot.step(label)
    robot.close()
    save(path, frames.frames())
    return len(frames)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=7000, help=f"rounded up to {EPISODES_A_SHARD}")
    parser.add_argument("--scenes", type=int, default=10000, help=f"scenes whose first steps only are recorded; rounded up to {SCENES_A_SHARD}")
    parser.add_argument("--work", type=Path, default=WORK, help="folder for the shards")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    episodes = {i: args.work / "demonstrations" / f"{i:04d}.npz" for i in range(-(-args.episodes // EPISODES_A_SHARD))}
    scenes = {i: args.work / "starts" / f"{i:04d}.npz" for i in range(-(-args.scenes // SCENES_A_SHARD))}
    with ProcessPoolExecutor(args.processes) as pool:
        jobs = [pool.submit(record_shard, path, i) for i, path in episodes.items() if not path.exists()]
        jobs += [pool.submit(record_starts, path, i) for i, path in scenes.items() if not path.exists()]
        for job in progress(as_completed(jobs), len(jobs), "shards"):
            job.result()
    sys.stdout.write(f"{len(episodes)} + {len(scenes)} shards in {args.work}\n")


if __name__ == "__main__":
    main()

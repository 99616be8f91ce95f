"""Corrections (DAgger): the policy drives, the expert says at each step what it would have done.

    python -m policies.bundled.corrections --checkpoint build/bundled/first --episodes 1600

Two processes by default; whole shards are kept. Train on with `policies.bundled.train --start build/bundled/first`.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from policies.base import progress
from policies.bundled.dataset import CORRECTION_SEEDS, WORK, FrameList, save

EPISODES_A_SHARD = 100
KEEP = 0.5


def record_shard(path: Path, shard: int, checkpoint: Path) -> tuple[int, int]:
    """Record one shard of all tasks; returns the number of frames and of successes."""
    from monitor.policy import Observation
    from monitor.steps import PolicyStep
    from policies.bundled import load
    from policies.bundled.rollouts import Job, run
    from policies.sim.expert import Expert
    from policies.sim.robot import SimRobot

    frames = FrameList()
    rng = np.random.default_rng([9, shard])

    def correct(robot: SimRobot, seen: Observation, step: PolicyStep, job: Job) -> None:
        if rng.random() < KEEP:
            frames.add(seen, Expert(robot).act(), job.seed)

    numbers = range(shard * EPISODES_A_SHARD, (shard + 1) * EPISODES_A_SHARD)
    jobs = [Job(SimRobot.tasks[n % len(SimRobot.tasks)], CORRECTION_SEEDS + n) for n in numbers]
    outcomes = list(run(load(checkpoint, check_images=False), jobs, before_step=correct))
    save(path, frames.frames())
    return len(frames), sum(outcome.success for outcome in outcomes)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True, help="the policy that drives")
    parser.add_argument("--episodes", type=int, default=1600, help=f"rounded up to {EPISODES_A_SHARD}")
    parser.add_argument("--first", type=int, default=0, help="number of the first shard; go on from here in a second round")
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    shards = range(args.first, args.first - (-args.episodes // EPISODES_A_SHARD))
    paths = {i: args.work / "corrections" / f"{i:04d}.npz" for i in shards}
    missing = {i: path for i, path in paths.items() if not path.exists()}
    with ProcessPoolExecutor(args.processes) as pool:
        jobs = [pool.submit(record_shard, path, i, args.checkpoint) for i, path in missing.items()]
        won = sum(job.result()[1] for job in progress(as_completed(jobs), len(jobs), "shards"))
    sys.stdout.write(
        f"{len(paths)} shards in {args.work / 'corrections'}; the policy succeeded in {won} of {len(missing) * EPISODES_A_SHARD} new attempts\n"
    )


if __name__ == "__main__":
    main()

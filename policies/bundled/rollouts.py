"""Many attempts at once: robots step in turn, the policy answers for all of them in one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from monitor.policy import Observation
from monitor.steps import PolicyStep
from policies.hf_tokens import HFTokenPolicy
from policies.sim.robot import SimRobot


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt: task, seed, and what is disturbed (None for nothing)."""

    task: str
    seed: int
    perturbation: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended; `steps` is its length."""

    job: Job
    success: bool
    steps: int


Hook = Callable[[SimRobot, Observation, PolicyStep, Job], None]


def run(policy: HFTokenPolicy, jobs: Iterable[Job], *, slots: int = 24, before_step: Hook | None = None) -> Iterator[Outcome]:
    """Run the jobs, `slots` at a time, and give each outcome as it comes.

    Args:
        policy: who acts.
        jobs: the attempts.
        slots: robots at work at the same time.
        before_step: called with the robot, what it observed and the policy's answer, before the action is executed.
    """
    waiting = iter(jobs)
    robots = [SimRobot() for _ in range(slots)]
    running: list[tuple[SimRobot, Job, Observation]] = []
    try:
        while True:
            while robots and (job := next(waiting, None)) is not None:
                robot = robots.pop()
                running.append((robot, job, robot.reset(job.task, job.seed, perturbation=job.perturbation)))
            if not running:
                return
            steps = policy.act_batch([observation for _, _, observation in running])
            still = []
            for (robot, job, observation), step in zip(running, steps, strict=True):
                if before_step is not None:
                    before_step(robot, observation, step, job)
                seen = robot.step(step.action)
                if robot.done:
                    yield Outcome(job, robot.success, seen.step)
                    robots.append(robot)
                else:
                    still.append((robot, job, seen))
            running = still
    finally:
        for robot in [*robots, *(robot for robot, _, _ in running)]:
            robot.close()

"""Measure the scripted expert and the simulator's cost: `python -m policies.sim.measure --seeds 100`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from policies.sim.control import ACTION_HIGH
from policies.sim.expert import Expert
from policies.sim.perturbations import PERTURBATIONS
from policies.sim.robot import SimRobot
from policies.sim.tasks import TASKS


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The expert on one task. `steps` and `longest` count control steps of successful attempts; `failed` lists the other seeds."""

    task: str
    attempts: int
    success: float
    steps: float
    longest: int
    failed: list[int]


def measure_expert(
    task: str, seeds: int, *, perturbation: str | None = None, noise: float = 0.0, tick: Callable[[], None] = lambda: None
) -> TaskResult:
    """Run the expert on seeds 0 to `seeds` - 1, nothing drawn.

    `noise` is the standard deviation of what is added to the executed motion, as a share of the action limits; `tick` is called after each attempt.
    """
    robot = SimRobot(render=False)
    expert = Expert(robot)
    lengths: list[int] = []
    failed: list[int] = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        observation = robot.reset(task, seed, perturbation=perturbation)
        while not robot.done:
            action = expert.act()
            action[:6] += noise * ACTION_HIGH[:6] * rng.standard_normal(6)
            observation = robot.step(action)
        if robot.success:
            lengths.append(observation.step)
        else:
            failed.append(seed)
        tick()
    mean, longest = (float(np.mean(lengths)), max(lengths)) if lengths else (0.0, 0)
    return TaskResult(task=task, attempts=seeds, success=len(lengths) / seeds, steps=mean, longest=longest, failed=failed)


def measure_cost(steps: int = 200) -> dict[str, float]:
    """Milliseconds of one 96x96 picture and of one control step without pictures (medians, the expert's thinking left out)."""
    blind, seeing = SimRobot(render=False, max_steps=steps), SimRobot(cameras=("front", "wrist"), max_steps=steps)
    action = np.array([0.0, 0, -0.001, 0, 0, 0, 1])
    spent: list[list[float]] = []
    for robot in (blind, seeing):
        robot.reset("put_in", 0)
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            robot.step(action)
            times.append(time.perf_counter() - start)
        spent.append(times)
        robot.close()
    physics = 1e3 * float(np.median(spent[0]))
    return {"step_ms": physics, "picture_ms": (1e3 * float(np.median(spent[1])) - physics) / 2}


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: a table, or one JSON object with --json."""
    parser = argparse.ArgumentParser(prog="python -m policies.sim.measure", description="Success of the scripted expert and cost of the simulator.")
    parser.add_argument("--seeds", type=int, default=100, help="attempts per task (100)")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--perturbation", choices=PERTURBATIONS)
    parser.add_argument("--noise", type=float, default=0.0, help="noise on the executed motion, share of the action limits (0)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error(f"--seeds {options.seeds}: at least one attempt is needed")
    results = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("attempts", total=options.seeds * len(options.tasks))
        for task in options.tasks:
            results.append(
                measure_expert(task, options.seeds, perturbation=options.perturbation, noise=options.noise, tick=lambda: progress.advance(bar))
            )
    cost = measure_cost()
    if options.json:
        sys.stdout.write(json.dumps({"expert": [asdict(result) for result in results], "cost": cost}, indent=1) + "\n")
        return
    table = Table("task", "attempts", "success", "steps (mean)", "steps (most)", "failed seeds")
    for result in results:
        shown = [str(seed) for seed in result.failed[:8]]
        failed = ", ".join(shown + ["..."] * (len(result.failed) > 8)) or "-"
        table.add_row(result.task, str(result.attempts), f"{result.success:.0%}", f"{result.steps:.1f}", str(result.longest), failed)
    console = Console()
    console.print(table)
    console.print(f"one control step {cost['step_ms']:.2f} ms, one 96x96 picture {cost['picture_ms']:.2f} ms")


if __name__ == "__main__":
    main()

"""Success of a checkpoint in the simulator, per task and perturbation.

    python -m policies.bundled.evaluate --seeds 100 --out build/bundled/evaluation.jsonl
    python -m policies.bundled.evaluate --seeds 100 --json

Seeds run from `--first-seed` (0); training never uses a seed below 1,000,000. Outcomes are appended to the file as they come: a second call with
the same file and weights runs only what is missing. Exit code 0, or 2 for bad usage.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from policies.base import progress
from policies.bundled import WEIGHTS
from policies.bundled.dataset import TRAINING_SEEDS, WORK

TASKS = ("pick_up", "move_near", "put_on", "put_in")
UNDISTURBED = "none"
Row = dict[str, Any]


def wilson(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """95 % Wilson interval of a share."""
    if trials == 0:
        return 0.0, 1.0
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)


def summarise(rows: Iterable[Row]) -> list[Row]:
    """One row for each perturbation and task, and one for all tasks together: n, successes, share, interval, mean steps of successes."""
    cells: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        cells[row["perturbation"], row["task"]].append(row)
        cells[row["perturbation"], "all"].append(row)
    summary = []
    for (perturbation, task), found in cells.items():
        won = [row for row in found if row["success"]]
        low, high = wilson(len(won), len(found))
        steps = sum(row["steps"] for row in won) / len(won) if won else None
        cell = {"perturbation": perturbation, "task": task, "n": len(found), "successes": len(won), "share": len(won) / len(found)}
        summary.append(cell | {"low": round(low, 4), "high": round(high, 4), "steps": None if steps is None else round(steps, 1)})
    return summary


def table(summary: Sequence[Row]) -> str:
    """Markdown: a line for each perturbation, a column for each task; share in percent and its 95 % interval."""
    cells = {(row["perturbation"], row["task"]): row for row in summary}
    lines = ["| perturbation | n per task | " + " | ".join((*TASKS, "all")) + " |", "|---|---|" + "---|" * (len(TASKS) + 1)]
    for perturbation in dict.fromkeys(row["perturbation"] for row in summary):
        found = [cells.get((perturbation, task)) for task in (*TASKS, "all")]
        counts = {row["n"] for row in found[:-1] if row}
        shown = [f"{100 * row['share']:.0f} ({100 * row['low']:.0f} to {100 * row['high']:.0f})" if row else "" for row in found]
        lines.append(f"| {perturbation} | {'-'.join(map(str, sorted(counts)))} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _run(checkpoint: Path, jobs: list[tuple[str, int, str]]) -> list[Row]:
    """Run some attempts in one process."""
    from policies.bundled import load
    from policies.bundled.rollouts import Job, run

    attempts = [Job(task, seed, None if wrong == UNDISTURBED else wrong) for task, seed, wrong in jobs]
    outcomes = run(load(checkpoint, check_images=False), attempts)
    return [
        {"task": o.job.task, "seed": o.job.seed, "perturbation": o.job.perturbation or UNDISTURBED, "success": o.success, "steps": o.steps}
        for o in outcomes
    ]


def evaluate(checkpoint: Path, jobs: Sequence[tuple[str, int, str]], out: Path, processes: int = 2, chunk: int = 100) -> list[Row]:
    """Run what is missing in `out` (JSON lines) for these weights and give the rows of all jobs."""
    weights = hashlib.sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest()[:12]
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    known = {(row["task"], row["seed"], row["perturbation"]): row for row in rows if row["weights"] == weights}
    missing = [job for job in jobs if job not in known]
    out.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(processes) as pool, out.open("a") as file:
        parts = [pool.submit(_run, checkpoint, missing[i : i + chunk]) for i in range(0, len(missing), chunk)]
        for part in progress(as_completed(parts), len(parts), f"{len(missing)} attempts"):
            for row in part.result():
                known[row["task"], row["seed"], row["perturbation"]] = row
                file.write(json.dumps(row | {"weights": weights}) + "\n")
            file.flush()
    return [known[job] for job in jobs]


def main() -> None:
    """Command line."""
    from policies.sim.perturbations import PERTURBATIONS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=WEIGHTS)
    parser.add_argument("--seeds", type=int, default=100, help="attempts for each task and perturbation")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--perturbations", nargs="*", choices=(UNDISTURBED, *PERTURBATIONS), default=[UNDISTURBED, *PERTURBATIONS])
    parser.add_argument("--out", type=Path, default=WORK / "evaluation.jsonl", help="outcomes, one a line")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    args = parser.parse_args()
    if args.first_seed < 0 or args.first_seed + args.seeds > TRAINING_SEEDS:
        parser.error(
            f"seeds {args.first_seed} to {args.first_seed + args.seeds - 1} do not all lie below {TRAINING_SEEDS}, where the training seeds begin"
        )
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    jobs = [(task, seed, wrong) for wrong in args.perturbations for task in args.tasks for seed in seeds]
    summary = summarise(evaluate(args.checkpoint, jobs, args.out, args.processes))
    sys.stdout.write((json.dumps(summary, indent=2) if args.json else table(summary)) + "\n")


if __name__ == "__main__":
    main()

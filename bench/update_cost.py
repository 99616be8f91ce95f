"""What one call of Monitor.update costs, and the same numbers in plain numpy, interleaved in one run.

The claim: p50 at most 60 us for 7 x 256 float32 logits, full pose and single actions, and at least five times faster than numpy. The numpy side
computes the metrics only; the monitor also keeps statuses, aggregates and alarms.

    python bench/update_cost.py [--steps 5000] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.config import MonitorConfig
from monitor.engine import Monitor
from monitor.policy import PolicySpec
from monitor.steps import PolicyStep, StepReport

WINDOW = 8
LOW, HIGH = np.full(7, -1.0), np.full(7, 1.0)
Float = NDArray[np.float64]


def make_steps(count: int) -> list[PolicyStep]:
    """A smooth random walk with confident and unsure tokens."""
    rng = np.random.default_rng(0)
    position, turn = np.zeros(3), np.cumsum(rng.normal(0, 0.02, (count, 3)), axis=0)
    steps = []
    for i in range(count):
        position = position + rng.normal(0, 0.005, 3)
        quaternion = np.array([1.0, *turn[i] / 2])
        steps.append(
            PolicyStep(
                time=0.1 * i,
                episode_id="bench",
                step=i,
                instruction="pick up the cube",
                action=rng.normal(0, 0.2, 7),
                inference_id=i,
                token_logits=rng.normal(0, 3, (7, 256)),
                token_ids=rng.integers(31744, 32000, 7),
                tcp_position=position,
                tcp_quaternion=quaternion / np.linalg.norm(quaternion),
                gripper=float(rng.random()),
            )
        )
    return steps


class PlainNumpy:
    """The same metrics by their formulas, one numpy expression each."""

    def __init__(self) -> None:
        self.actions: list[Float] = []
        self.positions: list[Float] = []
        self.quaternions: list[Float] = []
        self.openings: list[float] = []
        self.entropies: list[Float] = []

    def update(self, step: PolicyStep) -> dict[str, Any]:
        """Take one step."""
        for kept, new in (
            (self.actions, step.action),
            (self.positions, step.tcp_position),
            (self.quaternions, step.tcp_quaternion),
            (self.openings, step.gripper),
        ):
            kept.append(new)  # type: ignore[arg-type]
            del kept[: -WINDOW - 3]
        return {**self._tokens(step), **self._actions(), **self._tool(), **self._motion(), **self._validity(step)}

    def _tokens(self, step: PolicyStep) -> dict[str, Any]:
        assert step.token_logits is not None
        assert step.token_ids is not None
        z = step.token_logits.astype(np.float64)
        valid = ~(np.isnan(z).any(axis=1) | np.isposinf(z).any(axis=1)) & np.isfinite(z).any(axis=1)
        valid &= (step.token_ids >= 31744) & (step.token_ids < 32000)
        e = np.exp(z - z.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
        k = p.shape[1]
        top = np.partition(p, -2, axis=1)[:, -2:]
        log_p = np.log(p, out=np.zeros_like(p), where=p > 0)
        scores = np.array(
            [
                -(p * log_p).sum(axis=1) / np.log(k),
                (1 - top[:, 1]) * k / (k - 1),
                1 - (top[:, 1] - top[:, 0]),
                (1 - (p**2).sum(axis=1)) * k / (k - 1),
            ]
        )
        self.entropies.append(scores[:, valid].mean(axis=1))
        del self.entropies[:-WINDOW]
        parts = [scores[:, part][:, valid[part]].mean(axis=1) for part in (slice(0, 3), slice(3, 6), slice(6, 7))]
        return {"mean": self.entropies[-1], "max": scores[:, valid].max(axis=1), "parts": parts, "window": np.mean(self.entropies, axis=0)}

    def _actions(self) -> dict[str, Any]:
        if len(self.actions) < WINDOW:
            return {}
        n = np.clip((np.array(self.actions[-WINDOW:]) - LOW) / (HIGH - LOW), 0, 1)
        found = {}
        for order in (1, 2, 3):
            by_dim = np.abs(np.diff(n, n=order, axis=0)[-(WINDOW - 3) :]).mean(axis=0) / 2 ** (order - 1)
            found[f"a{order}"] = (by_dim.mean(), by_dim[:3].mean(), by_dim[3:6].mean(), by_dim[6], by_dim[:6].mean())
        return found

    def _turns(self) -> Float:
        q = np.array(self.quaternions[-WINDOW:])
        a, b = q[:-1] * [1, -1, -1, -1], q[1:]
        w = b[:, 0] * a[:, 0] - (b[:, 1:] * a[:, 1:]).sum(axis=1)
        v = b[:, :1] * a[:, 1:] + a[:, :1] * b[:, 1:] + np.cross(b[:, 1:], a[:, 1:])
        v, w = np.where(w[:, None] < 0, -v, v), np.abs(w)
        s = np.linalg.norm(v, axis=1)
        return np.asarray(v * (2 * np.arctan2(s, w) / np.maximum(s, 1e-12))[:, None])

    def _tool(self) -> dict[str, Any]:
        if len(self.positions) < WINDOW:
            return {}
        r, turns = np.array(self.positions), self._turns()
        found: dict[str, Any] = {}
        for order in (1, 2, 3):
            p = np.abs(np.diff(r, n=order, axis=0)[-(WINDOW - 3) :]).mean() / 2 ** (order - 1)
            o = np.abs(np.diff(turns, n=order - 1, axis=0)[-(WINDOW - 3) :]).mean() / 2 ** (order - 1)
            found[f"t{order}"] = (p, o, (p + o) / 2)
        jerk = (r[6:] - 3 * r[4:-2] + 3 * r[2:-4] - r[:-6]) / (8 * 0.1**3)
        found["ti"] = np.sqrt((np.linalg.norm(jerk, axis=1) ** 2).mean())
        return found

    def _motion(self) -> dict[str, Any]:
        if len(self.positions) < WINDOW:
            return {}
        path = np.linalg.norm(np.diff(np.array(self.positions[-WINDOW:]), axis=0), axis=1).sum()
        rotation = np.linalg.norm(self._turns(), axis=1).sum()
        commanded = np.linalg.norm(np.array(self.actions[-WINDOW:])[:-1, :3], axis=1).sum()
        still = path < 0.002 and rotation < 0.01 and np.ptp(self.openings[-WINDOW:]) < 0.05
        return {"frozen": still, "blocked": path < 0.002 and commanded > 0.01, "path": path, "rotation": rotation}

    def _validity(self, step: PolicyStep) -> dict[str, Any]:
        assert step.token_logits is not None
        bad = np.isnan(step.token_logits).any(axis=1) | np.isposinf(step.token_logits).any(axis=1) | ~np.isfinite(step.token_logits).any(axis=1)
        return {"action": (~np.isfinite(step.action)).sum(), "logits": bad.sum()}


def measure(count: int) -> dict[str, float]:
    """Feed both with the same steps, one after the other; microseconds and the ratio of the medians."""
    spec = PolicySpec(
        name="bench", action_low=tuple(LOW), action_high=tuple(HIGH), token_kind="per_dimension", token_support=(31744, 32000), vocab_size=32064
    )
    monitor, plain = Monitor(spec, MonitorConfig(window=WINDOW)), PlainNumpy()
    cost = np.empty((2, count))
    steps = make_steps(count)
    for i, step in enumerate(steps):
        for row, update in enumerate((monitor.update, plain.update)):
            start = time.perf_counter_ns()
            update(step)
            cost[row, i] = (time.perf_counter_ns() - start) / 1000
    _compare(monitor.update(replace(steps[-1], step=count)), plain.update(steps[-1]))
    cost = cost[:, min(200, count // 2) :]
    (p50, p99), (plain_p50, plain_p99) = np.percentile(cost, [50, 99], axis=1).T
    return {"p50_us": p50, "p99_us": p99, "numpy_p50_us": plain_p50, "numpy_p99_us": plain_p99, "ratio": plain_p50 / p50}


def _compare(report: StepReport, plain: dict[str, Any]) -> None:
    """Both sides must have done the same work."""
    for keys, expected in (
        (("tb_entropy/full", "tb_max_prob/full", "tb_pcs/full", "tb_deepgini/full"), plain["mean"]),
        (("a_ai/full", "a_ai/p", "a_ai/o", "a_ai/gripper", "a_ai/no_gripper"), plain["a3"]),
        (("tcp_ai/p", "tcp_ai/o", "tcp_ai/full"), plain["t3"]),
        (("ti/full", "frozen/path", "frozen/rotation"), (plain["ti"], plain["path"], plain["rotation"])),
    ):
        np.testing.assert_allclose([report[key].value for key in keys], expected, rtol=1e-6, err_msg=str(keys))


def main() -> None:
    """Print the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    arguments = parser.parse_args()
    found = {name: round(float(value), 2) for name, value in measure(arguments.steps).items()}
    if arguments.json:
        json.dump({"schema": "update_cost", "schema_version": 1, "steps": arguments.steps, **found}, sys.stdout)
        sys.stdout.write("\n")
        return
    print(f"Monitor.update  p50 {found['p50_us']:7.1f} us   p99 {found['p99_us']:7.1f} us   (target: p50 at most 60)")
    print(f"plain numpy     p50 {found['numpy_p50_us']:7.1f} us   p99 {found['numpy_p99_us']:7.1f} us")
    print(f"ratio           {found['ratio']:.1f}   (target: at least 5)")


if __name__ == "__main__":
    main()

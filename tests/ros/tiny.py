"""A policy and a robot small enough for tests of the ROS side."""

from __future__ import annotations

import sys
import time

import numpy as np

from monitor.policy import Observation, PolicySpec
from monitor.steps import Goal, PolicyStep

SUPPORT = (100, 116)


class TinyPolicy:
    """Moves a little, emits seven rows of logits. `faults` maps step -> "nan", "inf", "raise", "short"."""

    def __init__(self, faults: dict[int, str] | None = None, cameras: tuple[str, ...] = ("front",), seconds: float = 0.0) -> None:
        self.faults = faults or {}
        self.seconds = seconds
        self.bad_resets = 0
        self.seen: list[Observation] = []
        self.resets: list[str] = []
        limits = (1.0,) * 7
        self.spec = PolicySpec(
            name="tiny",
            action_low=tuple(-x for x in limits),
            action_high=limits,
            token_kind="per_dimension",
            token_support=SUPPORT,
            vocab_size=200,
            control_hz=20.0,
            cameras=cameras,
        )

    def reset(self, instruction: str) -> None:
        self.resets.append(instruction)
        if self.bad_resets > 0:
            self.bad_resets -= 1
            raise RuntimeError("the reset broke")

    def act(self, observation: Observation) -> PolicyStep:
        self.seen.append(observation)
        time.sleep(self.seconds)
        fault = self.faults.get(observation.step, "")
        if fault == "raise":
            raise RuntimeError("the policy broke")
        rng = np.random.default_rng(observation.step)
        action = 0.01 * rng.standard_normal(7)
        action[6] = 1.0
        if fault == "nan":
            action[:] = np.nan
        elif fault == "inf":
            action[0] = np.inf
        elif fault == "short":
            action = action[:3]
        return PolicyStep(
            time=observation.time,
            episode_id=observation.episode_id,
            step=observation.step,
            instruction=observation.instruction,
            action=action,
            token_logits=rng.standard_normal((7, SUPPORT[1] - SUPPORT[0])).astype(np.float32),
            token_ids=np.full(7, SUPPORT[0] + 1),
            tcp_position=observation.tcp_position,
            tcp_quaternion=observation.tcp_quaternion,
            joints=observation.joints,
            gripper=observation.gripper,
            goal=observation.goal,
            image_times=dict(observation.image_times),
            inference_seconds=self.seconds,
        )


class TinyRobot:
    """Adds actions up. Succeeds after `steps` steps; pictures are `delay` s old and end at step `blind`."""

    tasks = ("move", "wait")
    perturbations = ("none_really",)
    control_hz = 20.0
    max_steps = 200

    def __init__(self, steps: int = 30, delay: float = 0.0, blind: int = 10**6) -> None:
        self.steps, self.delay, self.blind = steps, delay, blind
        self.actions: list[np.ndarray] = []

    def reset(self, task: str, seed: int, *, perturbation: str | None = None, episode_id: str | None = None) -> Observation:
        self.actions = []
        self.position = np.array([0.4, 0.0, 0.1 + 0.001 * seed])
        self.episode = episode_id or "e"
        self.task = task
        return self._observe()

    def step(self, action: np.ndarray) -> Observation:
        self.actions.append(action)
        self.position = self.position + 0.1 * action[:3]
        return self._observe()

    @property
    def success(self) -> bool:
        return len(self.actions) >= self.steps

    @property
    def done(self) -> bool:
        return self.success or len(self.actions) >= self.max_steps

    def close(self) -> None: ...

    def _observe(self) -> Observation:
        now = len(self.actions) / self.control_hz
        return Observation(
            time=now,
            episode_id=self.episode,
            step=len(self.actions),
            instruction=f"{self.task} it",
            images={} if len(self.actions) >= self.blind else {"front": np.full((16, 24, 3), len(self.actions) % 256, np.uint8)},
            image_times={"front": now - self.delay},
            tcp_position=self.position,
            tcp_quaternion=np.array([1.0, 0, 0, 0]),
            joints=np.linspace(0, 1, 7),
            gripper=0.5,
            goal=Goal(task=self.task, object_position=np.array([0.5, 0.1, 0.02])),
        )


def main() -> int:
    """`tiny.py node|robot JSON ROS-ARGS`: the node with the tiny policy, or the tiny robot, as a process."""
    import json

    kind, options, arguments = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
    if kind == "node":
        from monitor.ros.node import run

        options["faults"] = {int(step): fault for step, fault in options.get("faults", {}).items()}
        return run(TinyPolicy(**options), [sys.argv[0], *arguments])
    from monitor.ros.sim_robot import run as run_robot

    return run_robot(TinyRobot(**options), [sys.argv[0], *arguments])


if __name__ == "__main__":
    sys.exit(main())

"""SimRobot: a Panda in MuJoCo that runs task attempts, as `monitor.policy.Robot` asks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.policy import Observation
from monitor.steps import Goal
from policies.sim.control import CONTROL_HZ, Arm, checked_action
from policies.sim.perturbations import PERTURBATIONS, WEAK_FORCE, Perturbation, draw
from policies.sim.scene import FINGER_TRAVEL, GRIPPER_FORCE, HALF, SMALL, THINGS, build_model, parking_place
from policies.sim.tasks import FRAMES, TASKS, WORKSPACE_HIGH, WORKSPACE_LOW, Facts, Scene, instruction, rule_holds, sample_scene

Float = NDArray[np.float64]
CAMERAS = ("front", "wrist")
Pictures = dict[str, NDArray[np.uint8]]

_DRAWING_OFF = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_SKYBOX, mujoco.mjtRndFlag.mjRND_HAZE)


class SimRobot:
    """A Panda at a table. Deterministic: task, seed, perturbation and actions decide every state.

    Args:
        image_size: side of the square pictures, pixels.
        cameras: which of `front` and `wrist` to draw.
        render: False draws nothing; observations then have no images.
        max_steps: control steps after which an attempt is over.
    """

    tasks: tuple[str, ...] = TASKS
    perturbations: tuple[str, ...] = PERTURBATIONS
    control_hz: float = CONTROL_HZ

    def __init__(self, *, image_size: int = 96, cameras: Sequence[str] = CAMERAS, render: bool = True, max_steps: int = 80) -> None:
        unknown = set(cameras) - set(CAMERAS)
        if unknown:
            raise ValueError(f"unknown cameras {sorted(unknown)}; cameras: {', '.join(CAMERAS)}")
        self.max_steps = max_steps
        self._cameras = tuple(cameras) if render else ()
        self._size = image_size
        self._model = build_model(image_size)
        self._data = mujoco.MjData(self._model)
        self._renderer: mujoco.Renderer | None = None
        self.arm = Arm(self._model, self._data)
        self._fingers = tuple(self._model.geom(f"{side}_finger").id for side in ("left", "right"))
        self._lamp = self._model.light_diffuse.copy()
        self._head = (self._model.vis.headlight.ambient.copy(), self._model.vis.headlight.diffuse.copy())
        self._friction = self._model.geom_friction.copy()
        self._scene: Scene | None = None
        self._perturbation: Perturbation | None = None
        self._history: deque[tuple[float, Pictures]] = deque(maxlen=8)
        self._frozen: tuple[float, Pictures] | None = None
        self._step = self._streak = 0
        self._success = False
        self._episode = self._instruction = ""

    @property
    def scene(self) -> Scene:
        """What was drawn for the current attempt.

        Raises:
            RuntimeError: there is no attempt yet.
        """
        if self._scene is None:
            raise RuntimeError("no attempt is running: call reset(task, seed) first")
        return self._scene

    @property
    def perturbation(self) -> Perturbation | None:
        """The current attempt's perturbation with its drawn numbers."""
        return self._perturbation

    @property
    def success(self) -> bool:
        """True once the task's success rule has held."""
        return self._success

    @property
    def done(self) -> bool:
        """True on success or when `max_steps` have passed."""
        return self._success or self._step >= self.max_steps

    def reset(self, task: str, seed: int, *, perturbation: str | None = None, episode_id: str | None = None) -> Observation:
        """Start an attempt; the same task, seed and perturbation give the same scene.

        Raises:
            ValueError: task or perturbation is unknown.
        """
        self._perturbation = None if perturbation is None else draw(perturbation, seed)
        scene = sample_scene(task, seed, least_distractors=1 if perturbation == "wrong_instruction" else 0)
        self._scene = scene
        self._episode = episode_id or "-".join([task, str(seed), *([perturbation] if perturbation else [])])
        self._instruction = self._worded(scene)
        self._step = self._streak = 0
        self._success = False
        self._history.clear()
        self._frozen = None
        self._set_light((1.0, 1.0, 1.0))
        self._set_grip(1.0, 1.0)
        mujoco.mj_resetData(self._model, self._data)
        self._lay_out(scene)
        self.arm.place(np.array(scene.start_position), scene.start_yaw)
        mujoco.mj_forward(self._model, self._data)
        self._perturb()
        return self._observe()

    def step(self, action: ArrayLike) -> Observation:
        """Apply one action (7,) for one control period of 0.1 s and observe.

        Raises:
            ValueError: the action has not seven finite numbers.
            RuntimeError: there is no attempt yet.
        """
        scene = self.scene
        self.arm.apply(checked_action(action))
        self._step += 1
        self._perturb()
        self._streak = self._streak + 1 if rule_holds(scene.task, self.facts()) else 0
        self._success = self._success or self._streak >= FRAMES[scene.task]
        return self._observe()

    def facts(self) -> Facts:
        """Ground truth of the current state."""
        scene, data = self.scene, self._data
        body = THINGS[scene.object].body
        geom = self._model.geom(body).id
        pairs = data.contact.geom
        partners = set(pairs[pairs[:, 0] == geom, 1].tolist()) | set(pairs[pairs[:, 1] == geom, 0].tolist())
        touching = [finger in partners for finger in self._fingers]
        start = self._model.joint(body).dofadr[0]
        return Facts(
            object_position=data.body(body).xpos.copy(),
            object_rotation=data.body(body).xmat.reshape(3, 3).copy(),
            object_speed=float(np.linalg.norm(data.qvel[start : start + 3])),
            target_position=None if scene.target is None else data.body(THINGS[scene.target].body).xpos.copy(),
            touching_target=scene.target is not None and self._model.geom(THINGS[scene.target].body).id in partners,
            touching_fingers=any(touching),
            grasped=all(touching),
        )

    def positions(self) -> dict[str, Float]:
        """(3,) m of every thing in the scene, by name."""
        return {name: self._data.body(THINGS[name].body).xpos.copy() for name in self.scene.places}

    def gripper_opening(self) -> float:
        """Measured opening, 0 closed to 1 open."""
        return float(np.clip(self._data.qpos[7:9].mean() / FINGER_TRAVEL, 0, 1))

    def state(self) -> Float:
        """The whole physical state (positions, then velocities), for comparisons."""
        return np.concatenate([self._data.qpos, self._data.qvel])

    def close(self) -> None:
        """Free the drawing context."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _worded(self, scene: Scene) -> str:
        wrong = self._perturbation
        if wrong is None or wrong.name != "wrong_instruction":
            return scene.instruction
        other = scene.distractors[int(wrong.choice * len(scene.distractors))]
        return instruction(scene.task, other, scene.target)

    def _lay_out(self, scene: Scene) -> None:
        for i, thing in enumerate(THINGS.values()):
            used = thing.name in scene.places
            x, y, yaw = scene.places[thing.name] if used else (0.0, 0.0, 0.0)
            small = thing in SMALL
            position = (x, y, HALF if small else 0.0) if used else parking_place(i)
            pose = np.array([*position, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)])
            body = self._model.body(thing.body)
            if small:
                start = self._model.joint(thing.body).qposadr[0]
                self._data.qpos[start : start + 7] = pose
                self._model.body_gravcomp[body.id] = 0.0 if used else 1.0
            else:
                self._data.mocap_pos[body.mocapid[0]] = pose[:3]
                self._data.mocap_quat[body.mocapid[0]] = pose[3:]

    def _perturb(self) -> None:
        """Begin the perturbation if its step has come."""
        wrong = self._perturbation
        if wrong is None or self._step != wrong.start:
            return
        if wrong.name == "object_moved":
            self._move_object(wrong)
        elif wrong.name == "light_changed":
            self._set_light(wrong.light)
        elif wrong.name == "weak_gripper":
            self._set_grip(WEAK_FORCE, wrong.friction)

    def _move_object(self, wrong: Perturbation) -> None:
        """Shift the object in the first drawn direction that stays on the workspace, away from the others; the roomiest one if none does."""
        scene = self.scene
        here = self.facts().object_position[:2]
        others = [place[:2] for name, place in self.positions().items() if name != scene.object]
        spots = [np.clip(here + wrong.distance * np.array([np.cos(a), np.sin(a)]), WORKSPACE_LOW, WORKSPACE_HIGH) for a in wrong.angles]
        room = [min([0.12, *(float(np.hypot(*(spot - other))) for other in others)]) + float(np.hypot(*(spot - here))) for spot in spots]
        best = spots[int(np.argmax(room))]
        joint = self._model.joint(THINGS[scene.object].body)
        position, velocity = joint.qposadr[0], joint.dofadr[0]
        self._data.qpos[position : position + 7] = [*best, HALF, 1, 0, 0, 0]
        self._data.qvel[velocity : velocity + 6] = 0
        mujoco.mj_forward(self._model, self._data)

    def _set_light(self, factors: tuple[float, float, float]) -> None:
        self._model.light_diffuse[:] = self._lamp * factors
        self._model.vis.headlight.ambient[:] = self._head[0] * factors
        self._model.vis.headlight.diffuse[:] = self._head[1] * factors

    def _set_grip(self, force: float, friction: float) -> None:
        """Limit the fingers to these shares of their usual force and friction."""
        limit = GRIPPER_FORCE * force
        self._model.actuator_forcerange[self._model.actuator("fingers").id] = (-limit, limit)
        for finger in self._fingers:
            self._model.geom_friction[finger] = self._friction[finger] * friction

    def _observe(self) -> Observation:
        facts, scene = self.facts(), self.scene
        time = self._step / CONTROL_HZ
        taken, pictures = self._delivered(time) if self._cameras else (time, {})
        return Observation(
            time=time,
            episode_id=self._episode,
            step=self._step,
            instruction=self._instruction,
            images=pictures,
            image_times=dict.fromkeys(pictures, taken),
            tcp_position=self.arm.position(),
            tcp_quaternion=self.arm.quaternion(),
            joints=self._data.qpos[:7].copy(),
            gripper=self.gripper_opening(),
            goal=Goal(task=scene.task, object_position=facts.object_position, target_position=facts.target_position, grasped=facts.grasped),
        )

    def _delivered(self, time: float) -> tuple[float, Pictures]:
        """Pictures as the policy gets them, and when they were taken: now, unless a perturbation holds them back."""
        wrong = self._perturbation
        active = wrong.name if wrong is not None and wrong.active(self._step) else ""
        if active == "frozen_observations" and self._frozen is not None:
            return self._frozen
        self._history.append((time, self._draw(covered=active == "camera_covered")))
        if active == "frozen_observations":
            self._frozen = self._history[-1]
        if active == "delayed_observations" and wrong is not None:
            return self._history[max(len(self._history) - 1 - wrong.delay, 0)]
        return self._history[-1]

    def _draw(self, *, covered: bool) -> Pictures:
        if self._renderer is None:
            self._renderer = mujoco.Renderer(self._model, self._size, self._size)
            for flag in _DRAWING_OFF:
                self._renderer.scene.flags[flag] = 0
        pictures: Pictures = {}
        for camera in self._cameras:
            if camera == "front" and covered:
                pictures[camera] = np.zeros((self._size, self._size, 3), dtype=np.uint8)
            else:
                self._renderer.update_scene(self._data, camera)
                pictures[camera] = self._renderer.render()
        return pictures

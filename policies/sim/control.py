"""Control of the tool centre point (TCP): action -> TCP target -> damped least squares -> joint servos.

One action lasts 0.1 s. Deltas add to the *target*, so a sequence of actions moves the hand by their sum; the target stays within a few centimetres
of the measured hand, so a blocked hand winds nothing up. A target that the arm cannot reach from where it is is not taken: the hand waits. Between
two actions the joint references move on a straight line with velocity feed-forward, and nothing jumps.
"""

from __future__ import annotations

from typing import Final

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from policies.sim.scene import FINGER_TRAVEL, HOME, SERVOS, TIMESTEP

Float = NDArray[np.float64]

CONTROL_HZ: Final = 10.0
ACTION_NAMES: Final = ("dx", "dy", "dz", "drx", "dry", "drz", "gripper")
ACTION_LOW: Final[Float] = np.array([-0.05, -0.05, -0.05, -0.25, -0.25, -0.25, 0.0])
ACTION_HIGH: Final[Float] = np.array([0.05, 0.05, 0.05, 0.25, 0.25, 0.25, 1.0])
"""(7,) limits of an action: m, rad (base frame), gripper opening. What lies outside is clipped."""

REACH_LOW: Final[Float] = np.array([0.28, -0.3, 0.014])
REACH_HIGH: Final[Float] = np.array([0.72, 0.3, 0.4])
"""(3,) m: the box that the TCP target cannot leave."""

MAX_TILT: Final = 0.5
"""rad: largest angle between the hand's axis and straight down."""

MAX_YAW: Final = 1.7
"""rad: largest turn of the hand about the vertical, from fingers opening along y."""

LEAD: Final = 0.03
"""m: how far the target may run ahead of the measured hand."""

DOWN: Final[Float] = np.array([0.0, 1.0, 0.0, 0.0])
"""(4,) w, x, y, z: hand pointing straight down, fingers opening along y."""

MAX_JOINT_STEP: Final = 0.25
"""rad: largest change of a joint in one control period; what is left of the way follows in the next ones."""

_RAMPS: Final = 5
_TOLERANCE: Final = 0.01
"""m and rad: a solution of the inverse kinematics may miss the target by that much."""
_FEED_FORWARD: Final[Float] = np.array([damping / stiffness for stiffness, damping, _, _ in SERVOS])
"""(7,) s: lag of a joint servo, damping over stiffness."""


def checked_action(action: ArrayLike) -> Float:
    """The action as (7,) float64 inside the limits.

    Raises:
        ValueError: it has not seven numbers, or one of them is NaN or infinite.
    """
    array = np.asarray(action, dtype=np.float64)
    if array.shape != (7,):
        raise ValueError(f"action has shape {array.shape}, expected (7,): {', '.join(ACTION_NAMES)}")
    if not np.isfinite(array).all():
        bad = [name for name, value in zip(ACTION_NAMES, array, strict=True) if not np.isfinite(value)]
        raise ValueError(f"action is not finite in {', '.join(bad)}: {array.tolist()}; the robot executes finite numbers only")
    clipped: Float = np.clip(array, ACTION_LOW, ACTION_HIGH)
    return clipped


def yaw_quaternion(yaw: float) -> Float:
    """(4,) w, x, y, z of a hand that points down, turned by `yaw` rad about the base's z axis."""
    return np.array([0.0, np.cos(yaw / 2), np.sin(yaw / 2), 0.0])


def rotate(quaternion: Float, vector: Float) -> Float:
    """(4,) `quaternion`, turned by the rotation vector (3,) rad, base frame."""
    delta, out = np.empty(4), np.empty(4)
    angle = float(np.linalg.norm(vector))
    mujoco.mju_axisAngle2Quat(delta, vector / angle if angle > 0 else np.array([1.0, 0, 0]), angle)
    mujoco.mju_mulQuat(out, delta, quaternion)
    mujoco.mju_normalize4(out)
    return out


def rotation_error(target: Float, actual: Float) -> Float:
    """(3,) rad, base frame: the rotation vector that turns `actual` into `target` (both (4,))."""
    inverse, difference = np.empty(4), np.empty(4)
    vector: Float = np.empty(3)
    mujoco.mju_negQuat(inverse, actual)
    mujoco.mju_mulQuat(difference, target, inverse)
    mujoco.mju_quat2Vel(vector, difference, 1.0)
    return vector


def yaw_of(quaternion: Float) -> float:
    """Yaw, rad, of a hand that points roughly down: 0 if its x axis lies along the base's."""
    w, x, y, z = quaternion
    return float(np.arctan2(2 * (x * y + w * z), w * w + x * x - y * y - z * z))


class Arm:
    """Moves the arm and the gripper of one simulation."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        self._model, self._data = model, data
        self._scratch = mujoco.MjData(model)
        self._site = model.site("tcp").id
        self._low, self._high = model.jnt_range[:7, 0].copy(), model.jnt_range[:7, 1].copy()
        self._home = np.array(HOME)
        self._joints = self._home.copy()
        self.target_position: Float = np.zeros(3)
        self.target_quaternion: Float = DOWN.copy()

    def place(self, position: Float, yaw: float) -> None:
        """Put the resting arm, gripper open, at a pose; for the start of an episode."""
        self.target_position, self.target_quaternion = position.copy(), yaw_quaternion(yaw)
        self._joints, _ = self._solve(self._home, 60)
        self._data.qpos[:7] = self._data.ctrl[:7] = self._joints
        self._data.qpos[7:9] = self._data.ctrl[7] = FINGER_TRAVEL

    def position(self) -> Float:
        """(3,) m: the measured TCP."""
        here: Float = self._data.site_xpos[self._site].copy()
        return here

    def quaternion(self) -> Float:
        """(4,) w, x, y, z: the measured TCP."""
        out = np.empty(4)
        mujoco.mju_mat2Quat(out, self._data.site_xmat[self._site])
        return out

    def apply(self, action: Float) -> None:
        """Run one control period with a checked action (7,)."""
        before, target = self._joints, (self.target_position, self.target_quaternion)
        self._move_target(action)
        wanted, reached = self._solve(before, 4)
        if reached:
            change = wanted - before
            self._joints = before + change * min(1.0, MAX_JOINT_STEP / max(float(np.abs(change).max()), 1e-9))
        else:
            self.target_position, self.target_quaternion = target
        speed = (self._joints - before) * CONTROL_HZ
        self._data.ctrl[7] = action[6] * FINGER_TRAVEL
        substeps = round(1 / (CONTROL_HZ * TIMESTEP))
        for i in range(_RAMPS):
            reference = before + (self._joints - before) * ((i + 1) / _RAMPS)
            self._data.ctrl[:7] = reference + _FEED_FORWARD * speed
            mujoco.mj_step(self._model, self._data, nstep=substeps // _RAMPS)
        mujoco.mj_forward(self._model, self._data)

    def _move_target(self, action: Float) -> None:
        measured = self.position()
        wanted = np.clip(self.target_position + action[:3], REACH_LOW, REACH_HIGH)
        lead = np.abs(ACTION_HIGH[:3]) + LEAD
        self.target_position = np.clip(wanted, measured - lead, measured + lead)
        turned = rotate(self.target_quaternion, action[3:6])
        if _tilt(turned) <= MAX_TILT and abs(yaw_of(turned)) <= MAX_YAW:
            self.target_quaternion = turned

    def _solve(self, start: Float, iterations: int) -> tuple[Float, bool]:
        """Joints (7,) that put the TCP on the target, searched from `start`, and whether they do; the spare joint drifts towards HOME."""
        model, data = self._model, self._scratch
        data.qpos[:] = self._data.qpos
        joints = start.copy()
        jacobian = np.zeros((6, model.nv))
        actual = np.empty(4)
        for i in range(iterations + 1):
            data.qpos[:7] = joints
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], self._site)
            mujoco.mju_mat2Quat(actual, data.site_xmat[self._site])
            error = np.concatenate([self.target_position - data.site_xpos[self._site], rotation_error(self.target_quaternion, actual)])
            if i == iterations:
                break
            arm = jacobian[:, :7]
            inverse = arm.T @ np.linalg.inv(arm @ arm.T + 1e-4 * np.eye(6))
            rest = 0.2 * (self._home - joints)
            joints = np.clip(joints + inverse @ error + rest - inverse @ (arm @ rest), self._low, self._high)
        return joints, bool(np.abs(error).max() < _TOLERANCE)


def _tilt(quaternion: Float) -> float:
    """Angle between the hand's axis and straight down, rad."""
    axis = np.empty(3)
    mujoco.mju_rotVecQuat(axis, np.array([0.0, 0, 1]), quaternion)
    return float(np.arccos(np.clip(-axis[2], -1, 1)))

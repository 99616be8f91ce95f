"""The simulated world: a Franka Panda with a parallel gripper, a table, seven things on it and two cameras.

The arm (kinematics, masses, meshes) comes from the files of the package gym-hil; its Robotiq gripper and its detailed pictures are taken off, because
they cost twenty times as much to draw. Hand, fingers and all objects are boxes and cylinders. Lengths in m, angles in rad, fixed frame = robot base:
x forward, y left, z up, table top at z = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import mujoco

TIMESTEP = 0.004
HOME = (0.0, -0.2, 0.0, -2.25, 0.0, 2.05, 0.7853)
"""(7,) rad: joint angles with the hand above the middle of the workspace, pointing down."""

SERVOS = ((2500.0, 120.0, 87.0, 0.4),) * 4 + ((800.0, 40.0, 40.0, 0.15),) * 3
"""Per joint: stiffness N m / rad, damping N m s / rad, largest torque N m, rotor inertia kg m^2.

A servo that saturates is stable only if damping * TIMESTEP < 2 * inertia, whatever the pose; the rotor's inertia sees to that.
"""

FINGER_TRAVEL = 0.04
"""m: travel of one finger; the gripper opens twice that."""

HALF = 0.02
"""m: half the width and half the height of every small object."""

PLATE_RADIUS, PLATE_HEIGHT = 0.065, 0.012
TRAY_INSIDE, TRAY_WALL, TRAY_FLOOR, TRAY_HEIGHT = 0.065, 0.005, 0.004, 0.03
"""m: half the inner width, thickness of walls and floor, height of the tray."""

OBJECT_MASS = 0.05
SPIN_DAMPING = 2e-4
"""N m s / rad: stops a dropped cylinder from circling on its edge for seconds."""

FINGER_FRICTION = 1.5
GRIPPER_FORCE = 15.0
_UNSEEN = 3
_PARKING = (0.0, 0.0, -1.0)


@dataclass(frozen=True, slots=True)
class Thing:
    """Something on the table: `name` is used in instructions, `shape` is cube, cylinder, plate or tray."""

    name: str
    shape: str
    rgba: tuple[float, float, float, float]

    @property
    def body(self) -> str:
        """Name of the MuJoCo body."""
        return self.name.replace(" ", "_")


SMALL: tuple[Thing, ...] = (
    Thing("red cube", "cube", (0.9, 0.05, 0.05, 1)),
    Thing("green cylinder", "cylinder", (0.05, 0.75, 0.1, 1)),
    Thing("blue cube", "cube", (0.1, 0.2, 0.95, 1)),
    Thing("yellow cylinder", "cylinder", (0.95, 0.85, 0.05, 1)),
    Thing("pink cube", "cube", (0.95, 0.35, 0.8, 1)),
)
PLATE = Thing("plate", "plate", (0.95, 0.95, 0.95, 1))
TRAY = Thing("tray", "tray", (0.95, 0.5, 0.05, 1))
THINGS: dict[str, Thing] = {thing.name: thing for thing in (*SMALL, PLATE, TRAY)}


def asset_path() -> Path:
    """Path of the Panda's MJCF file inside the installed gym-hil, which is not imported.

    Raises:
        ModuleNotFoundError: gym-hil is not installed.
    """
    spec = find_spec("gym_hil")
    if spec is None or not spec.submodule_search_locations:
        text = "the simulator takes the Panda's model files from the package gym-hil: pip install 'vla-monitor[sim]'"
        raise ModuleNotFoundError(text, name="gym_hil")
    return Path(spec.submodule_search_locations[0]) / "assets" / "panda.xml"


def build_model(image_size: int = 96) -> mujoco.MjModel:
    """Compile the world; `image_size` is the side of the camera pictures in pixels."""
    spec = _bare_arm()
    spec.option.timestep = TIMESTEP
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 10
    spec.option.iterations = 20
    _add_hand(spec)
    _add_actuators(spec)
    _add_room(spec, image_size)
    for thing in SMALL:
        _add_small(spec, thing)
    _add_plate(spec)
    _add_tray(spec)
    return spec.compile()


def parking_place(index: int) -> tuple[float, float, float]:
    """Where the thing number `index` waits, unseen, when a scene does not use it; (3,) m."""
    x, y, z = _PARKING
    return (x, y + 0.2 * index, z)


def _bare_arm() -> mujoco.MjSpec:
    """gym-hil's Panda without gripper, detailed pictures, actuators and sensors; its links collide with nothing."""
    spec = mujoco.MjSpec.from_file(str(asset_path()))
    for group in (spec.actuators, spec.sensors, spec.equalities, spec.tendons, spec.excludes):
        for item in list(group):
            spec.delete(item)
    spec.delete(spec.body("attachment"))
    for geom in list(spec.geoms):
        if geom.classname.name == "panda/visual":
            spec.delete(geom)
        else:
            geom.contype = geom.conaffinity = 0
            geom.group = 0
            geom.rgba = (0.82, 0.84, 0.86, 1)
    used = {geom.meshname for geom in spec.geoms}
    for mesh in list(spec.meshes):
        if mesh.name not in used:
            spec.delete(mesh)
    for body in spec.bodies[1:]:
        body.gravcomp = 1
    return spec


def _add_hand(spec: mujoco.MjSpec) -> None:
    """Hand box, two sliding fingers (along the hand's y axis), the site `tcp` between the pads and the wrist camera."""
    hand = spec.body("link7").add_body(name="hand", pos=(0, 0, 0.107), quat=(0.9238795, 0, 0, -0.3826834), gravcomp=1)
    hand.mass, hand.inertia = 0.5, (1e-3, 1e-3, 1e-3)
    hand.explicitinertial = True
    hand.add_geom(name="hand", type=mujoco.mjtGeom.mjGEOM_BOX, size=(0.02, 0.06, 0.025), pos=(0, 0, 0.03), rgba=(0.3, 0.3, 0.33, 1))
    hand.add_site(name="tcp", pos=(0, 0, 0.1034))
    hand.add_camera(name="wrist", pos=(0.085, 0, 0.015), xyaxes=(0, 1, 0, 0.84, 0, 0.543), fovy=68)
    for name, sign in (("left", 1.0), ("right", -1.0)):
        finger = hand.add_body(name=f"{name}_finger", gravcomp=1, mass=0.05, inertia=(3e-5, 3e-5, 1e-5))
        finger.explicitinertial = True
        slide = finger.add_joint(name=f"{name}_finger", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=(0, sign, 0), damping=5)
        slide.range, slide.limited, slide.armature = (0, FINGER_TRAVEL), True, 0.05
        finger.add_geom(
            name=f"{name}_finger",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            size=(0.009, 0.004, 0.0295),
            pos=(0, sign * 0.004, 0.0849),
            rgba=(0.12, 0.12, 0.13, 1),
            friction=(FINGER_FRICTION, 0.02, 0.001),
            condim=4,
            priority=1,
            solref=(0.01, 1),
        )


def _add_actuators(spec: mujoco.MjSpec) -> None:
    """Position servos: seven joints, and one for both fingers (its control is the travel of one finger)."""
    for i, (stiffness, damping, force, armature) in enumerate(SERVOS, start=1):
        spec.joint(f"joint{i}").armature = armature
        _add_servo(spec, f"joint{i}", mujoco.mjtTrn.mjTRN_JOINT, stiffness, damping, force)
    tendon = spec.add_tendon(name="fingers")
    tendon.wrap_joint("left_finger", 0.5)
    tendon.wrap_joint("right_finger", 0.5)
    _add_servo(spec, "fingers", mujoco.mjtTrn.mjTRN_TENDON, 1500, 40, GRIPPER_FORCE)
    spec.add_equality(type=mujoco.mjtEq.mjEQ_JOINT, name1="left_finger", name2="right_finger", data=[0, 1] + [0] * 9, solref=(0.008, 1))


def _add_servo(spec: mujoco.MjSpec, target: str, kind: mujoco.mjtTrn, stiffness: float, damping: float, force: float) -> None:
    spec.add_actuator(
        name=target,
        target=target,
        trntype=kind,
        gaintype=mujoco.mjtGain.mjGAIN_FIXED,
        gainprm=[stiffness] + [0] * 9,
        biastype=mujoco.mjtBias.mjBIAS_AFFINE,
        biasprm=[0, -stiffness, -damping] + [0] * 7,
        forcelimited=True,
        forcerange=(-force, force),
    )


def _add_room(spec: mujoco.MjSpec, image_size: int) -> None:
    """Table, one lamp, the front camera, and drawing without shadows, reflections and multisampling."""
    spec.visual.quality.shadowsize = 0
    spec.visual.quality.offsamples = 0
    spec.visual.quality.numslices = 16
    spec.visual.quality.numstacks = 8
    getattr(spec.visual, "global").offwidth = image_size
    getattr(spec.visual, "global").offheight = image_size
    spec.visual.headlight.ambient = (0.45, 0.45, 0.45)
    spec.visual.headlight.diffuse = (0.2, 0.2, 0.2)
    spec.visual.headlight.specular = (0, 0, 0)
    spec.stat.center = (0.4, 0, 0.2)
    spec.stat.extent = 1.0
    world = spec.worldbody
    lamp = world.add_light(name="lamp", type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, pos=(0.8, -0.6, 1.5), dir=(-0.3, 0.4, -1))
    lamp.diffuse, lamp.castshadow = (0.55, 0.55, 0.55), False
    world.add_geom(name="table", type=mujoco.mjtGeom.mjGEOM_PLANE, size=(1.4, 1.2, 1), rgba=(0.42, 0.36, 0.31, 1))
    world.add_camera(name="front", pos=(0.98, 0, 0.52), xyaxes=(0, 1, 0, -0.64, 0, 0.768), fovy=44)


def _add_small(spec: mujoco.MjSpec, thing: Thing) -> None:
    body = spec.worldbody.add_body(name=thing.body)
    body.add_joint(name=thing.body, type=mujoco.mjtJoint.mjJNT_FREE, damping=SPIN_DAMPING)
    kind = mujoco.mjtGeom.mjGEOM_BOX if thing.shape == "cube" else mujoco.mjtGeom.mjGEOM_CYLINDER
    body.add_geom(name=thing.body, type=kind, size=(HALF, HALF, HALF), mass=OBJECT_MASS, rgba=thing.rgba, friction=(0.8, 0.01, 0.001), condim=4)


def _add_plate(spec: mujoco.MjSpec) -> None:
    """A round picture over a square body: a cube on a cylinder has one contact point and rocks."""
    body = spec.worldbody.add_body(name=PLATE.body, mocap=True)
    half = PLATE_HEIGHT / 2
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_CYLINDER, size=(PLATE_RADIUS, half, 0), pos=(0, 0, half), rgba=PLATE.rgba, contype=0, conaffinity=0)
    side = 0.8 * PLATE_RADIUS
    body.add_geom(name=PLATE.body, type=mujoco.mjtGeom.mjGEOM_BOX, size=(side, side, half), pos=(0, 0, half), group=_UNSEEN)


def _add_tray(spec: mujoco.MjSpec) -> None:
    body = spec.worldbody.add_body(name=TRAY.body, mocap=True)
    box = mujoco.mjtGeom.mjGEOM_BOX
    outer, half = TRAY_INSIDE + 2 * TRAY_WALL, TRAY_HEIGHT / 2
    dark = (0.7, 0.36, 0.03, 1)
    body.add_geom(name=TRAY.body, type=box, size=(outer, outer, TRAY_FLOOR / 2), pos=(0, 0, TRAY_FLOOR / 2), rgba=dark)
    for sign in (-1, 1):
        offset = sign * (TRAY_INSIDE + TRAY_WALL)
        body.add_geom(type=box, size=(TRAY_WALL, outer, half), pos=(offset, 0, half), rgba=TRAY.rgba)
        body.add_geom(type=box, size=(outer, TRAY_WALL, half), pos=(0, offset, half), rgba=TRAY.rgba)

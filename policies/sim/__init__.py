"""A Franka Panda in MuJoCo: four tasks, two cameras, a scripted expert and perturbations. Needs the extra `sim`.

Draws in software with one thread (OSMesa, or EGL where that is not installed) unless the environment variables MUJOCO_GL and LP_NUM_THREADS say
otherwise before the first import.
"""

import os
from ctypes.util import find_library

os.environ.setdefault("MUJOCO_GL", "osmesa" if find_library("OSMesa") else "egl")
os.environ.setdefault("LP_NUM_THREADS", "1")

from policies.sim.control import ACTION_HIGH, ACTION_LOW, ACTION_NAMES, CONTROL_HZ
from policies.sim.expert import Expert
from policies.sim.robot import SimRobot

__all__ = ["ACTION_HIGH", "ACTION_LOW", "ACTION_NAMES", "CONTROL_HZ", "Expert", "SimRobot"]

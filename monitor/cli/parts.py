"""Optional parts, asked for in one place: an absent one becomes an error that says how to get it."""

from __future__ import annotations

import importlib
from types import ModuleType

from monitor.errors import MissingPartError

_CURES = {
    "rclpy": "ROS 2 is not in this environment: source /opt/ros/<distro>/setup.bash, or pip install 'vla-monitor[ros]'",
    "monitor_msgs": "the messages are not built: colcon build in ros2_ws and source install/setup.bash, or run scripts/build_interfaces.sh",
    "mujoco": "the simulator is not installed: pip install 'vla-monitor[sim]'",
    "torch": "the policies' libraries are not installed: pip install 'vla-monitor[policies]'",
}


def part(module: str) -> ModuleType:
    """Import a module of ours that needs more than the core installation.

    Raises:
        MissingPartError: something that it needs is not installed; the message says how to get it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        root = (error.name or "").split(".")[0]
        if root in ("monitor", ""):
            raise
        cure = _CURES.get(root, f"install it; `vla-monitor doctor` lists what is missing (needed: {root})")
        raise MissingPartError(f"{module} needs {root}: {cure}") from error

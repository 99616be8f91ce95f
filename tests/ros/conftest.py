"""The tests of this folder need rclpy and the built interfaces; without them they are skipped, and say so."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tiny.py and processes.py

_MISSING = [name for name in ("rclpy", "monitor_msgs") if importlib.util.find_spec(name) is None]
if _MISSING:
    collect_ignore_glob = ["test_*.py"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _MISSING:
        terminalreporter.write_line(f"SKIPPED tests/ros: {' and '.join(_MISSING)} not installed; run `make interfaces`", yellow=True)

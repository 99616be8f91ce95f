"""What all commands share: streams, JSON, logging. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import json
import logging
import math
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

NAME = "vla-monitor"
SCHEMA_VERSION = 1
WIDE = 200  # columns of tables in files and pipes


@dataclass
class Flags:
    """The options in front of the command."""

    quiet: bool = False
    verbose: bool = False
    debug: bool = False


flags = Flags()


def tool_version() -> str:
    """Version of the installed package."""
    from monitor.recording.facts import package_version  # not needed for --help

    return package_version(NAME)


def program() -> str:
    """What the user can type to start this program again: its name where PATH finds it, else the path it was started by."""
    started = Path(sys.argv[0])
    if started.suffix == ".py":
        return shlex.join([sys.executable, "-m", "monitor.cli.app"])
    found = shutil.which(NAME)
    if started.name != NAME or not started.exists() or (found is not None and Path(found).samefile(started)):
        return NAME
    return shlex.quote(sys.argv[0])


def set_up(chosen: Flags) -> None:
    """Keep the options and send log lines to stderr."""
    flags.quiet, flags.verbose, flags.debug = chosen.quiet, chosen.verbose, chosen.debug
    level = logging.ERROR if chosen.quiet else logging.DEBUG if chosen.debug else logging.INFO if chosen.verbose else logging.WARNING
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s", force=True)


def out() -> Console:
    """Console for results; wide where no terminal limits it."""
    return Console(width=None if sys.stdout.isatty() else WIDE, highlight=False)


def err() -> Console:
    """Console for progress and remarks; says nothing with --quiet."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else WIDE, highlight=False, quiet=flags.quiet)


def say_error(text: str) -> None:
    """One clear text on stderr, also with --quiet."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {text}", markup=False)


def emit_json(schema: str, data: Mapping[str, Any]) -> None:
    """Print one JSON object with its schema. NaN and infinity become null."""
    head = {"schema": f"vla-monitor/{schema}", "schema_version": SCHEMA_VERSION, "tool_version": tool_version()}
    sys.stdout.write(json.dumps({**head, **_legal(data)}, indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n")


def _legal(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _legal(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_legal(item) for item in value]
    return value

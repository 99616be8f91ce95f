"""Importer of per-step scalars as ActProbe publishes them (air-embodied-brain/actprobe, arXiv 2606.08508): JSON lines, one episode each.

    {"episode_id": 0, "task_id": 0, "task_description": "...", "success": true, "length": 56, "steps": [{"t": 0, "chunk_mse": 0.0, ...}, ...]}

The scalars become metrics `actprobe/<name>`, and their trailing means over 8 rows `actprobe/<name>_w8` (like the monitor's own windows). Damaged
lines and episodes are named and counted, never repaired by a guess. The file does not say which policy it is of: the caller does.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.assess.series import EpisodeSeries, Origin, SeriesSet
from monitor.errors import StepError
from monitor.steps import Family, Float, MetricInfo, Status

FORMAT = "actprobe-jsonl"
UNNAMED = "unnamed"
DT_S = 0.05 * 5  # LIBERO runs at 20 Hz; its limit of 520 actions is 104 rows here, so a row is an inference of which 5 actions are executed
WINDOW = 8

# scalar -> (family, unit, what a high value means)
SCALARS: Mapping[str, tuple[Family, str, str]] = {
    "chunk_mse": (Family.PLAN, "1", "overlapping plans disagree"),
    "chunk_mse_mmd": (Family.PLAN, "1", "overlapping plans disagree"),
    "denoising_curvature": (Family.SAMPLING, "1", "the denoising path bends"),
    "action_norm": (Family.ACTION, "1", "large action"),
    "action_jerk": (Family.ACTION, "1", "jerky action"),
    "gripper_oscillation": (Family.ACTION, "1", "gripper command changes"),
    "eef_z": (Family.TOOL, "m", "tool is high"),
    "eef_z_vel": (Family.TOOL, "m/step", "tool rises"),
    "eef_speed_3d": (Family.TOOL, "m/step", "tool is fast"),
    "gripper_qpos_mean": (Family.TOOL, "m", "fingers off centre"),
    "gripper_qpos_vel": (Family.TOOL, "m/step", "fingers move"),
}
_KNOWN = {"episode_id", "task_id", "task_description", "success", "length", "steps"}


class _BadEpisodeError(ValueError):
    """What is wrong with one line."""


def read_actprobe(path: Path, policy: str = UNNAMED, dt: float = DT_S) -> SeriesSet:
    """All sound episodes of a file. Scalars that are null or not finite make no statement.

    Raises:
        StepError: the file cannot be read, or no line of it holds an episode.
    """
    origin = Origin(policy=policy, config=FORMAT)
    episodes: dict[str, EpisodeSeries] = {}
    notices: Counter[str] = Counter()
    names: dict[str, None] = {}
    number = 0
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    episode = _episode(line, path, origin, dt, notices)
                except _BadEpisodeError as error:
                    notices[f"line {number}: left out: {error}"] += 1
                    continue
                if episode.episode_id in episodes:
                    notices[f"line {number}: left out: episode {episode.episode_id} occurs twice"] += 1
                    continue
                episodes[episode.episode_id] = episode
                names.update(dict.fromkeys(episode.values))
    except (OSError, UnicodeDecodeError) as error:
        raise StepError(f"{path}: cannot be read ({error})") from error
    if not episodes:
        first = f"; {next(iter(notices))}" if notices else ""
        raise StepError(f"{path}: none of {number} lines holds an episode in the ActProbe form{first}")
    infos = {key: _info(key.partition("/")[2]) for key in names}
    return SeriesSet(episodes=tuple(episodes.values()), infos=infos, notices=tuple(f"{path}: {t} ({c})" for t, c in notices.items()))


def _episode(line: str, path: Path, origin: Origin, dt: float, notices: Counter[str]) -> EpisodeSeries:
    try:
        tree = json.loads(line)
    except json.JSONDecodeError as error:
        raise _BadEpisodeError(f"not JSON, cut short perhaps ({error.msg} at character {error.pos})") from error
    if not isinstance(tree, dict):
        raise _BadEpisodeError(f"expected an object, found {type(tree).__name__}")
    missing = [key for key in ("episode_id", "success", "steps") if key not in tree]
    if missing:
        raise _BadEpisodeError(f"no {', no '.join(missing)}")
    for key in tree.keys() - _KNOWN:
        notices[f"unknown key {key!r}, passed over"] += 1
    steps, success = tree["steps"], tree["success"]
    if not isinstance(steps, list) or not steps or not all(isinstance(step, dict) for step in steps):
        raise _BadEpisodeError("steps: expected a list of objects, at least one")
    if not isinstance(success, bool):
        raise _BadEpisodeError(f"success: expected true or false, found {success!r}")
    if tree.get("length", len(steps)) != len(steps):
        raise _BadEpisodeError(f"length says {tree['length']!r}, but there are {len(steps)} steps")
    if any(step.get("t", i) != i for i, step in enumerate(steps)):
        raise _BadEpisodeError("t: expected 0, 1, 2, ... without gaps")
    if len(steps) == 1:
        notices["episodes of one step"] += 1
    scalars = dict.fromkeys(key for step in steps for key in step if key != "t")
    values = {}
    for name in scalars:
        values[f"actprobe/{name}"] = series = _series(name, steps, notices)
        values[f"actprobe/{name}_w{WINDOW}"] = _trailing_mean(series)
    task = tree.get("task_description") or tree.get("task_id")
    if task is None:
        raise _BadEpisodeError("no task_description and no task_id")
    return EpisodeSeries(
        origin=origin,
        task=str(task),
        episode_id=f"{tree.get('task_id', task)}/{tree['episode_id']}",
        success=success,
        length=len(steps),
        dt=dt,
        values=values,
        statuses={key: _statuses(key, series) for key, series in values.items()},
        source=path.name,
    )


def _series(name: str, steps: list[dict[str, Any]], notices: Counter[str]) -> Float:
    series = np.full(len(steps), np.nan)
    for i, step in enumerate(steps):
        value = step.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            series[i] = value
        else:
            notices[f"{name}: steps without a number"] += 1
    return series


def _statuses(key: str, series: Float) -> NDArray[np.uint8]:
    statuses = np.where(np.isnan(series), int(Status.INVALID), int(Status.OK)).astype(np.uint8)
    if key.endswith(f"_w{WINDOW}"):
        statuses[: WINDOW - 1] = Status.WARMING_UP
    return statuses


def _trailing_mean(series: Float) -> Float:
    """Mean of the last WINDOW rows; NaN before there are that many, and where one of them is NaN."""
    means = np.full(series.size, np.nan)
    for i in range(WINDOW - 1, series.size):
        means[i] = series[i + 1 - WINDOW : i + 1].mean()
    return means


def _info(name: str) -> MetricInfo:
    scalar = name.removesuffix(f"_w{WINDOW}")
    family, unit, meaning = SCALARS.get(scalar, (Family.VALIDITY, "?", "unknown scalar"))
    return MetricInfo(
        id="actprobe",
        variant=name,
        label="ActProbe",
        family=family,
        unit=unit,
        low=-math.inf,
        high=math.inf,
        higher_means=meaning,
        formula=f"{scalar} of the file" if name == scalar else f"mean of the last {WINDOW} rows of {scalar}",
        source="arXiv 2606.08508",
    )

"""Golden numbers: every vector about metrics (tests/assess has the rest) of tests/data/vectors, or of the folder that VLA_MONITOR_VECTORS names.

Numbers agree within 1e-9 absolute plus 1e-9 relative; null stands for undefined, "nan" and "inf" for themselves.
"""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.aggregate import Aggregator
from monitor.config import ActionConfig, GoalConfig, MonitorConfig, MotionConfig, PlanConfig, SamplingConfig, TokenConfig, default_alarms
from monitor.engine import Monitor
from monitor.metrics import (
    ActionMetrics,
    GoalMetrics,
    MotionDetector,
    PlanMetrics,
    SamplingMetrics,
    TokenMetrics,
    ToolMetrics,
    action_chunk_magnitude,
    chunk_entropy,
    chunk_overlap,
    execution_variability,
    instability,
    instability_norm,
    jerk_gradient,
    jerk_online,
    mmd2,
    motion_weighted,
    normalised,
    optimal_trajectory,
    published_jerk,
    resample,
    reversal_rate,
    root_mean_square,
    rotation_increments,
    sliding_maximum,
    token_metrics,
    tool_instability,
)
from monitor.metrics.replicate import published_action_series, published_jerk_mean, published_run_value, published_token_scores
from monitor.policy import PolicySpec
from monitor.steps import Goal, PolicyStep, Status

FOLDER = Path(os.environ.get("VLA_MONITOR_VECTORS", Path(__file__).parents[1] / "data" / "vectors"))
SCORES = {"tp": "max_prob", "pcs": "pcs", "gini": "deepgini", "entropy": "entropy"}
KEYS = {"tp": "tb_max_prob", "pcs": "tb_pcs", "gini": "tb_deepgini", "entropy": "tb_entropy"}
ORDERS = {"PI": 1, "VI": 2, "AI": 3}


def vectors(group: str, kind: str | None = None, needs: str | None = None) -> list[Any]:
    """The vectors of one group, of one kind, with one expectation; an empty list of a missing group."""
    found = []
    for path in sorted(FOLDER.glob("*vectors*.json")):
        for vector in json.loads(path.read_text(encoding="utf-8")).get("groups", {}).get(group, []):
            if (kind is None or vector.get("kind") == kind) and (needs is None or _has(vector["expected"], needs)):
                found.append(pytest.param(vector, id=f"{path.stem}-{vector['id']}"))
    return found


def _has(expected: Any, name: str) -> bool:
    return isinstance(expected, dict) and (name in expected or any(_has(part, name) for part in expected.values()))


def array(given: Any) -> np.ndarray:
    """Numbers, with null as NaN and 'nan', 'inf', '-inf' as such."""
    if isinstance(given, list):
        return np.array([array(part) for part in given], dtype=np.float64)
    return given if isinstance(given, np.ndarray) else np.float64(np.nan if given is None else given)


def check(found: Any, expected: Any, what: str) -> None:
    """Compare; NaN stands for null."""
    np.testing.assert_allclose(np.asarray(found, dtype=np.float64), array(expected), rtol=1e-9, atol=1e-9, equal_nan=True, err_msg=what)


def without_nan(values: np.ndarray) -> float:
    """Mean of the defined values, NaN when there is none."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else float("nan")


def row_of(metric: Any, step: PolicyStep) -> dict[str, float]:
    """Feed one step; values by key."""
    values, statuses = np.full(len(metric.infos), np.nan), np.full(len(metric.infos), int(Status.UNAVAILABLE), np.uint8)
    metric.update(step, values, statuses)
    return {info.key: float(value) for info, value in zip(metric.infos, values, strict=True)}


# ---- tokens


@pytest.mark.parametrize("vector", vectors("tokens"))
def test_vector_tokens_score_by_token(vector: dict[str, Any]) -> None:
    logits, expected = array(vector["input"]["logits"]), vector["expected"]
    scores = token_metrics(logits, vector["input"].get("allowed"))
    for name, field in SCORES.items():
        check(getattr(scores, field), expected[name], name)
    assert scores.valid.tolist() == expected["valid"]


@pytest.mark.parametrize("vector", vectors("tokens", needs="leak"))
def test_vector_tokens_leak(vector: dict[str, Any]) -> None:
    scores = token_metrics(array(vector["input"]["logits"]), vector["input"]["allowed"])
    check(scores.leak, vector["expected"]["leak"], "leak")


@pytest.mark.parametrize("vector", vectors("tokens", needs="full_vocabulary"))
def test_vector_tokens_over_the_whole_head(vector: dict[str, Any]) -> None:
    scores = token_metrics(array(vector["input"]["logits"]))
    expected = vector["expected"]["full_vocabulary"]
    for name, field in SCORES.items():
        check(getattr(scores, field), expected[name], name)
        if "step" in expected:
            check(np.nanmean(getattr(scores, field)), expected["step"][name]["mean"], f"{name} mean")


@pytest.mark.parametrize("vector", vectors("tokens", needs="step"))
def test_vector_tokens_mean_and_max_of_the_step(vector: dict[str, Any]) -> None:
    scores = token_metrics(array(vector["input"]["logits"]), vector["input"].get("allowed"))
    for name, expected in vector["expected"]["step"].items():
        values = getattr(scores, SCORES[name])
        check(without_nan(values), expected["mean"], f"{name} mean")
        check(np.nanmax(values) if scores.valid.any() else np.nan, expected["max"], f"{name} max")


@pytest.mark.parametrize("vector", vectors("tokens", needs="groups"))
def test_vector_tokens_means_of_groups(vector: dict[str, Any]) -> None:
    scores = token_metrics(array(vector["input"]["logits"]), vector["input"].get("allowed"))
    for group, expected in vector["expected"]["groups"].items():
        for name, value in expected.items():
            check(without_nan(getattr(scores, SCORES[name])[vector["input"]["groups"][group]]), value, f"{group} {name}")


@pytest.mark.parametrize("vector", vectors("tokens"))
def test_vector_tokens_through_the_family(vector: dict[str, Any]) -> None:
    """The live path takes float32, so the reference is the pure function on the rounded logits; the other tests compare that with the vector."""
    logits = array(vector["input"]["logits"])
    allowed = vector["input"].get("allowed", list(range(logits.shape[1])))
    if allowed != list(range(allowed[0], allowed[-1] + 1)):
        pytest.skip("the family takes one range of ids")
    groups = {name: tuple(members) for name, members in vector["input"].get("groups", {}).items()}
    spec = PolicySpec(
        name="vector",
        action_names=tuple(f"a{i}" for i in range(logits.shape[0])),
        groups=groups,
        token_kind="per_dimension",
        token_support=(allowed[0], allowed[-1] + 1),
        vocab_size=logits.shape[1],
    )
    step = PolicyStep(time=0.0, episode_id="e", step=0, action=np.zeros(logits.shape[0]), token_logits=logits)
    values = row_of(TokenMetrics(spec, MonitorConfig()), step)
    scores = token_metrics(logits.astype(np.float32), allowed)
    for name, field in SCORES.items():
        by_token = getattr(scores, field)
        check(values[f"{KEYS[name]}/full"], without_nan(by_token), name)
        check(values[f"{KEYS[name]}/max"], np.nanmax(by_token) if scores.valid.any() else np.nan, name)
        for group in set(groups) & {"p", "o", "gripper"}:
            check(values[f"{KEYS[name]}/{group}"], without_nan(by_token[list(groups[group])]), f"{name} {group}")


# ---- actions


def groups_of(given: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The vector's groups; of seven dimensions the usual ones."""
    usual = {"p": (0, 1, 2), "o": (3, 4, 5), "gripper": (6,)} if len(given["low"]) == 7 else {}
    return {name: tuple(members) for name, members in given.get("groups", usual).items()}


def action_family(given: dict[str, Any]) -> tuple[ActionMetrics, np.ndarray]:
    """The family for a vector's range and window, and its actions."""
    actions = array(given["actions"])
    dims = actions.shape[1]
    groups = groups_of(given)
    spec = PolicySpec(
        name="vector",
        action_names=tuple(f"a{i}" for i in range(dims)),
        groups=groups,
        action_low=tuple(given["low"]),
        action_high=tuple(given["high"]),
    )
    return ActionMetrics(spec, MonitorConfig(window=given["window"], actions=ActionConfig())), actions


def stream_actions(given: dict[str, Any]) -> list[dict[str, float]]:
    """Values of every step."""
    family, actions = action_family(given)
    return [row_of(family, PolicyStep(time=i * 0.1, episode_id="e", step=i, action=a)) for i, a in enumerate(actions)]


@pytest.mark.parametrize("vector", vectors("actions", needs="normalized_last"))
def test_vector_actions_normalised(vector: dict[str, Any]) -> None:
    given = vector["input"]
    check(normalised(array(given["actions"])[-1], array(given["low"]), array(given["high"])), vector["expected"]["normalized_last"], "last")


@pytest.mark.parametrize("vector", vectors("actions", needs="per_dim"))
def test_vector_actions_by_dimension(vector: dict[str, Any]) -> None:
    given = vector["input"]
    low, high = array(given["low"]), array(given["high"])
    window = np.array([normalised(a, low, high) for a in array(given["actions"])[-given["window"] :]])
    for name, order in ORDERS.items():
        check(instability(window, order), vector["expected"][f"A-{name}"]["per_dim"], f"A-{name}")


@pytest.mark.parametrize("vector", vectors("actions"))
def test_vector_actions_through_the_family(vector: dict[str, Any]) -> None:
    rows = stream_actions(vector["input"])
    groups = groups_of(vector["input"])
    for name in ORDERS:
        expected = vector["expected"].get(f"A-{name}", {})
        for variant, ours in (("p", "p"), ("o", "o"), ("full", "full"), ("full_no_gripper", "no_gripper")):
            if variant not in expected or (variant != "full" and not groups):
                continue
            series = [row[f"a_{name.lower()}/{ours}"] for row in rows]
            found = series if isinstance(expected[variant], list) else series[-1]
            check(found, expected[variant], f"A-{name} {variant}")


@pytest.mark.parametrize("vector", vectors("actions", needs="episode_mean"))
def test_vector_actions_mean_of_the_episode(vector: dict[str, Any]) -> None:
    rows = stream_actions(vector["input"])
    for name in ORDERS:
        series = np.array([row[f"a_{name.lower()}/full"] for row in rows])
        check(np.nanmean(series), vector["expected"][f"A-{name}"]["episode_mean"], "mean")
        check(np.nansum(series) / series.size, vector["expected"][f"A-{name}"]["episode_mean_replicate"], "mean, warm-up as zeros")


# ---- poses


def poses(given: dict[str, Any]) -> tuple[np.ndarray, np.ndarray | None]:
    """Positions and quaternions of a vector, resampled when it has time stamps."""
    position = array(given["position"])
    quaternion = array(given["quaternion_wxyz"]) if "quaternion_wxyz" in given else None
    return resample(array(given["time"]), position, quaternion, given["dt"]) if "time" in given else (position, quaternion)


@pytest.mark.parametrize("vector", vectors("poses", needs="resampled_position"))
def test_vector_poses_resampled(vector: dict[str, Any]) -> None:
    position, quaternion = poses(vector["input"])
    check(position, vector["expected"]["resampled_position"], "position")
    if "resampled_quaternion_wxyz_canonical" in vector["expected"]:
        check(quaternion, vector["expected"]["resampled_quaternion_wxyz_canonical"], "quaternion")


@pytest.mark.parametrize("vector", vectors("poses", needs="last_window"))
def test_vector_poses_by_component(vector: dict[str, Any]) -> None:
    window = vector["input"]["window"]
    position, quaternion = poses(vector["input"])
    for name, expected in vector["expected"]["last_window"].items():
        order = ORDERS[name.removeprefix("TCP-")]
        found = tool_instability(position[-window:], None if quaternion is None else quaternion[-window:], order)
        check(found[:3], expected["pos"], f"{name} pos")
        if "norm_p" in expected:
            check(instability_norm(position[-window:], order), expected["norm_p"], f"{name} norm_p")
        if "ori" in expected:
            check(found[3:], expected["ori"], f"{name} ori")


@pytest.mark.parametrize("vector", vectors("poses", needs="norm_o"))
def test_vector_poses_length_of_orientation_differences(vector: dict[str, Any]) -> None:
    window = vector["input"]["window"]
    turns = rotation_increments(poses(vector["input"])[1][-window:])
    for name, expected in vector["expected"]["last_window"].items():
        order = ORDERS[name.removeprefix("TCP-")]
        lengths = np.linalg.norm(np.diff(turns, n=order - 1, axis=0)[-(window - 3) :], axis=1)
        check(lengths.mean() / 2 ** (order - 1), expected["norm_o"], name)


@pytest.mark.parametrize("vector", vectors("poses"))
def test_vector_poses_through_the_family(vector: dict[str, Any]) -> None:
    given, expected = vector["input"], vector["expected"]
    position, quaternion = poses(given)
    family = ToolMetrics(
        PolicySpec(name="vector", control_hz=1.0 / given["dt"]),
        MonitorConfig(window=given["window"], motion=MotionConfig(length_scale_m=given.get("length_scale", 1.0))),
    )
    for i, r in enumerate(position):
        step = PolicyStep(
            time=i * given["dt"],
            episode_id="e",
            step=i,
            action=np.zeros(7),
            tcp_position=r,
            tcp_quaternion=None if quaternion is None else quaternion[i],
        )
        values = row_of(family, step)
    for name, numbers in expected.get("last_window", {}).items():
        for variant in ("p", "o", "full"):
            if variant in numbers:
                check(values[f"{name.lower().replace('-', '_')}/{variant}"], numbers[variant], f"{name} {variant}")
    if "TI" in expected and given["window"] == 8:
        check(values["ti/full"], expected["TI"]["rms_online_last5"], "TI")


@pytest.mark.parametrize("vector", vectors("poses", needs="TI"))
def test_vector_poses_jerk(vector: dict[str, Any]) -> None:
    position, _ = poses(vector["input"])
    dt, expected = vector["input"]["dt"], vector["expected"]["TI"]
    found = {
        "jerk_gradient": jerk_gradient(position, dt),
        "rms_all": root_mean_square(jerk_gradient(position, dt)),
        "jerk_online": jerk_online(position, dt),
        "rms_online": root_mean_square(jerk_online(position, dt)),
        "rms_online_last5": root_mean_square(jerk_online(position, dt)[-5:]),
        "replicate_series_dt1": published_jerk(position),
        "replicate_episode_mean_dt1": published_jerk(position).mean(),
    }
    for name, values in found.items():
        if name in expected:
            check(values, expected[name], name)


# ---- standing still, sliding maximum


@pytest.mark.parametrize("vector", vectors("later_work", kind="frozen"))
def test_vector_frozen(vector: dict[str, Any]) -> None:
    given = vector["input"]
    motion = MotionConfig(
        frozen_path_m=given["min_path"], frozen_rotation_rad=given["min_rotation"], frozen_gripper=given["min_gripper"], frozen_steps=1
    )
    family = MotionDetector(PolicySpec(name="vector"), MonitorConfig(window=given["window"], motion=motion))
    rows = []
    for i, r in enumerate(given["position"]):
        step = PolicyStep(
            time=i * 0.1,
            episode_id="e",
            step=i,
            action=np.zeros(7),
            tcp_position=array(r),
            tcp_quaternion=array(given["quaternion_wxyz"][i]) if "quaternion_wxyz" in given else None,
            gripper=given["gripper"][i] if "gripper" in given else None,
        )
        rows.append(row_of(family, step))
    check([row["frozen/path"] for row in rows], vector["expected"]["path_length"], "path")
    check([row["frozen/rotation"] for row in rows], vector["expected"]["rotation_path"], "rotation")
    check([row["frozen/flag"] for row in rows], vector["expected"]["frozen"], "flag")


@pytest.mark.parametrize("vector", vectors("later_work", kind="sw_max"))
def test_vector_sliding_maximum(vector: dict[str, Any]) -> None:
    info = ToolMetrics(PolicySpec(name="vector"), MonitorConfig()).infos[-1]
    for window in vector["input"]["windows"]:
        aggregator = Aggregator((info,), window)
        for u in vector["input"]["u"]:
            aggregator.update(np.array([u]), np.array([Status.OK], dtype=np.uint8))
        check(aggregator.summaries()[0].sliding_max, vector["expected"][f"W{window}"], f"W{window}")


# ---- goal


def kind_and_goal(given: dict[str, Any]) -> tuple[str, str]:
    """Our kind of task, and a name that means it."""
    return {"grasp": ("pick", "pick_up"), "put": ("put", "put_on"), "move": ("move", "move_near")}[given["task"]]


@pytest.mark.parametrize("vector", vectors("optimal_trajectory"))
def test_vector_goal_offline(vector: dict[str, Any]) -> None:
    given, expected = vector["input"], vector["expected"]
    kind, _ = kind_and_goal(given)
    found = optimal_trajectory(kind, given["tcp"], given["obj"], given.get("target"), given.get("grasped"), given.get("d_max"))
    for name, values in (
        ("d", found.distance),
        ("d_max", found.d_max),
        ("d_norm", found.normalised),
        ("delta", found.difference),
        ("q", found.q),
        ("regress_sum", found.regress),
        ("q_mean", found.q.mean()),
    ):
        check(values, expected[name], name)
    assert [{True: "transport", False: "reach"}[bool(carried)] for carried in found.transport] == expected["phase"]


@pytest.mark.parametrize("vector", vectors("optimal_trajectory", needs="telescoped"))
def test_vector_goal_mean_tells_start_and_end_only(vector: dict[str, Any]) -> None:
    scaled = vector["expected"]["d_norm"]
    check(0.5 + (scaled[-1] - scaled[0]) / (2 * len(scaled)), vector["expected"]["telescoped"], "telescoped")


@pytest.mark.parametrize("vector", vectors("optimal_trajectory"))
def test_vector_goal_through_the_family(vector: dict[str, Any]) -> None:
    given, expected = vector["input"], vector["expected"]
    _, task = kind_and_goal(given)
    family = GoalMetrics(PolicySpec(name="vector"), MonitorConfig(goal=GoalConfig(d_max_m=given.get("d_max"))))
    rows = []
    for i, tool in enumerate(given["tcp"]):
        goal = Goal(
            task=task,
            object_position=array(given["obj"][i]),
            target_position=array(given["target"][i]) if "target" in given else None,
            grasped=given["grasped"][i] if "grasped" in given else False,
        )
        rows.append(row_of(family, PolicyStep(time=i * 0.1, episode_id="e", step=i, action=np.zeros(7), tcp_position=array(tool), goal=goal)))
    check([row["ot/q"] for row in rows], expected["q"], "q")
    check(rows[-1]["ot/regress"], expected["regress_sum"], "regress")


# ---- samples and plans


def seven(limits: list[float]) -> tuple[float, ...]:
    """Limits of a vector for a PolicySpec."""
    return tuple(float(limit) for limit in limits)


@pytest.mark.parametrize("vector", vectors("execution_variability"))
def test_vector_execution_variability(vector: dict[str, Any]) -> None:
    given, expected = vector["input"], vector["expected"]
    found = execution_variability(given["samples"], given["low"], given["high"])
    check(found, expected["per_dim"], "per_dim")
    for name, part in (("p", found[:3]), ("o", found[3:6]), ("full", found), ("full_no_gripper", found[:6])):
        check(part.mean(), expected[name], name)


@pytest.mark.parametrize("vector", vectors("execution_variability"))
def test_vector_execution_variability_through_the_family(vector: dict[str, Any]) -> None:
    given = vector["input"]
    samples = array(given["samples"])[:, None, :]
    spec = PolicySpec(name="vector", action_low=seven(given["low"]), action_high=seven(given["high"]), samples=samples.shape[0])
    step = PolicyStep(time=0.0, episode_id="e", step=0, action=np.zeros(7), samples=samples)
    values = row_of(SamplingMetrics(spec, MonitorConfig()), step)
    for name in ("full", "p", "o"):  # samples are float32 when live
        np.testing.assert_allclose(values[f"ev/{name}"], vector["expected"][name], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("vector", vectors("later_work", kind="ace"))
def test_vector_chunk_entropy(vector: dict[str, Any]) -> None:
    found = chunk_entropy(vector["input"]["samples"], vector["input"]["cell"])
    check(found, vector["expected"]["per_step"], "per_step")
    check(found.sum(), vector["expected"]["sum"], "sum")


@pytest.mark.parametrize("vector", vectors("later_work", kind="ace"))
def test_vector_chunk_entropy_through_the_family(vector: dict[str, Any]) -> None:
    samples = array(vector["input"]["samples"])
    spec = PolicySpec(name="vector", action_names=("x", "y", "z"), groups={"p": (0, 1, 2)}, action_kind="absolute", samples=samples.shape[0])
    config = MonitorConfig(sampling=SamplingConfig(cell_m=tuple(vector["input"]["cell"])))
    step = PolicyStep(time=0.0, episode_id="e", step=0, action=np.zeros(3), samples=samples)
    check(row_of(SamplingMetrics(spec, config), step)["ace/mean"], vector["expected"]["mean"], "mean")


@pytest.mark.parametrize("vector", vectors("later_work", kind="chunk_overlap"))
def test_vector_chunk_overlap(vector: dict[str, Any]) -> None:
    chunks, expected = array(vector["input"]["chunks"]), vector["expected"]
    pairs = [chunk_overlap(a, b, vector["input"]["executed"]) for a, b in pairwise(chunks)]
    check([single for single, _ in pairs], expected["stac_single"][1:], "stac_single")  # the first plan is 0 there, without a statement here
    check([squared for _, squared in pairs], expected["tce"][1:], "tce")
    check([action_chunk_magnitude(chunk) for chunk in chunks], expected["acm"], "acm")


@pytest.mark.parametrize("vector", vectors("later_work", kind="chunk_overlap"))
def test_vector_chunk_overlap_through_the_family(vector: dict[str, Any]) -> None:
    chunks, executed = array(vector["input"]["chunks"]), vector["input"]["executed"]
    dims = chunks.shape[2]
    spec = PolicySpec(name="vector", action_names=tuple(f"a{i}" for i in range(dims)), groups={}, horizon=chunks.shape[1], executed=executed)
    family = PlanMetrics(spec, MonitorConfig())
    rows = []
    for i in range(len(chunks) * executed):
        chunk, row = chunks[i // executed], i % executed
        step = PolicyStep(time=i * 0.1, episode_id="e", step=i, action=chunk[row], chunk=chunk, chunk_offset=row, inference_id=i // executed)
        rows.append(row_of(family, step))
    for key, name in (("stac_single/full", "stac_single"), ("tce/full", "tce"), ("acm/full", "acm")):
        skip = 0 if name == "acm" else 1
        check([row[key] for row in rows[skip * executed :: executed]], vector["expected"][name][skip:], name)


@pytest.mark.parametrize("vector", vectors("later_work", kind="mmd2"))
def test_vector_mmd2(vector: dict[str, Any]) -> None:
    x, y = vector["input"]["x"], vector["input"]["y"]
    check(mmd2(x, y), vector["expected"]["median"], "median")
    check(mmd2(x, y, vector["expected"]["median_gamma"]), vector["expected"]["median"], "median gamma")
    check(mmd2(x, y, 1.0), vector["expected"]["gamma_1"], "gamma 1")


@pytest.mark.parametrize("vector", vectors("later_work", kind="mmd2"))
def test_vector_mmd2_through_the_family(vector: dict[str, Any]) -> None:
    x, y = array(vector["input"]["x"])[:, :, None], array(vector["input"]["y"])[:, :, None]  # plans of six steps of one dimension
    spec = PolicySpec(name="vector", action_names=("a",), groups={}, horizon=x.shape[1] + 1, samples=x.shape[0])
    before = np.concatenate([np.zeros((x.shape[0], 1, 1)), x], axis=1)
    family = PlanMetrics(spec, MonitorConfig(plans=PlanConfig(stac_gamma=1.0)))
    for i, samples in enumerate((before, y)):
        values = row_of(family, PolicyStep(time=i * 0.1, episode_id="e", step=i, action=[0.0], samples=samples, inference_id=i))
    np.testing.assert_allclose(values["stac/sum"], vector["expected"]["gamma_1"], rtol=1e-6)  # samples are float32 when live


# ---- reversals, weighted entropy


@pytest.mark.parametrize("vector", vectors("later_work", kind="reversal_rate"))
def test_vector_reversal_rate(vector: dict[str, Any]) -> None:
    for eps in vector["input"]["eps"]:
        check(reversal_rate(array(vector["input"]["actions"]), eps), vector["expected"][f"eps_{eps:g}"], f"eps {eps}")


@pytest.mark.parametrize("vector", vectors("later_work", kind="reversal_rate"))
def test_vector_reversal_rate_through_the_family(vector: dict[str, Any]) -> None:
    actions = array(vector["input"]["actions"])
    dims = actions.shape[1]
    spec = PolicySpec(
        name="vector", action_names=tuple(f"a{i}" for i in range(dims)), groups={}, action_low=(-5.0,) * dims, action_high=(5.0,) * dims
    )
    for eps in vector["input"]["eps"]:
        family = ActionMetrics(spec, MonitorConfig(window=len(actions), actions=ActionConfig(reversal_eps=eps / 10.0)))
        rows = [row_of(family, PolicyStep(time=i * 0.1, episode_id="e", step=i, action=a)) for i, a in enumerate(actions)]
        check(rows[-1]["reversal_rate/full"], vector["expected"][f"eps_{eps:g}"], f"eps {eps}")


@pytest.mark.parametrize("vector", vectors("later_work", kind="motion_weighted"))
def test_vector_motion_weighted(vector: dict[str, Any]) -> None:
    given = vector["input"]
    found = motion_weighted(given["entropy"], given["actions"], given["weights"], given["kappa"], given["eps"])
    check(found, vector["expected"]["u"], "u")
    check(sliding_maximum(found, given["window"]), vector["expected"]["score"], "score")


def tokens_of_entropy(entropy: np.ndarray) -> np.ndarray:
    """(D, 2) probabilities whose normalised entropy is as given, (D,); by bisection."""
    low, high = np.full(entropy.shape, 1e-12), np.full(entropy.shape, 0.5)
    for _ in range(60):
        p = (low + high) / 2
        h = -(p * np.log2(p) + (1 - p) * np.log2(1 - p))
        low, high = np.where(h < entropy, p, low), np.where(h < entropy, high, p)
    return np.stack([low, 1 - low], axis=1)


@pytest.mark.parametrize("vector", vectors("later_work", kind="motion_weighted"))
def test_vector_motion_weighted_through_the_family(vector: dict[str, Any]) -> None:
    given = vector["input"]
    spec = PolicySpec(name="vector", token_kind="per_dimension", token_support=(0, 2), vocab_size=2, action_low=(-1.0,) * 7, action_high=(1.0,) * 7)
    tokens = TokenConfig(weights=tuple(given["weights"]), motion_kappa=given["kappa"], motion_eps=given["eps"], sliding="weighted")
    family = TokenMetrics(spec, MonitorConfig(tokens=tokens, sliding_seconds=given["window"] / 10))
    rows = []
    for i, (entropy, action) in enumerate(zip(array(given["entropy"]), array(given["actions"]), strict=True)):
        step = PolicyStep(time=i * 0.1, episode_id="e", step=i, inference_id=i, action=action, token_probs=tokens_of_entropy(entropy))
        rows.append(row_of(family, step))
    np.testing.assert_allclose([row["tb_entropy/weighted"] for row in rows], vector["expected"]["u"], rtol=1e-5)  # float32 when live
    np.testing.assert_allclose(rows[-1]["tb_entropy/sw_max"], vector["expected"]["score"], rtol=1e-5)


@pytest.mark.parametrize("vector", vectors("later_work", kind="sw_max"))
def test_vector_sliding_maximum_offline(vector: dict[str, Any]) -> None:
    for window in vector["input"]["windows"]:
        check(sliding_maximum(vector["input"]["u"], window), vector["expected"][f"W{window}"], f"W{window}")


# ---- stream rules


@pytest.mark.parametrize("vector", vectors("stream"))
def test_vector_stream_rules(vector: dict[str, Any]) -> None:
    spec = PolicySpec(name="vector", action_names=("a",), groups={}, action_low=(0.0,), action_high=(1.0,))
    config = MonitorConfig.model_validate({"window": vector["input"]["window"], "alarms": dict.fromkeys(default_alarms())})
    monitor = Monitor(spec, config, metrics=[ActionMetrics(spec, config)])
    for i, (event, expected) in enumerate(zip(vector["input"]["events"], vector["expected"]["outputs"], strict=True)):
        value = float(event["value"])
        report = monitor.update(PolicyStep(time=0.1 * i, episode_id=event["episode"], step=event["step"], action=np.array([value])))
        wanted = {"duplicate": "duplicate", "late": "late"}.get(expected["reason"], "accepted")
        assert report.verdict == wanted
        status = {"nonfinite": Status.INVALID, "ok": Status.OK, "warming_up": Status.WARMING_UP}.get(expected["reason"], Status.UNAVAILABLE)
        for name in ORDERS:
            given = report[f"a_{name.lower()}/full"]
            assert given.status is status, f"event {i}"
            check(np.nan if given.value is None else given.value, expected[f"A-{name}"], f"event {i} A-{name}")
    counters = vector["expected"]["counters"]
    assert (monitor.counters["duplicate"], monitor.counters["late"]) == (counters["duplicate"], counters["late"])
    # the vector counts the step after an unusable action as a gap too; here such an action has a counter of its own
    assert monitor.counters["gap"] + monitor.counters["action_not_finite"] == counters["gap"]
    assert (monitor.counters["episodes"], monitor.counters["action_not_finite"]) == (counters["episode"], counters["nonfinite"])


# ---- the published package


@pytest.mark.parametrize("vector", [p for p in vectors("tokens") if "package_5dec" in p.values[0]])
def test_vector_published_token_scores(vector: dict[str, Any]) -> None:
    found = published_token_scores(array(vector["input"]["logits"]))
    for name, field in SCORES.items():
        np.testing.assert_allclose(found[field], vector["package_5dec"][name], atol=1.2e-5, err_msg=name)


@pytest.mark.parametrize("vector", vectors("actions", needs="episode_mean_replicate"))
def test_vector_published_action_series(vector: dict[str, Any]) -> None:
    given = vector["input"]
    for name, order in ORDERS.items():
        series = published_action_series(given["actions"], order, given["low"], given["high"])
        check(published_run_value(series), vector["expected"][f"A-{name}"]["episode_mean_replicate"], f"A-{name}")


@pytest.mark.parametrize("vector", vectors("poses", needs="replicate_episode_mean_dt1"))
def test_vector_published_jerk(vector: dict[str, Any]) -> None:
    position, _ = poses(vector["input"])
    check(published_jerk_mean(position), vector["expected"]["TI"]["replicate_episode_mean_dt1"], "mean")

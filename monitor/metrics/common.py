"""What the families share: making infos, plain arrays, and sentences about bad data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.config import MonitorConfig
from monitor.policy import PolicySpec
from monitor.steps import Family, Issue, MetricInfo, PolicyStep, Status

SOURCE = "Valle et al., arXiv 2507.17049"
GROUPS = ("p", "o", "gripper")
NO_FLOATS: NDArray[np.float64] = np.zeros(0)
NO_FLOATS32: NDArray[np.float32] = np.zeros(0, dtype=np.float32)
NO_IDS: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
_MOST_ROWS = 8


def plain(array: NDArray[Any]) -> NDArray[Any]:
    """The array itself, or a copy if it is read-only, unaligned or not contiguous, so that kernels are compiled for one layout only."""
    return array if array.flags.carray else np.array(array, order="C")


def group_masks(spec: PolicySpec, groups: tuple[str, ...] = GROUPS) -> NDArray[np.bool_]:
    """(len(groups), D): which action dimensions belong to each group; a group that the policy lacks has none."""
    mask = np.zeros((len(groups), spec.action_dim), dtype=np.bool_)
    for row, group in enumerate(groups):
        mask[row, list(spec.groups.get(group, ()))] = True
    return mask


def make_info(
    metric: str,
    variant: str,
    label: str,
    family: Family,
    formula: str,
    *,
    unit: str = "1",
    low: float = 0.0,
    high: float = float("inf"),
    higher_means: str,
    source: str = SOURCE,
) -> MetricInfo:
    """A MetricInfo with the defaults of this package: unit 1, range 0 to inf."""
    return MetricInfo(
        id=metric,
        variant=variant,
        label=label,
        family=family,
        unit=unit,
        low=low,
        high=high,
        higher_means=higher_means,
        formula=formula,
        source=source,
    )


def bad_numbers(row: NDArray[np.float64], names: tuple[str, ...]) -> str:
    """Which entries of a row are NaN or infinite: `3 (drx) is NaN`. `row` and `names` have equal length."""
    parts = []
    for word, found in (("NaN", np.isnan(row)), ("infinite", np.isinf(row))):
        where = np.flatnonzero(found)
        if where.size:
            parts.append(f"{', '.join(f'{i} ({names[i]})' for i in where)} {'is' if where.size == 1 else 'are'} {word}")
    return "; ".join(parts)


def action_issue(spec: PolicySpec, action: NDArray[np.float64]) -> Issue:
    """What is wrong with an action of wrong length or with non-finite entries."""
    if action.shape[0] != spec.action_dim:
        return Issue("action_shape", f"action has {action.shape[0]} numbers, expected {spec.action_dim} ({', '.join(spec.action_names)})")
    return Issue("action_not_finite", f"action dimension {bad_numbers(action, spec.action_names)}")


def chunk_issue(spec: PolicySpec, chunk: NDArray[np.float64]) -> Issue:
    """What is wrong with a chunk of wrong width or with non-finite rows."""
    if chunk.shape[1] != spec.action_dim:
        return Issue("chunk_shape", f"chunk has {chunk.shape[1]} columns, expected {spec.action_dim} ({', '.join(spec.action_names)})")
    bad = np.flatnonzero(~np.isfinite(chunk).all(axis=1))
    rows = [f"chunk row {i}: {bad_numbers(chunk[i], spec.action_names)}" for i in bad[:_MOST_ROWS]]
    more = f"; and {bad.size - _MOST_ROWS} more rows" if bad.size > _MOST_ROWS else ""
    return Issue("chunk_not_finite", "; ".join(rows) + more)


def token_width_issue(spec: PolicySpec, width: int) -> Issue:
    """Token logits or probabilities with a number of columns that fits neither the action ids nor the whole head."""
    start, stop = spec.token_support or (0, 0)
    return Issue("token_width", f"token logits have {width} columns, expected {stop - start} (action ids) or {spec.vocab_size} (whole head)")


def token_rows_issue(invalid: NDArray[np.bool_]) -> Issue:
    """Which tokens of an inference are unusable."""
    rows = np.flatnonzero(invalid)
    named = ", ".join(str(i) for i in rows[:_MOST_ROWS]) + (f" and {rows.size - _MOST_ROWS} more" if rows.size > _MOST_ROWS else "")
    return Issue("token_rows_invalid", f"{rows.size} of {invalid.size} token rows hold NaN or +inf, or no finite action id: {named}")


def range_of(
    spec: PolicySpec, low: tuple[float, ...] | None, high: tuple[float, ...] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Lower and upper limits (D,) of the actions: the given ones, else the policy's own; None when one side is nowhere."""
    chosen_low, chosen_high = low or spec.action_low, high or spec.action_high
    if chosen_low is None or chosen_high is None:
        return None
    return np.array(chosen_low, dtype=np.float64), np.array(chosen_high, dtype=np.float64)


def new_inference(step: PolicyStep, last: int | None) -> bool:
    """Whether the step carries a policy call that is not the one numbered `last`; calls without numbers are known by what they bring."""
    if step.inference_id != last:
        return True
    return step.chunk_offset == 0 and (step.inference_seconds is not None or step.token_logits is not None)


def max_age_steps(spec: PolicySpec, config: MonitorConfig) -> int:
    """Steps after which the values of an inference are stale: as configured, else twice the executed steps, at least one second."""
    return config.timing.max_age_steps or max(2 * spec.executed, math.ceil(spec.control_hz))


def hold(born: int, step: int, max_age: int, held: NDArray[np.float64], held_statuses: NDArray[np.uint8], values: Any, statuses: Any) -> None:
    """Copy the row of the inference of step `born` into the row of this step; what was stated is stale after `max_age` steps."""
    values[:], statuses[:] = held, held_statuses
    if step - born > max_age:
        old = statuses == Status.OK
        values[old], statuses[old] = np.nan, Status.STALE


def once(issue: Issue, told: set[str]) -> tuple[Issue, ...]:
    """The issue, unless its code is in `told`, to which it is added: for what is said once an episode."""
    if issue.code in told:
        return ()
    told.add(issue.code)
    return (issue,)

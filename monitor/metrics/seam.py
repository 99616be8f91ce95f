"""Seams: whether a new chunk begins where the last one ended, and whether it jumps inside."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from monitor.config import MonitorConfig
from monitor.metrics.common import NO_FLOATS, group_masks, make_info, new_inference, plain, range_of
from monitor.metrics.plan_kernels import seam_jumps
from monitor.metrics.validity import count_bad_rows
from monitor.policy import PolicySpec
from monitor.steps import Family, Issue, MetricInfo, PolicyStep, Status

Float = NDArray[np.float64]
_JUMP, _INSIDE = range(2)
_SOURCE = "field report huggingface/lerobot PR 4454; no paper defines it"


class SeamMetrics:
    """The largest jump at the start of a chunk and inside it, in usual steps of that dimension.

    Said when the chunk arrives, held while it is executed. The gripper is left out, and so are absolute rotations, which jump where the angle wraps.
    The first chunk of an episode is compared with the measured joints where actions are absolute joint targets.
    """

    def __init__(self, spec: PolicySpec, config: MonitorConfig) -> None:
        """Prepare, and compile if the policy plans ahead."""
        self.infos = _infos()
        self._spec, self._limit = spec, config.plans.seam_ratio
        self._absolute = spec.action_kind == "absolute"
        _, rotation, gripper = group_masks(spec)
        self._used = ~gripper & ~(rotation & self._absolute)
        limits = range_of(spec, config.actions.low, config.actions.high)
        span = np.zeros(spec.action_dim) if limits is None else np.nan_to_num(limits[1] - limits[0], posinf=0.0, neginf=0.0)
        self._floor = np.maximum(span, 0.0) * config.plans.seam_floor
        self._none = np.zeros((0, spec.action_dim))
        self._joints = np.flatnonzero(~gripper) if self._absolute and not rotation.any() else None
        self._values, self._statuses, self._out = np.empty(2), np.empty(2, dtype=np.uint8), np.empty(6)
        if spec.horizon > 1:
            table = np.zeros((2, spec.action_dim))
            count_bad_rows(table)
            seam_jumps(self._none, NO_FLOATS, table, 0, self._used, self._floor, self._absolute, self._out)
        self.reset()

    def reset(self) -> None:
        """Forget the episode."""
        self._values[:], self._statuses[:] = np.nan, Status.UNAVAILABLE
        self._inference: int | None = None
        self._chunk: Float | None = None
        self._row = 0
        self._last_step = -2

    def update(self, step: PolicyStep, values: Float, statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        """Take one step; see Metric."""
        if step.chunk is None and self._chunk is None:
            return ()
        issues: tuple[Issue, ...] = ()
        if new_inference(step, self._inference):
            issues = self._arrive(step)
        self._inference, self._row, self._last_step = step.inference_id, step.chunk_offset, step.step
        values[:], statuses[:] = self._values, self._statuses
        return issues

    def _arrive(self, step: PolicyStep) -> tuple[Issue, ...]:
        previous, self._chunk = self._chunk, None
        self._values[:], self._statuses[:] = np.nan, Status.UNAVAILABLE
        if step.chunk is None or step.chunk.shape[0] < 2:
            return ()
        chunk = plain(step.chunk)
        if chunk.shape[1] != self._spec.action_dim or count_bad_rows(chunk) or not 0 <= step.chunk_offset < chunk.shape[0]:
            self._statuses[:] = Status.INVALID  # the validity metrics say what is wrong
            return ()
        self._chunk = chunk.copy()
        before = self._before(step, previous)
        seam_jumps(self._none if previous is None else previous, before, chunk, step.chunk_offset, self._used, self._floor, self._absolute, self._out)
        for at, ratio in ((_JUMP, self._out[0]), (_INSIDE, self._out[3])):
            if not np.isnan(ratio):
                self._values[at], self._statuses[at] = ratio, Status.OK
        return self._issues(step, chunk)

    def _before(self, step: PolicyStep, previous: Float | None) -> Float:
        """What the robot was last told, or where its joints are at the start; empty if not known."""
        if previous is None:
            joints = step.joints
            if self._joints is None or joints is None or joints.shape[0] != self._joints.size or not np.isfinite(joints).all():
                return NO_FLOATS
            row = np.array(step.chunk[step.chunk_offset]) if step.chunk is not None else np.zeros(self._spec.action_dim)
            row[self._joints] = joints
            return row
        if step.step != self._last_step + 1 or not 0 <= self._row < previous.shape[0]:
            return NO_FLOATS
        return np.array(previous[self._row])

    def _issues(self, step: PolicyStep, chunk: Float) -> tuple[Issue, ...]:
        jump, dim, size, inside, where, row = self._out.tolist()
        names = self._spec.action_names
        found: tuple[Issue, ...] = ()
        if jump > self._limit:
            text = (
                f"step {step.step}: the chunk begins {size:.3g} away from the last command in {int(dim)} ({names[int(dim)]}), {jump:.3g} usual steps"
            )
            found += (Issue("chunk_jump", text),)
        if inside > self._limit:
            size = abs(chunk[int(row), int(where)] - chunk[int(row) - 1, int(where)])
            text = (
                f"step {step.step}: row {int(row)} of the chunk jumps by {size:.3g} in {int(where)} ({names[int(where)]}), {inside:.3g} usual steps"
            )
            found += (Issue("chunk_jump_inside", text),)
        return found


def _infos() -> tuple[MetricInfo, ...]:
    usual = "over the usual step, the upper quartile of |a_i - a_i-1| in this chunk and the one before"
    rows = (
        ("jump", "Chunk jump", f"largest over dimensions of |first executed row - last command| {usual}"),
        ("inside", "Jump in chunk", f"largest over rows and dimensions of |a_i - a_i-1| {usual}"),
    )
    return tuple(
        make_info("seam", variant, label, Family.VALIDITY, formula, unit="steps", higher_means="larger jump", source=_SOURCE)
        for variant, label, formula in rows
    )

"""EV and ACE: how far several action samples of one observation lie apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.config import MonitorConfig
from monitor.metrics.common import GROUPS, group_masks, hold, make_info, max_age_steps, new_inference, plain, range_of
from monitor.metrics.plan_kernels import all_finite, cell_entropy, mean_cell_entropy, spread
from monitor.policy import PolicySpec
from monitor.steps import Family, Float32, Issue, MetricInfo, PolicyStep, Status

Float = NDArray[np.float64]
_CELL = 0.03  # of the range of positions; arXiv 2510.09459
_ACE = 4


def execution_variability(samples: ArrayLike, low: ArrayLike, high: ArrayLike) -> Float:
    """EV by dimension: population standard deviation of n actions (n, D), each scaled to the range and clipped; (D,), NaN without a range."""
    table = np.array(samples, dtype=np.float64)
    out = np.empty(table.shape[1])
    spread(table[:, None, :].copy(), 0, np.array(low, dtype=np.float64), np.array(high, dtype=np.float64), out)
    return out


def chunk_entropy(positions: ArrayLike, cell: ArrayLike) -> Float:
    """ACE by step: entropy in bits of B sampled positions (B, H, 3) on a joint grid of `cell` (3,) anchored at the batch minimum; (H,)."""
    table, size = np.array(positions, dtype=np.float64), np.array(cell, dtype=np.float64)
    labels = np.empty((table.shape[0], 3), dtype=np.int64)
    return np.array([cell_entropy(table[:, i].copy(), size, labels) for i in range(table.shape[1])])


class SamplingMetrics:
    """Spread of the samples of an inference, held while its actions are executed. EV is of the action that is executed, ACE of the whole plans."""

    def __init__(self, spec: PolicySpec, config: MonitorConfig) -> None:
        """Prepare, and compile if the policy gives samples."""
        self.infos = _infos()
        self._spec, self._max_age = spec, max_age_steps(spec, config)
        self._limits = range_of(spec, config.actions.low, config.actions.high)
        self._mask = np.vstack([np.ones((1, spec.action_dim), dtype=np.bool_), group_masks(spec, GROUPS)])
        self._delta = spec.action_kind == "delta"
        self._positions = np.array(spec.groups.get("p", ()), dtype=np.int64)
        self._most = config.sampling.ace_samples
        self._cell = _cell(spec, config, self._limits)
        self._by_dim = np.empty(spec.action_dim)
        self._values, self._statuses = np.empty(len(self.infos)), np.empty(len(self.infos), dtype=np.uint8)
        if spec.samples > 1:
            table, ones = np.zeros((2, 1, spec.action_dim), dtype=np.float32), np.ones(spec.action_dim)
            all_finite(table)
            spread(table, 0, -ones, ones, self._by_dim)
            mean_cell_entropy(table, np.zeros(3, dtype=np.int64), self._delta, np.ones(3))
        self.reset()

    def reset(self) -> None:
        """Forget the episode."""
        self._values[:], self._statuses[:] = np.nan, Status.UNAVAILABLE
        self._inference: int | None = None
        self._given, self._born = False, 0

    def update(self, step: PolicyStep, values: Float, statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        """Take one step; see Metric."""
        if step.samples is None and not self._given:
            return ()
        issues: tuple[Issue, ...] = ()
        if new_inference(step, self._inference):
            self._inference, self._given, self._born = step.inference_id, step.samples is not None, step.step
            self._values[:], self._statuses[:] = np.nan, Status.UNAVAILABLE
            if step.samples is not None:
                issues = self._arrive(plain(step.samples), step.chunk_offset)
        hold(self._born, step.step, self._max_age, self._values, self._statuses, values, statuses)
        return issues

    def _arrive(self, samples: Float32, row: int) -> tuple[Issue, ...]:
        count, rows, dims = samples.shape
        if dims != self._spec.action_dim:
            self._statuses[:] = Status.INVALID
            return (Issue("samples_shape", f"samples have {dims} columns, expected {self._spec.action_dim} ({', '.join(self._spec.action_names)})"),)
        if count < 2 or rows == 0:
            return ()
        if not all_finite(samples):
            self._statuses[:] = Status.INVALID
            return (Issue("samples_not_finite", "a sample holds NaN or infinity"),)
        if self._limits is not None:
            spread(samples, min(max(row, 0), rows - 1), *self._limits, self._by_dim)
            known = ~np.isnan(self._by_dim)
            for at in range(_ACE):
                members = self._mask[at] & known
                if members.any():
                    self._values[at], self._statuses[at] = self._by_dim[members].mean(), Status.OK
        if self._cell is not None:
            self._values[_ACE] = mean_cell_entropy(samples[: self._most], self._positions, self._delta, self._cell)
            self._statuses[_ACE] = Status.OK
        return ()


def _cell(spec: PolicySpec, config: MonitorConfig, limits: tuple[Float, Float] | None) -> Float | None:
    """The grid of ACE (3,), m: as configured, else a share of the range of positions; of increments, of what a whole plan can reach."""
    dims = list(spec.groups.get("p", ()))
    if len(dims) != 3:
        return None
    if config.sampling.cell_m is not None:
        return np.array(config.sampling.cell_m)
    if limits is None:
        return None
    cell = _CELL * (limits[1] - limits[0])[dims] * (spec.horizon if spec.action_kind == "delta" else 1)
    return np.asarray(cell) if np.isfinite(cell).all() and (cell > 0.0).all() else None


def _infos() -> tuple[MetricInfo, ...]:
    over = {"full": "all dimensions", "p": "position dimensions", "o": "rotation dimensions", "gripper": "the gripper"}
    formula = "population standard deviation of the samples of the executed action, scaled to the range and clipped; mean over "
    infos = [
        make_info("ev", variant, "EV", Family.SAMPLING, formula + over[variant], high=0.5, higher_means="more dispersed")
        for variant in ("full", *GROUPS)
    ]
    infos.append(
        make_info(
            "ace",
            "mean",
            "ACE",
            Family.SAMPLING,
            "entropy of the sampled positions on a joint grid of cell_m, anchored at the smallest; mean over the steps of the plan",
            unit="bit",
            higher_means="more dispersed",
            source="FIPER, arXiv 2510.09459",
        )
    )
    return tuple(infos)

"""STAC-single, TCE, ACM and STAC: whether successive plans of a policy agree about the same future steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.config import MonitorConfig
from monitor.metrics.common import group_masks, hold, make_info, max_age_steps, new_inference, plain
from monitor.metrics.plan_kernels import all_finite, flatten, length, overlap, squared_mmd
from monitor.metrics.validity import count_bad_rows
from monitor.policy import PolicySpec
from monitor.steps import Family, Float32, Issue, MetricInfo, PolicyStep, Status

Float = NDArray[np.float64]
_SINGLE, _TCE, _ACM, _STAC = range(4)


def chunk_overlap(previous: ArrayLike, current: ArrayLike, executed: int) -> tuple[float, float]:
    """STAC-single and TCE of two plans, both (H, D), of which the second was made `executed` steps after the first.

    Returns:
        Mean Euclidean distance and mean squared difference over the steps that both plans hold; NaN if there is none.
    """
    out = np.empty(2)
    overlap(np.array(previous, dtype=np.float64), np.array(current, dtype=np.float64), executed, out)
    return float(out[0]), float(out[1])


def action_chunk_magnitude(chunk: ArrayLike) -> float:
    """ACM: Euclidean norm of all numbers of a plan (H, D)."""
    return float(length(np.array(chunk, dtype=np.float64)))


def mmd2(x: ArrayLike, y: ArrayLike, gamma: float | None = None) -> float:
    """Squared maximum mean discrepancy (biased, Gaussian kernel exp(-gamma d^2)) of samples x (n, F) and y (m, F).

    `gamma` None stands for 1 / (2 x median of the non-zero squared distances of all samples).
    """
    first = np.array(x, dtype=np.float64)
    return float(squared_mmd(np.vstack([first, np.array(y, dtype=np.float64)]), first.shape[0], 0.0 if gamma is None else gamma))


class PlanMetrics:
    """Disagreement of overlapping plans, said when an inference arrives and held while its actions are executed.

    Distances are in the action's own units over all dimensions, as published; STAC leaves the gripper out and sums over the episode. Plans that do
    not overlap are not compared.
    """

    def __init__(self, spec: PolicySpec, config: MonitorConfig) -> None:
        """Compile if the policy plans ahead."""
        self.infos = _infos()
        self._spec, self._most = spec, config.plans.stac_samples
        self._gamma, self._max_age = config.plans.stac_gamma or 0.0, max_age_steps(spec, config)
        self._used = ~group_masks(spec, ("gripper",))[0]
        self._values, self._statuses, self._out = np.empty(4), np.empty(4, dtype=np.uint8), np.empty(2)
        if spec.horizon > 1:
            table = np.zeros((2, spec.action_dim))
            overlap(table, table, 1, self._out)
            length(table)
            count_bad_rows(table)
        if spec.horizon > 1 and spec.samples > 1:
            self._compile_stac()
        self.reset()

    def _compile_stac(self) -> None:
        samples, points = np.zeros((2, 1, self._spec.action_dim), dtype=np.float32), np.zeros((4, self._spec.action_dim))
        all_finite(samples)
        flatten(samples, 2, 0, 1, self._used, points, 0)
        squared_mmd(points, 2, self._gamma)

    def reset(self) -> None:
        """Forget the episode."""
        self._values[:], self._statuses[:] = np.nan, Status.UNAVAILABLE
        self._inference: int | None = None
        self._plan: Float | None = None
        self._samples: Float32 | None = None
        self._origin = self._born = 0
        self._total = 0.0

    def update(self, step: PolicyStep, values: Float, statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        """Take one step; see Metric."""
        if step.chunk is None and step.samples is None and self._plan is None and self._samples is None:
            return ()
        if new_inference(step, self._inference):
            self._inference, self._born = step.inference_id, step.step
            self._arrive(step)
        hold(self._born, step.step, self._max_age, self._values, self._statuses, values, statuses)
        return ()

    def _arrive(self, step: PolicyStep) -> None:
        self._values[:], self._statuses[:] = np.nan, Status.UNAVAILABLE
        origin = step.step - step.chunk_offset
        shift = origin - self._origin
        self._origin = origin
        self._compare_plans(step.chunk, shift)
        self._compare_samples(step.samples, shift)

    def _compare_plans(self, chunk: Float | None, shift: int) -> None:
        before, self._plan = self._plan, None
        if chunk is None:
            return
        chunk = plain(chunk)
        if chunk.shape[1] != self._spec.action_dim or chunk.shape[0] == 0 or count_bad_rows(chunk):
            self._statuses[:_STAC] = Status.INVALID  # the validity metrics say what is wrong
            return
        self._plan = chunk.copy()
        self._values[_ACM], self._statuses[_ACM] = length(chunk), Status.OK
        if before is None:
            self._statuses[:_ACM] = Status.WARMING_UP if chunk.shape[0] > 1 else Status.UNAVAILABLE
        elif shift > 0 and overlap(before, chunk, shift, self._out):
            self._values[:_ACM], self._statuses[:_ACM] = self._out, Status.OK

    def _compare_samples(self, samples: Float32 | None, shift: int) -> None:
        before, self._samples = self._samples, None
        if samples is None or samples.shape[0] < 2:
            return
        samples = plain(samples)
        if samples.shape[2] != self._spec.action_dim or not all_finite(samples):
            self._statuses[_STAC] = Status.INVALID  # the sampling metrics say what is wrong
            return
        self._samples = samples[: self._most].copy()
        if before is None:
            self._statuses[_STAC] = Status.WARMING_UP if samples.shape[1] > 1 else Status.UNAVAILABLE
            return
        rows = min(before.shape[1] - shift, samples.shape[1])
        if shift <= 0 or rows < 1:
            return
        points = np.empty((before.shape[0] + self._samples.shape[0], rows * int(self._used.sum())))
        flatten(before, before.shape[0], shift, rows, self._used, points, 0)
        flatten(self._samples, self._samples.shape[0], 0, rows, self._used, points, before.shape[0])
        self._total += squared_mmd(points, before.shape[0], self._gamma)
        self._values[_STAC], self._statuses[_STAC] = self._total, Status.OK


def _infos() -> tuple[MetricInfo, ...]:
    common = "over the steps that the last plan and the one before both hold"
    rows = (
        ("stac_single", "full", "STAC-single", f"mean Euclidean distance {common}", "action", "plans disagree more", "SAFE, arXiv 2506.09937"),
        ("tce", "full", "TCE", f"mean squared difference {common}", "action^2", "plans disagree more", "ActProbe, arXiv 2606.08508"),
        ("acm", "full", "ACM", "Euclidean norm of the whole plan", "action", "larger plan", "ActProbe, arXiv 2606.08508"),
        (
            "stac",
            "sum",
            "STAC",
            f"sum over the episode's inferences of the squared MMD of the samples {common}, gripper left out",
            "1",
            "plans disagree more",
            "Sentinel, arXiv 2410.04640",
        ),
    )
    return tuple(
        make_info(metric, variant, label, Family.PLAN, formula, unit=unit, higher_means=meaning, source=source)
        for metric, variant, label, formula, unit, meaning, source in rows
    )

"""A-PI, A-VI, A-AI and the reversal rate: how steady the commanded actions are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from monitor.config import MonitorConfig
from monitor.errors import ConfigError
from monitor.metrics.common import GROUPS, action_issue, group_masks, make_info, plain, range_of
from monitor.metrics.window_kernels import ORDERS, mean_difference, normalise, reversals, update_actions
from monitor.policy import PolicySpec
from monitor.steps import Family, Issue, MetricInfo, PolicyStep, Status

VARIANTS = ("full", *GROUPS, "no_gripper")
_LABELS = (("a_pi", "A-PI"), ("a_vi", "A-VI"), ("a_ai", "A-AI"))
_OVER = {
    "full": "all dimensions, gripper included",
    "p": "position dimensions",
    "o": "rotation dimensions",
    "gripper": "the gripper",
    "no_gripper": "position and rotation dimensions",
}


def normalised(action: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    """clip((action - low) / (high - low), 0, 1), all (D,); NaN where high is not above low or the action is not finite."""
    out = np.empty(action.shape[0])
    normalise(plain(action), low, high, out)
    return out


def instability(window: NDArray[np.float64], order: int) -> NDArray[np.float64]:
    """Mean absolute difference of `order` 1 to 3 for each column of a window, over 2**(order - 1).

    Args:
        window: (W, D), oldest first, W >= 4. The last W - 3 differences count, whatever the order.
        order: 1 (A-PI), 2 (A-VI) or 3 (A-AI).

    Returns:
        (D,), in the unit of the window. Within [0, 1] for values within [0, 1].

    Raises:
        ValueError: the window is shorter than 4 or the order is another.
    """
    length, dims = window.shape
    if length <= ORDERS or order not in range(1, ORDERS + 1):
        raise ValueError(f"window of {length} and order {order}; expected a window of at least 4 and order 1, 2 or 3")
    rows = plain(window)
    return np.array([mean_difference(rows, length, d, order, length - ORDERS) / 2.0 ** (order - 1) for d in range(dims)])


def instability_norm(window: NDArray[np.float64], order: int) -> float:
    """Mean Euclidean length of the differences of `order`, over 2**(order - 1): one number for all columns of a window (W, D), as `instability`."""
    differences = np.diff(window, n=order, axis=0)[-(window.shape[0] - ORDERS) :]
    return float(np.linalg.norm(differences, axis=1).mean()) / 2.0 ** (order - 1)


def reversal_rate(actions: NDArray[np.float64], eps: float = 0.0) -> float:
    """Share of (step, dimension) pairs of (T, D) actions at which successive differences have opposite sign; those of at most `eps` count as 0."""
    return float(reversals(plain(actions), 0, actions.shape[0], np.ones(actions.shape[1], dtype=np.bool_), eps))


class ActionMetrics:
    """A-PI, A-VI, A-AI and reversal rate of the actions, normalised to the policy's range, over the last W steps without a gap.

    Dimensions without a range are left out. An action of wrong length or with NaN counts as missing: the step is invalid, and the window
    starts anew after it.
    """

    def __init__(self, spec: PolicySpec, config: MonitorConfig) -> None:
        """Prepare buffers and compile. Raises ConfigError when the configured range has another length than the action."""
        self.infos = _infos()
        self._spec, self._raw = spec, config.actions.source == "raw"
        dims = spec.action_dim
        for name, limits in (("low", config.actions.low), ("high", config.actions.high)):
            if limits is not None and len(limits) != dims:
                raise ConfigError(
                    f"actions.{name} has {len(limits)} numbers, but {spec.name} has {dims} action dimensions ({', '.join(spec.action_names)})"
                )
        self._limits = range_of(spec, config.actions.low, config.actions.high)
        self._eps = config.actions.reversal_eps
        self._mask, self._notice = _masks_and_notice(spec, self._limits is not None)
        self._ring, self._work, self._state = np.empty((2 * config.window, dims)), np.empty(dims), np.zeros(3, dtype=np.int64)
        self.reset()
        if self._limits is not None:
            self._take(np.zeros(dims), 0, np.empty(len(self.infos)), np.empty(len(self.infos), dtype=np.uint8))
            self.reset()

    def reset(self) -> None:
        """Forget the episode."""
        self._state[:] = (0, 0, -2)
        self._told = False

    def update(self, step: PolicyStep, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        """Take one step; see Metric."""
        issues: tuple[Issue, ...] = ()
        if self._notice is not None and not self._told:
            self._told, issues = True, (self._notice,)
        if self._limits is None:
            return issues
        action = step.raw_action if self._raw else step.action
        if action is None:
            return issues
        if action.shape[0] != self._work.shape[0]:
            statuses[:] = Status.INVALID
            return (*issues, action_issue(self._spec, action))
        return issues if self._take(plain(action), step.step, values, statuses) else (*issues, action_issue(self._spec, action))

    def _take(self, action: NDArray[np.float64], step: int, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> bool:
        assert self._limits is not None
        low, high = self._limits
        return update_actions(action, low, high, self._mask, self._ring, self._work, self._state, step, self._eps, values, statuses)


def _masks_and_notice(spec: PolicySpec, has_range: bool) -> tuple[NDArray[np.bool_], Issue | None]:
    groups = group_masks(spec)
    full, no_gripper = np.ones((1, spec.action_dim), dtype=np.bool_), groups[:1] | groups[1:2]
    if not has_range:
        notice = Issue(
            "action_range", f"{spec.name} declares no action range: A-PI, A-VI, A-AI and reversals are unavailable; set actions.low and actions.high"
        )
        return np.vstack([full, groups, no_gripper]), notice
    if spec.action_kind == "absolute" and groups[1].any():
        rotation = groups[1].copy()
        mask = np.vstack([full, groups, no_gripper]) & ~rotation
        return mask, Issue(
            "action_rotation", "absolute rotation targets jump where the angle wraps: they are left out of A-PI, A-VI, A-AI and reversals"
        )
    return np.vstack([full, groups, no_gripper]), None


def _infos() -> tuple[MetricInfo, ...]:
    scaled = "n = clip((a - low) / (high - low), 0, 1)"
    infos = [
        make_info(
            metric,
            variant,
            label,
            Family.ACTION,
            f"mean |Δ^{order} n| / {2 ** (order - 1)} over the last W - 3 differences and {_OVER[variant]}; {scaled}",
            high=1.0,
            higher_means="less steady",
        )
        for order, (metric, label) in enumerate(_LABELS, start=1)
        for variant in VARIANTS
    ]
    formula = f"share of steps and dimensions over the last W actions at which Δn changes its sign, both beyond reversal_eps; {scaled}"
    source = "arXiv 2605.28726"
    infos.append(
        make_info("reversal_rate", "full", "Reversals", Family.ACTION, formula, high=1.0, higher_means="turns back more often", source=source)
    )
    return tuple(infos)

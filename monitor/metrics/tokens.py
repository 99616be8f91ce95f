"""TB-E, TB-TP, TB-PCS, TB-D and leak: how sure the policy is of the action tokens it emits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.config import MonitorConfig
from monitor.errors import ConfigError
from monitor.metrics.common import GROUPS, NO_FLOATS32, NO_IDS, group_masks, hold, make_info, max_age_steps, plain, range_of, token_width_issue
from monitor.metrics.kernels import (
    DEEPGINI,
    ENTROPY,
    LEAK,
    MAX_PROB,
    PCS,
    ROW_COLUMNS,
    SCORES,
    VALID,
    aggregate_tokens,
    probabilities_to_logits,
    score_tokens,
    score_topk,
    update_score,
    update_tokens,
)
from monitor.policy import PolicySpec
from monitor.steps import Family, Float, Issue, MetricInfo, PolicyStep, Status

VARIANTS = ("full", *GROUPS, "max", "window")
_ENTRIES = SCORES * len(VARIANTS) + 4
_FIRST_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScores:
    """Scores of n tokens, each (n,): within [0, 1], 0 certain; NaN for an invalid token, and for the leak where it is not known."""

    entropy: Float
    max_prob: Float
    pcs: Float
    deepgini: Float
    leak: Float
    valid: NDArray[np.bool_]


def token_metrics(logits: ArrayLike, support: Sequence[int] | None = None) -> TokenScores:
    """Score tokens from their logits.

    Args:
        logits: (n, C). -inf is probability 0 and still counts as a class.
        support: the ids over which the softmax goes, for example range(31744, 32000); default: all columns. What lies outside is the leak.

    Returns:
        TB-E, TB-TP, TB-PCS, TB-D and the leak of each token. A row with NaN or +inf anywhere, or without a finite logit in the support, is invalid.

    Raises:
        ValueError: the logits have another number of axes, or the support is empty or outside the columns.
    """
    given = np.asarray(logits)
    table = np.ascontiguousarray(given, dtype=np.float32 if given.dtype in (np.float16, np.float32) else np.float64)
    if table.ndim != 2:
        raise ValueError(f"logits of shape {table.shape}, expected (tokens, classes)")
    width = table.shape[1]
    ids = np.arange(width) if support is None else np.unique(np.asarray(support, dtype=np.int64))
    if ids.size == 0 or ids.min() < 0 or ids.max() >= width:
        raise ValueError(f"support {support} does not fit logits of {width} columns")
    if not np.array_equal(ids, np.arange(width)):
        table = np.ascontiguousarray(table[:, np.concatenate([ids, np.setdiff1d(np.arange(width), ids)])])
    rows = np.empty((table.shape[0], ROW_COLUMNS))
    score_tokens(plain(table), NO_FLOATS32, 0, ids.size, 0, ids.size, True, rows)
    return TokenScores(
        entropy=rows[:, ENTROPY].copy(),
        max_prob=rows[:, MAX_PROB].copy(),
        pcs=rows[:, PCS].copy(),
        deepgini=rows[:, DEEPGINI].copy(),
        leak=rows[:, LEAK].copy(),
        valid=rows[:, VALID] > 0.0,
    )


def motion_weighted(
    entropy: ArrayLike, actions: ArrayLike, weights: ArrayLike | None = None, kappa: float = 0.3, eps: float = 0.0, *, absolute: bool = False
) -> Float:
    """Entropy of each step, weighted by dimension and by whether the motion turns back there.

    Args:
        entropy: (T, D), of one token a dimension.
        actions: (T, D).
        weights: (D,), >= 0; default all 1.
        kappa: within 0 and 1: the entropy counts 1 + kappa where the motion changes its sign, else 1 - kappa; 1 where there is none before.
        eps: motions of at most this size have no sign.
        absolute: the actions are targets, their differences the motion.

    Returns:
        (T,), sum of w r H over the sum of w.
    """
    h, a = np.asarray(entropy, dtype=np.float64), np.asarray(actions, dtype=np.float64)
    w = np.ones(h.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    motion = np.diff(a, axis=0) if absolute else a
    turned = (motion[1:] * motion[:-1] < 0.0) & (np.minimum(np.abs(motion[1:]), np.abs(motion[:-1])) > eps)
    r = np.ones_like(h)
    r[h.shape[0] - turned.shape[0] :] = np.where(turned, 1.0 + kappa, 1.0 - kappa)
    return np.asarray((w * r * h).sum(axis=1) / w.sum())


def sliding_maximum(values: ArrayLike, window: int) -> float:
    """Largest mean of `window` successive values (T,); of a shorter series the mean."""
    u = np.asarray(values, dtype=np.float64)
    span = min(window, u.size)
    return float(max(u[i : i + span].mean() for i in range(u.size - span + 1)))


class TokenMetrics:
    """Token scores of each inference: mean over its tokens, over groups of them, largest, and a trailing mean over inferences.

    Executed steps that carry no new inference repeat the values of theirs, until those are stale. Softmax goes over the action ids, or over the
    whole head with `tokens.support: full`.
    """

    def __init__(self, spec: PolicySpec, config: MonitorConfig) -> None:
        """Prepare buffers and compile. Raises ConfigError when `tokens.tokens_per_action` or `tokens.weights` do not fit the policy."""
        self.infos = _infos()
        self._spec, self._config = spec, config.tokens
        self._held, self._held_statuses = np.full(_ENTRIES, np.nan), np.full(_ENTRIES, Status.UNAVAILABLE, dtype=np.uint8)
        self._ring, self._state = np.empty((SCORES, config.window)), np.zeros(3, dtype=np.int64)
        self._rows = np.empty((_FIRST_ROWS, ROW_COLUMNS))
        self._mask, self._wrap = _places(spec, config.tokens.tokens_per_action)
        self._kappa, self._motion = config.tokens.motion_kappa, _motion(spec, config)
        self._scores, self._score_state = np.empty(sliding_inferences(spec, config.sliding_seconds) + 1), np.zeros(7, dtype=np.int64)
        self._by_dimension = spec.token_kind == "per_dimension"
        self._max_age = max_age_steps(spec, config)
        self.reset()
        if spec.token_support is None or spec.token_kind == "none":
            self._support = None
            return
        self._support = spec.token_support
        self._full = config.tokens.support == "full"
        self._whole, self._sliced = self._plan(whole=True), self._plan(whole=False)
        self._warm_up()
        self.reset()

    def reset(self) -> None:
        """Forget the episode."""
        self._held[:], self._held_statuses[:] = np.nan, Status.UNAVAILABLE
        self._state[:] = 0
        self._scores[:] = np.nan
        self._score_state[:] = (0, 0, 0, -2, 0, self._spec.action_kind == "absolute", self._config.sliding == "weighted")
        self._inference: int | None = None
        self._born = self._count = 0
        self._told_tail = False

    def update(self, step: PolicyStep, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        """Take one step; see Metric."""
        if self._support is None:
            return ()
        issues: tuple[Issue, ...] = ()
        fresh = False
        if step.token_logits is not None or step.token_probs is not None or step.token_topk is not None:
            if step.inference_id != self._inference or step.chunk_offset == 0:
                fresh, self._count, self._born = True, 0, step.step
                issues = self._from_logits(step, plain(step.token_logits)) if step.token_logits is not None else self._from_other(step)
        elif step.inference_id != self._inference:
            self._fail(Status.UNAVAILABLE)
            self._born = step.step
        self._inference = step.inference_id
        if fresh or self._by_dimension:
            self._score(step.step, self._ids(step), plain(step.action), fresh)
        hold(self._born, step.step, self._max_age, self._held, self._held_statuses, values, statuses)
        return issues

    def _score(self, step: int, ids: NDArray[np.int64], action: NDArray[np.float64], fresh: bool) -> None:
        update_score(
            self._rows,
            self._count,
            ids,
            self._whole,
            action,
            step,
            fresh,
            self._kappa,
            self._motion,
            self._scores,
            self._score_state,
            self._held,
            self._held_statuses,
        )

    def _from_other(self, step: PolicyStep) -> tuple[Issue, ...]:
        if step.token_probs is not None:
            logits = np.empty(step.token_probs.shape, dtype=np.float32)
            probabilities_to_logits(plain(step.token_probs), logits)
            return self._from_logits(step, logits)
        if step.token_topk is not None:
            return self._from_topk(step, plain(step.token_topk))
        return ()

    def _from_logits(self, step: PolicyStep, logits: NDArray[Any]) -> tuple[Issue, ...]:
        count, width = logits.shape
        start, stop = self._support or (0, 0)
        plan = self._whole if width == self._spec.vocab_size else self._sliced
        if width not in (self._spec.vocab_size, stop - start):
            self._fail(Status.INVALID)
            return (token_width_issue(self._spec, width),)
        if self._full and plan is self._sliced:
            self._fail(Status.UNAVAILABLE)
            return (
                Issue(
                    "token_width",
                    f"tokens.support is full, but the logits hold only the {width} action ids, expected {self._spec.vocab_size} columns",
                ),
            )
        ids = self._ids(step)
        if ids.size not in (0, count):
            return self._bad_length("token_ids", ids.size, count)
        logsumexp = NO_FLOATS32 if step.token_logsumexp is None else plain(step.token_logsumexp)
        if logsumexp.size not in (0, count):
            return self._bad_length("token_logsumexp", logsumexp.size, count)
        rows = self._room(count)
        self._count = count
        valid = update_tokens(logits, logsumexp, ids, plan, self._mask, rows, self._ring, self._state, self._held, self._held_statuses)
        return () if valid > 0 else (Issue("token_rows", f"none of the {count} tokens is a usable action token"),)

    def _from_topk(self, step: PolicyStep, topk: NDArray[Any]) -> tuple[Issue, ...]:
        start, stop = self._support or (0, 0)
        classes = (self._spec.vocab_size or 0) if self._full else stop - start
        count, k = topk.shape
        if not 1 <= k <= classes:
            self._fail(Status.INVALID)
            return (Issue("token_width", f"token_topk has {k} columns, expected 1 to {classes}"),)
        ids = self._ids(step)
        if ids.size not in (0, count):
            return self._bad_length("token_ids", ids.size, count)
        uniform, rows = self._config.topk_tail == "uniform", self._room(count)
        score_topk(topk, classes, uniform, rows)
        self._count = count
        valid = aggregate_tokens(rows, count, ids, start, stop, self._mask, self._wrap, self._ring, self._state, self._held, self._held_statuses)
        if valid == 0:
            return (Issue("token_rows", f"none of the {count} tokens is a usable action token"),)
        if uniform and not self._told_tail and k < classes:
            self._told_tail = True
            return (Issue("token_tail", f"TB-E and TB-D assume that the mass beyond the {k} likeliest ids is spread evenly"),)
        return ()

    def _ids(self, step: PolicyStep) -> NDArray[np.int64]:
        return NO_IDS if step.token_ids is None or not self._config.filter_by_id else plain(step.token_ids)

    def _bad_length(self, name: str, found: int, expected: int) -> tuple[Issue, ...]:
        self._fail(Status.INVALID)
        return (Issue("token_length", f"{name} has {found} entries, expected {expected}, one for each token"),)

    def _fail(self, status: Status) -> None:
        """An inference without a value: held until the next one, and skipped by the window."""
        start, stop = self._support or (0, 0)
        aggregate_tokens(self._rows, 0, NO_IDS, start, stop, self._mask, self._wrap, self._ring, self._state, self._held, self._held_statuses)
        if status is Status.UNAVAILABLE:
            self._held[:], self._held_statuses[:] = np.nan, status

    def _room(self, count: int) -> NDArray[np.float64]:
        if count > self._rows.shape[0]:
            self._rows = np.empty((count, ROW_COLUMNS))
        return self._rows

    def _plan(self, *, whole: bool) -> NDArray[np.int64]:
        start, stop = self._spec.token_support or (0, 0)
        action = (start, stop) if whole else (0, stop - start)
        columns = (0, self._spec.vocab_size or 0) if self._full and whole else action
        return np.array([*columns, *action, whole, start, stop, self._wrap], dtype=np.int64)

    def _warm_up(self) -> None:
        """Compile for each kind of input: at start, not in the control loop."""
        start, stop = self._support or (0, 0)
        table = np.zeros((1, stop - start), dtype=np.float32)
        update_tokens(table, NO_FLOATS32, NO_IDS, self._sliced, self._mask, self._rows, self._ring, self._state, self._held, self._held_statuses)
        probabilities_to_logits(table, table)
        score_topk(table, stop - start, True, self._rows)
        aggregate_tokens(self._rows, 1, NO_IDS, start, stop, self._mask, self._wrap, self._ring, self._state, self._held, self._held_statuses)
        self._score(0, NO_IDS, np.zeros(self._spec.action_dim), True)


def sliding_inferences(spec: PolicySpec, seconds: float) -> int:
    """Inferences in a span of the running score."""
    return max(1, round(seconds * spec.control_hz / spec.executed))


def _motion(spec: PolicySpec, config: MonitorConfig) -> NDArray[np.float64]:
    """(4, D) for `update_score`: the smallest motion that counts, the weights, and room for the last action and motion."""
    dims, weights = spec.action_dim, config.tokens.weights
    if weights is not None and (len(weights) != dims or min(weights) < 0.0 or sum(weights) <= 0.0):
        raise ConfigError(f"tokens.weights is {weights}; expected {dims} numbers >= 0, not all 0, one for each of {', '.join(spec.action_names)}")
    motion = np.zeros((4, dims))
    limits = range_of(spec, config.actions.low, config.actions.high)
    if limits is not None:
        motion[0] = config.tokens.motion_eps * np.nan_to_num(np.abs(limits[1] - limits[0]) / 2.0, posinf=0.0)
    motion[1] = 1.0 if weights is None else weights
    return motion


def _places(spec: PolicySpec, tokens_per_action: int | None) -> tuple[NDArray[np.bool_], bool]:
    """Which token belongs to p, o, gripper (3, M), and whether the M places repeat (policies that emit chunks)."""
    if spec.token_kind != "chunk":
        return group_masks(spec), False
    if tokens_per_action is None:
        return np.zeros((len(GROUPS), 0), dtype=np.bool_), True
    names = list(spec.groups)
    if tokens_per_action != len(names):
        raise ConfigError(
            f"tokens.tokens_per_action is {tokens_per_action}, but {spec.name} has {len(names)} groups ({', '.join(names)}); expected one token each"
        )
    return np.array([[name == group for name in names] for group in GROUPS], dtype=np.bool_), True


def _infos() -> tuple[MetricInfo, ...]:
    scores = (
        ("tb_entropy", "TB-E", "(-Σ p_i ln p_i) / ln K"),
        ("tb_max_prob", "TB-TP", "(1 - p1) K / (K - 1)"),
        ("tb_pcs", "TB-PCS", "1 - (p1 - p2)"),
        ("tb_deepgini", "TB-D", "(1 - Σ p_i^2) K / (K - 1)"),
    )
    over = {
        "full": "mean over the action tokens",
        "p": "mean over the position tokens",
        "o": "mean over the rotation tokens",
        "gripper": "mean over the gripper tokens",
        "max": "largest of the action tokens",
        "window": "mean of full over the last W inferences that have a value",
    }
    infos = [
        make_info(metric, variant, label, Family.TOKEN, f"{formula}; {over[variant]}", high=1.0, higher_means="less certain")
        for metric, label, formula in scores
        for variant in VARIANTS
    ]
    leak = "1 - Σ p_i over the action ids, softmax over the whole head; "
    source = "mass outside the action ids; no paper defines it"
    for variant in ("full", "max"):
        infos.append(
            make_info("tb_leak", variant, "Leak", Family.TOKEN, leak + over[variant], high=1.0, higher_means="mass off the action ids", source=source)
        )
    infos.append(
        make_info(
            "tb_entropy",
            "weighted",
            "TB-E",
            Family.TOKEN,
            "Σ w_d r_d H_d / Σ w_d; r = 1 + kappa where the action turns back, else 1 - kappa; one token a dimension only",
            high=2.0,
            higher_means="less certain",
            source="arXiv 2603.18342",
        )
    )
    infos.append(
        make_info(
            "tb_entropy",
            "sw_max",
            "TB-E",
            Family.TOKEN,
            "largest mean so far of full (or weighted) over sliding_seconds of inferences; for alarms",
            high=2.0,
            higher_means="less certain",
            source="arXiv 2603.18342",
        )
    )
    return tuple(infos)

"""Counts of what cannot be used: NaN and infinities in actions, chunks and token logits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.config import MonitorConfig
from monitor.metrics.common import action_issue, chunk_issue, make_info, plain, token_rows_issue, token_width_issue
from monitor.metrics.jit import kernel
from monitor.metrics.kernels import ROW_COLUMNS, VALID, mark_invalid_rows, probabilities_to_logits, score_topk
from monitor.metrics.window_kernels import first_bad
from monitor.policy import PolicySpec
from monitor.steps import Family, Issue, MetricInfo, PolicyStep, Status

_ACTION, _CHUNK, _LOGITS = range(3)
_SOURCE = "field reports of NaN actions and logits; no paper defines it"


@kernel
def count_bad(row: NDArray[np.float64]) -> int:
    """Number of NaN and infinite entries of a row (D,)."""
    bad = 0
    for d in range(row.shape[0]):
        bad += not np.isfinite(row[d])
    return bad


@kernel
def count_bad_rows(table: NDArray[np.float64]) -> int:
    """Number of rows of (H, D) with a NaN or infinite entry."""
    bad = 0
    for i in range(table.shape[0]):
        bad += first_bad(table[i]) >= 0
    return bad


class ValidityMetrics:
    """How many numbers of an action, rows of a chunk and rows of logits cannot be used.

    A chunk is counted when it arrives, before its rows are executed: the steps that follow it count 0. Counts of logits are held for the steps
    of their inference.
    """

    def __init__(self, spec: PolicySpec, config: MonitorConfig) -> None:
        """Compile."""
        self.infos = _infos()
        self._spec = spec
        self._emits_tokens = spec.token_kind != "none" and spec.token_support is not None
        self.reset()
        count_bad(np.zeros(1))
        count_bad_rows(np.zeros((1, 1)))
        if self._emits_tokens:
            table, invalid = np.zeros((1, 1), dtype=np.float32), np.empty(1, dtype=np.bool_)
            mark_invalid_rows(table, 0, 1, invalid)
            probabilities_to_logits(table, table)
            score_topk(table, 2, False, np.empty((1, ROW_COLUMNS)))

    def reset(self) -> None:
        """Forget the episode."""
        self._inference: int | None = None
        self._chunk: bytes | None = None
        self._bad_logits: int | None = None

    def update(self, step: PolicyStep, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        """Take one step; see Metric."""
        new = step.inference_id != self._inference
        self._inference = step.inference_id
        issues: tuple[Issue, ...] = ()
        dims = self._spec.action_dim
        judged = step.action if step.raw_action is None else step.raw_action  # a gate that holds sends another action than the policy's
        bad = count_bad(plain(judged)) if judged.shape[0] == dims else dims
        if bad == 0 and judged is not step.action:
            judged = step.action
            bad = count_bad(plain(judged)) if judged.shape[0] == dims else dims
        values[_ACTION], statuses[_ACTION] = bad, Status.OK
        if bad:
            issues = (action_issue(self._spec, judged),)
        if step.chunk is not None or self._chunk is not None:
            issues += self._count_chunk(step.chunk, new, values, statuses)
        if self._emits_tokens:
            issues += self._count_logits(step, new, values, statuses)
        return issues

    def _count_chunk(
        self, chunk: NDArray[np.float64] | None, new: bool, values: NDArray[np.float64], statuses: NDArray[np.uint8]
    ) -> tuple[Issue, ...]:
        if chunk is None:
            if new:
                self._chunk = None
            else:
                values[_CHUNK], statuses[_CHUNK] = 0.0, Status.OK
            return ()
        content = chunk.tobytes()
        arrived = new or content != self._chunk
        self._chunk = content
        bad = 0
        if arrived:
            bad = count_bad_rows(plain(chunk)) if chunk.shape[1] == self._spec.action_dim else chunk.shape[0]
        values[_CHUNK], statuses[_CHUNK] = bad, Status.OK
        return (chunk_issue(self._spec, chunk),) if bad else ()

    def _count_logits(self, step: PolicyStep, new: bool, values: NDArray[np.float64], statuses: NDArray[np.uint8]) -> tuple[Issue, ...]:
        given = True
        issues: tuple[Issue, ...] = ()
        if step.token_logits is not None:
            issues = self._judge(plain(step.token_logits))
        elif step.token_probs is not None:
            logits = np.empty(step.token_probs.shape, dtype=np.float32)
            probabilities_to_logits(plain(step.token_probs), logits)
            issues = self._judge(logits)
        elif step.token_topk is not None:
            rows = np.empty((step.token_topk.shape[0], ROW_COLUMNS))
            score_topk(plain(step.token_topk), max(2, self._spec.vocab_size or 0), False, rows)
            issues = self._note(rows[:, VALID] == 0.0)
        else:
            given = False
        if not given and new:
            self._bad_logits = None
        if self._bad_logits is not None:
            values[_LOGITS], statuses[_LOGITS] = self._bad_logits, Status.OK
        return issues

    def _judge(self, logits: NDArray[Any]) -> tuple[Issue, ...]:
        start, stop = self._spec.token_support or (0, 0)
        count, width = logits.shape
        if width not in (stop - start, self._spec.vocab_size):
            self._bad_logits = count
            return (token_width_issue(self._spec, width),)
        invalid = np.empty(count, dtype=np.bool_)
        whole = width == self._spec.vocab_size
        self._bad_logits = mark_invalid_rows(logits, start if whole else 0, stop if whole else width, invalid)
        return () if self._bad_logits == 0 else (token_rows_issue(invalid),)

    def _note(self, invalid: NDArray[np.bool_]) -> tuple[Issue, ...]:
        self._bad_logits = int(invalid.sum())
        return () if self._bad_logits == 0 else (token_rows_issue(invalid),)


def _infos() -> tuple[MetricInfo, ...]:
    rows = (
        ("action", "Invalid action", "dimensions that are NaN, infinite or missing, of the policy's action or else of the one sent"),
        ("chunk", "Invalid chunk", "rows of a new chunk with a NaN or infinite entry; 0 for the steps that execute it"),
        ("logits", "Invalid logits", "tokens of the inference with NaN, +inf or no finite action id"),
    )
    return tuple(
        make_info("invalid", variant, label, Family.VALIDITY, formula, unit="count", higher_means="more unusable", source=_SOURCE)
        for variant, label, formula in rows
    )

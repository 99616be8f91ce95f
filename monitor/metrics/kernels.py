"""Compiled arithmetic of the token metrics: arrays in, arrays out, no state of its own.

A row is the distribution of one token. The columns of `rows` are given by ENTROPY ... VALID.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from monitor.metrics.jit import EXP_UNDERFLOW, bits_to_float, exp_below, float_to_bits, kernel, reduction
from monitor.steps import Status

ENTROPY, MAX_PROB, PCS, DEEPGINI, LEAK, VALID = range(6)
ROW_COLUMNS = 6
SCORES = 4
TOKEN_VARIANTS = 6  # full, p, o, gripper, max, window

_OK, _WARMING_UP, _UNAVAILABLE, _INVALID = int(Status.OK), int(Status.WARMING_UP), int(Status.UNAVAILABLE), int(Status.INVALID)
_SIGN_FLIP = 0x7FFFFFFFFFFFFFFF
_KEY_PLUS_INF = 0x7FF0000000000000
_KEY_MINUS_INF = -0x7FF0000000000001
_LOWEST = -0x8000000000000000


@reduction
def _key_range(logits: NDArray[np.floating], row: int, start: int, stop: int) -> tuple[int, int]:
    """Smallest and largest logit as ordered integers: a maximum of integers vectorises, NaN sorts outside the infinities."""
    lowest, highest = _SIGN_FLIP, _LOWEST
    for j in range(start, stop):
        bits = float_to_bits(np.float64(logits[row, j]))
        key = bits ^ ((bits >> 63) & _SIGN_FLIP)
        lowest = min(lowest, key)
        highest = max(highest, key)
    return lowest, highest


@kernel
def _from_key(key: int) -> float:
    return bits_to_float(key ^ ((key >> 63) & _SIGN_FLIP))


@reduction
def _sums(logits: NDArray[np.floating], row: int, start: int, stop: int, top: float, skip: int) -> tuple[float, float, float, float]:
    """Over columns start..stop without `skip`, with x = z - top and e = exp(x): sum e, sum e^2, sum e*x, max e."""
    total, squares, weighted, second = 0.0, 0.0, 0.0, 0
    for j in range(start, stop):
        x = np.float64(logits[row, j]) - top
        clipped = x if x > EXP_UNDERFLOW else EXP_UNDERFLOW
        e = exp_below(clipped)
        e = e if (x > EXP_UNDERFLOW) & (j != skip) else 0.0
        total += e
        squares += e * e
        weighted += e * clipped
        second = max(second, float_to_bits(e))
    return total, squares, weighted, bits_to_float(second)


@kernel
def row_top(logits: NDArray[np.floating], row: int, start: int, stop: int) -> float:
    """The largest logit of columns start..stop; NaN for a row with NaN or +inf anywhere, or without a finite logit in those columns."""
    lowest, highest = _key_range(logits, row, 0, logits.shape[1])
    if highest >= _KEY_PLUS_INF or lowest < _KEY_MINUS_INF:
        return np.nan
    if start > 0 or stop < logits.shape[1]:
        highest = _key_range(logits, row, start, stop)[1]
    return _from_key(highest) if highest > _KEY_MINUS_INF else np.nan


@kernel
def _unit(value: float) -> float:
    return min(max(value, 0.0), 1.0)


@kernel
def _score_row(logits: NDArray[np.floating], row: int, start: int, stop: int, rows: NDArray[np.float64]) -> float:
    """Fill `rows[row]` but for the leak; return the log of the sum of exp over start..stop (NaN for an invalid row).

    With Z = 1 + r relative to the likeliest id, every score is a sum of positive terms, so confident tokens keep their digits.
    """
    for column in range(ROW_COLUMNS):
        rows[row, column] = np.nan
    rows[row, VALID] = 0.0
    top = row_top(logits, row, start, stop)
    if np.isnan(top):
        return np.nan
    rows[row, VALID] = 1.0
    leader = start
    while np.float64(logits[row, leader]) != top:
        leader += 1
    r, squares, weighted, second = _sums(logits, row, start, stop, top, leader)
    z, classes = 1.0 + r, stop - start
    if classes > 1:
        scale = classes / (classes - 1.0)
        rest = r / z
        rows[row, ENTROPY] = _unit((math.log1p(r) - weighted / z) / math.log(classes))
        rows[row, MAX_PROB] = _unit(rest * scale)
        rows[row, PCS] = _unit((r + second) / z)
        rows[row, DEEPGINI] = _unit((rest / z + (rest - squares / z / z)) * scale)
    else:
        for column in range(SCORES):
            rows[row, column] = 0.0
    return top + math.log1p(r)


@kernel
def _leak(logits: NDArray[np.floating], row: int, start: int, stop: int) -> float:
    """Probability outside columns start..stop of a valid row that is the whole head."""
    peak = _from_key(_key_range(logits, row, 0, logits.shape[1])[1])
    inside, outside = 0.0, 0.0
    for part in range(3):
        first = 0 if part == 0 else (start if part == 1 else stop)
        end = start if part == 0 else (stop if part == 1 else logits.shape[1])
        mass = _sums(logits, row, first, end, peak, -1)[0]
        inside += mass if part == 1 else 0.0
        outside += mass if part != 1 else 0.0
    return _unit(outside / (outside + inside))


@kernel
def score_tokens(
    logits: NDArray[np.floating],
    logsumexp: NDArray[np.floating],
    start: int,
    stop: int,
    action_start: int,
    action_stop: int,
    whole: bool,
    rows: NDArray[np.float64],
) -> None:
    """Score every token.

    Arrays and scalars:
        logits: (n, C).
        logsumexp: (n,) over the whole head where the logits hold only a part of it, else (0,).
        start, stop: columns over which the softmax goes.
        action_start, action_stop: columns that are action ids; mass outside them is the leak.
        whole: the columns are the whole head.
        rows: (>= n, ROW_COLUMNS), written.
    """
    for i in range(logits.shape[0]):
        inside = _score_row(logits, i, start, stop, rows)
        if rows[i, VALID] == 0.0:
            continue
        if whole:
            rows[i, LEAK] = _leak(logits, i, action_start, action_stop)
        elif logsumexp.size > 0 and math.isfinite(logsumexp[i]):
            rows[i, LEAK] = _unit(-math.expm1(min(inside - np.float64(logsumexp[i]), 0.0)))


@kernel
def score_topk(topk: NDArray[np.floating], classes: int, uniform_tail: bool, rows: NDArray[np.float64]) -> None:
    """Score tokens of which only the k largest log-probabilities are known, (n, k) descending, among `classes` ids.

    Entropy and DeepGini stay NaN unless the rest of the mass may be spread evenly; the leak stays NaN.
    """
    k = topk.shape[1]
    for i in range(topk.shape[0]):
        for column in range(ROW_COLUMNS):
            rows[i, column] = np.nan
        rows[i, VALID] = 0.0
        total, squares, entropy = 0.0, 0.0, 0.0
        good = k > 0 and topk[i, 0] > -np.inf
        for j in range(k):
            value = np.float64(topk[i, j])
            good = good and value <= 1e-6 and (j == 0 or value <= np.float64(topk[i, j - 1]))
            p = math.exp(min(value, 0.0))
            total += p
            squares += p * p
            entropy -= p * value if p > 0.0 else 0.0
        if not good or total > 1.0 + 1e-3:
            continue
        rows[i, VALID] = 1.0
        if classes == 1:
            for column in range(SCORES):
                rows[i, column] = 0.0
            continue
        scale = classes / (classes - 1.0)
        rest_of_top = -math.expm1(min(np.float64(topk[i, 0]), 0.0))
        rows[i, MAX_PROB] = _unit(rest_of_top * scale)
        if k > 1:
            rows[i, PCS] = _unit(rest_of_top + math.exp(np.float64(topk[i, 1])))
        if uniform_tail or k == classes:
            tail, others = max(1.0 - total, 0.0), classes - k
            if others > 0 and tail > 0.0:
                squares += tail * tail / others
                entropy -= tail * math.log(tail / others)
            rows[i, ENTROPY] = _unit(entropy / math.log(classes))
            rows[i, DEEPGINI] = _unit((1.0 - squares) * scale)


@kernel
def probabilities_to_logits(probabilities: NDArray[np.float32], logits: NDArray[np.float32]) -> None:
    """Write ln p into `logits`, both (n, K). A row with a negative or non-finite number or a sum off 1 by more than 1e-3 becomes NaN."""
    for i in range(probabilities.shape[0]):
        total, good = 0.0, True
        for j in range(probabilities.shape[1]):
            p = np.float64(probabilities[i, j])
            if not p >= 0.0:
                good = False
            total += p
        if not abs(total - 1.0) <= 1e-3:
            good = False
        for j in range(probabilities.shape[1]):
            p = np.float64(probabilities[i, j])
            logits[i, j] = np.nan if not good else (math.log(p) if p > 0.0 else -np.inf)


@kernel
def _mean_window(ring: NDArray[np.float64], metric: int, state: NDArray[np.int64], window: int) -> float:
    total, first = 0.0, state[1] - state[0]
    for i in range(state[0]):
        total += ring[metric, (first + i) % window]
    return float(total / state[0])


@kernel
def aggregate_tokens(
    rows: NDArray[np.float64],
    count: int,
    ids: NDArray[np.int64],
    first_id: int,
    last_id: int,
    mask: NDArray[np.bool_],
    wrap: bool,
    ring: NDArray[np.float64],
    state: NDArray[np.int64],
    values: NDArray[np.float64],
    statuses: NDArray[np.uint8],
) -> int:
    """From scored tokens to the row of one inference.

    Arrays and scalars:
        rows: (>= count, ROW_COLUMNS) from `score_tokens` or `score_topk`.
        count: tokens of this inference.
        ids: (count,) generated ids; a token outside first_id..last_id is not counted. (0,) counts all.
        first_id, last_id: half-open range of the action ids.
        mask: (3, M) which place belongs to p, o, gripper.
        wrap: a token's place is its number among the counted tokens modulo M; else its row.
        ring: (SCORES, W) values of the last valid inferences. state: [filled, next, inferences in a row without a value].
        values, statuses: (SCORES * TOKEN_VARIANTS + 2,), written.

    Returns:
        Number of tokens that were counted and valid.
    """
    window, places = ring.shape[1], mask.shape[1]
    valid, leaks, leak_total, leak_max, seen = 0, 0, 0.0, 0.0, 0
    for metric in range(SCORES):
        base = metric * TOKEN_VARIANTS
        finite, total, highest, seen, valid = 0, 0.0, 0.0, 0, 0
        group_total, group_finite, members = (0.0, 0.0, 0.0), (0, 0, 0), (0, 0, 0)
        for place in range(places):
            members = (members[0] + mask[0, place], members[1] + mask[1, place], members[2] + mask[2, place])
        for i in range(count):
            if ids.size > 0 and not first_id <= ids[i] < last_id:
                continue
            place = seen % places if wrap and places > 0 else i
            seen += 1
            if rows[i, VALID] == 0.0:
                continue
            valid += 1
            value = rows[i, metric]
            if metric == 0 and not np.isnan(rows[i, LEAK]):
                leaks += 1
                leak_total += rows[i, LEAK]
                leak_max = max(leak_max, rows[i, LEAK])
            if np.isnan(value):
                continue
            finite += 1
            total += value
            highest = max(highest, value)
            if place < places:
                p, o, g = mask[0, place], mask[1, place], mask[2, place]
                group_total = (group_total[0] + value * p, group_total[1] + value * o, group_total[2] + value * g)
                group_finite = (group_finite[0] + p, group_finite[1] + o, group_finite[2] + g)
        missing = _INVALID if valid == 0 else _UNAVAILABLE
        for variant in range(TOKEN_VARIANTS):
            values[base + variant] = np.nan
            statuses[base + variant] = missing
        if finite > 0:
            values[base], statuses[base] = total / finite, _OK
            values[base + 4], statuses[base + 4] = highest, _OK
        for group in range(3):
            if members[group] == 0:
                statuses[base + 1 + group] = _UNAVAILABLE
            elif group_finite[group] > 0:
                values[base + 1 + group], statuses[base + 1 + group] = group_total[group] / group_finite[group], _OK
            else:
                statuses[base + 1 + group] = missing if finite == 0 else _INVALID
    at = SCORES * TOKEN_VARIANTS
    values[at], values[at + 1] = np.nan, np.nan
    statuses[at], statuses[at + 1] = (_INVALID, _INVALID) if valid == 0 else (_UNAVAILABLE, _UNAVAILABLE)
    if leaks > 0:
        values[at], values[at + 1] = leak_total / leaks, leak_max
        statuses[at], statuses[at + 1] = _OK, _OK
    _push(ring, state, valid > 0, values)
    for metric in range(SCORES):
        base = metric * TOKEN_VARIANTS
        mean = _mean_window(ring, metric, state, window) if state[0] * 2 >= window else np.nan
        enough = state[0] * 2 >= window
        values[base + 5] = mean
        statuses[base + 5] = (
            _OK if enough and not np.isnan(mean) else (_UNAVAILABLE if enough or (valid > 0 and np.isnan(values[base])) else _WARMING_UP)
        )
    return valid


@kernel
def _push(ring: NDArray[np.float64], state: NDArray[np.int64], valid: bool, values: NDArray[np.float64]) -> None:
    """Remember one inference. Inferences without a value are skipped; a whole window of them empties the ring, for what it holds is old."""
    window = ring.shape[1]
    if not valid:
        state[2] += 1
        if state[2] >= window:
            state[0] = 0
        return
    state[2] = 0
    for metric in range(SCORES):
        ring[metric, state[1] % window] = values[metric * TOKEN_VARIANTS]
    state[1] += 1
    state[0] = min(state[0] + 1, window)


@kernel
def update_tokens(
    logits: NDArray[np.floating],
    logsumexp: NDArray[np.floating],
    ids: NDArray[np.int64],
    plan: NDArray[np.int64],
    mask: NDArray[np.bool_],
    rows: NDArray[np.float64],
    ring: NDArray[np.float64],
    state: NDArray[np.int64],
    values: NDArray[np.float64],
    statuses: NDArray[np.uint8],
) -> int:
    """Score and aggregate in one call; `plan` holds start, stop, action_start, action_stop, whole, first_id, last_id, wrap."""
    score_tokens(logits, logsumexp, plan[0], plan[1], plan[2], plan[3], plan[4] != 0, rows)
    return aggregate_tokens(rows, logits.shape[0], ids, plan[5], plan[6], mask, plan[7] != 0, ring, state, values, statuses)


@kernel
def mark_invalid_rows(logits: NDArray[np.floating], start: int, stop: int, invalid: NDArray[np.bool_]) -> int:
    """Mark in `invalid` (n,) the rows of (n, C) logits that are NaN or +inf somewhere, or have no finite number in columns start..stop.

    Returns their number.
    """
    count = 0
    for i in range(logits.shape[0]):
        invalid[i] = np.isnan(row_top(logits, i, start, stop))
        count += invalid[i]
    return count


@kernel
def update_score(
    rows: NDArray[np.float64],
    count: int,
    ids: NDArray[np.int64],
    plan: NDArray[np.int64],
    action: NDArray[np.float64],
    step: int,
    fresh: bool,
    kappa: float,
    motion: NDArray[np.float64],
    ring: NDArray[np.float64],
    state: NDArray[np.int64],
    values: NDArray[np.float64],
    statuses: NDArray[np.uint8],
) -> None:
    """Motion-weighted entropy, and the running maximum of the sliding mean.

    Arrays and scalars:
        rows, count, ids: of the inference, as `aggregate_tokens` took them; one token a dimension first, else no weighted entropy.
        plan: as in `update_tokens`.
        action: (D,), executed at this step. step: its number.
        fresh: the inference is new; else only the action is remembered.
        kappa: an entropy counts 1 + kappa where the motion turns back, else 1 - kappa.
        motion: (4, D): smallest motion that counts, weights, last action, last motion.
        ring: (S + 1,), the last S scores and the maximum. state: [filled, next, inferences in a row without a score, last step, actions known,
            differences of absolute actions are the motion, the score is the weighted entropy].
        values, statuses: (>= SCORES * TOKEN_VARIANTS + 4,), the last two are written.
    """
    dims, absolute = motion.shape[1], state[5] != 0
    if step != state[3] + 1:
        state[4] = 0
    state[3] = step
    usable = action.shape[0] == dims
    for d in range(action.shape[0]):
        usable = usable and math.isfinite(action[d])
    moving = usable and (state[4] >= 1 or not absolute)
    compared = moving and state[4] >= (2 if absolute else 1)
    total, weights = 0.0, 0.0
    for d in range(dims):
        part = (action[d] - motion[2, d] if absolute else action[d]) if moving else 0.0
        r = 1.0
        if compared:
            turned = part * motion[3, d] < 0.0 and min(abs(part), abs(motion[3, d])) > motion[0, d]
            r = 1.0 + kappa if turned else 1.0 - kappa
        motion[3, d] = part
        if usable:
            motion[2, d] = action[d]
        counted = fresh and d < count and (ids.size == 0 or plan[5] <= ids[d] < plan[6])
        if counted and not np.isnan(rows[d, ENTROPY]):
            total += motion[1, d] * r * rows[d, ENTROPY]
            weights += motion[1, d]
    state[4] = min(state[4] + 1, 2) if usable else 0
    if not fresh:
        return
    at, window = SCORES * TOKEN_VARIANTS + 2, ring.shape[0] - 1
    base = statuses[0]
    values[at], statuses[at] = np.nan, base if base != _OK else _UNAVAILABLE
    whole = count == dims or (count > dims and ids.size > 0)
    if base == _OK and whole and weights > 0.0:
        values[at], statuses[at] = total / weights, _OK
    score = values[at] if state[6] != 0 else values[0]
    if np.isnan(score):
        state[2] += 1
        if state[2] >= window:
            state[0] = 0
    else:
        state[2] = 0
        ring[state[1]] = score
        state[1] = state[1] + 1 if state[1] + 1 < window else 0
        state[0] = min(state[0] + 1, window)
        if state[0] == window:
            mean = 0.0
            for i in range(window):
                mean += ring[i]
            mean /= window
            ring[window] = mean if np.isnan(ring[window]) else max(ring[window], mean)
    values[at + 1] = ring[window]
    statuses[at + 1] = _OK if not np.isnan(ring[window]) else (_UNAVAILABLE if base == _UNAVAILABLE else _WARMING_UP)

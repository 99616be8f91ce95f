"""Compiled arithmetic of the windowed metrics: differences of actions and poses, standing still.

A window is a contiguous array (W, D), oldest first. Rings are kept twice (2W rows) so that the last W rows always lie in one piece.
State arrays hold [filled, next row]; see `push`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from monitor.metrics.jit import kernel
from monitor.steps import Status

ORDERS = 3
TI_SAMPLES = 7
_OK, _WARMING_UP, _UNAVAILABLE, _INVALID = int(Status.OK), int(Status.WARMING_UP), int(Status.UNAVAILABLE), int(Status.INVALID)


@kernel
def push(ring: NDArray[np.float64], state: NDArray[np.int64], row: NDArray[np.float64]) -> int:
    """Add one row to a doubled ring (2W, D); return the index of the row that follows the newest one of the contiguous window."""
    window = ring.shape[0] // 2
    at = state[1]
    for d in range(ring.shape[1]):
        ring[at, d] = row[d]
        ring[at + window, d] = row[d]
    state[1] = at + 1 if at + 1 < window else 0
    state[0] = min(state[0] + 1, window)
    return int(at + window + 1)


@kernel
def _copy(source: NDArray[np.float64], target: NDArray[np.float64], at: int) -> None:
    """Copy `source` to `target[at:]`. A plain loop: slice assignment would compile text handling for its error message."""
    for i in range(source.shape[0]):
        target[at + i] = source[i]


@kernel
def difference(ring: NDArray[np.float64], at: int, d: int, order: int) -> float:
    """The backward difference of `order` 0 to 3 of column `d` at row `at`."""
    if order == 0:
        return float(ring[at, d])
    if order == 1:
        return float(ring[at, d] - ring[at - 1, d])
    if order == 2:
        return float((ring[at, d] - ring[at - 1, d]) - (ring[at - 1, d] - ring[at - 2, d]))
    newer = (ring[at, d] - ring[at - 1, d]) - (ring[at - 1, d] - ring[at - 2, d])
    older = (ring[at - 1, d] - ring[at - 2, d]) - (ring[at - 2, d] - ring[at - 3, d])
    return float(newer - older)


@kernel
def mean_difference(ring: NDArray[np.float64], end: int, d: int, order: int, terms: int) -> float:
    """Mean of |difference of `order`| over the `terms` rows before `end`."""
    total = 0.0
    for at in range(end - terms, end):
        total += abs(difference(ring, at, d, order))
    return total / terms


@kernel
def first_bad(row: NDArray[np.float64]) -> int:
    """Index of the first NaN or infinity, -1 if there is none."""
    for d in range(row.shape[0]):
        if not math.isfinite(row[d]):
            return d
    return -1


@kernel
def normalise(row: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write clip((row - low) / (high - low), 0, 1) into `out`; NaN where the range is empty or something is not finite."""
    for d in range(row.shape[0]):
        span = high[d] - low[d]
        known = span > 0.0 and math.isfinite(span) and math.isfinite(row[d])
        out[d] = min(max((row[d] - low[d]) / span, 0.0), 1.0) if known else np.nan


@kernel
def reversals(table: NDArray[np.float64], start: int, end: int, used: NDArray[np.bool_], eps: float) -> float:
    """Share of (row, column) pairs of rows start..end at which successive differences have opposite sign; smaller ones than eps count as 0.

    Columns that are not used or hold NaN are left out; NaN if none is left.
    """
    turned, pairs = 0, 0
    for d in range(table.shape[1]):
        if not used[d] or np.isnan(table[end - 1, d]):
            continue
        for i in range(start + 2, end):
            older, newer = table[i - 1, d] - table[i - 2, d], table[i, d] - table[i - 1, d]
            pairs += 1
            turned += older * newer < 0.0 and abs(older) > eps and abs(newer) > eps
    return turned / pairs if pairs > 0 else np.nan


@kernel
def update_actions(
    action: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    mask: NDArray[np.bool_],
    ring: NDArray[np.float64],
    work: NDArray[np.float64],
    state: NDArray[np.int64],
    step: int,
    eps: float,
    values: NDArray[np.float64],
    statuses: NDArray[np.uint8],
) -> bool:
    """Take one action.

    Arrays and scalars:
        action, low, high: (D,).
        mask: (V, D), which dimensions each variant averages.
        ring: (2W, D). work: (D,). state: [filled, next row, last step number].
        eps: share of the range below which a change is no reversal.
        values, statuses: (3 * V + 1,), the last one the reversal rate of the first variant; written.

    Returns:
        False if the action is not finite; the window then waits for a gap, which the next step number makes.
    """
    variants, dims = mask.shape
    if first_bad(action) >= 0:
        values[:] = np.nan
        statuses[:] = _INVALID
        return False
    if step != state[2] + 1:
        state[0] = 0
    state[2] = step
    normalise(action, low, high, work)
    end = push(ring, state, work)
    window = ring.shape[0] // 2
    ready = state[0] >= window
    for order in range(1, ORDERS + 1):
        if ready:
            for d in range(dims):
                work[d] = mean_difference(ring, end, d, order, window - ORDERS) / 2.0 ** (order - 1)
        for v in range(variants):
            at = (order - 1) * variants + v
            total, count, known = 0.0, 0, 0
            for d in range(dims):
                if mask[v, d]:
                    known += 1
                    if ready and not np.isnan(work[d]):
                        total += work[d]
                        count += 1
            values[at] = total / count if count > 0 else np.nan
            statuses[at] = _OK if count > 0 else (_UNAVAILABLE if ready or known == 0 else _WARMING_UP)
    at = ORDERS * variants
    values[at] = reversals(ring, end - window, end, mask[0], eps) if ready else np.nan
    statuses[at] = statuses[0]
    return True


@kernel
def relative_rotation_into(q0: NDArray[np.float64], q1: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write the rotation vector (rad, fixed frame) that turns q0 into q1, both (w, x, y, z); the signs and lengths of both do not matter."""
    w = q1[0] * q0[0] + q1[1] * q0[1] + q1[2] * q0[2] + q1[3] * q0[3]
    x = -q1[0] * q0[1] + q1[1] * q0[0] - q1[2] * q0[3] + q1[3] * q0[2]
    y = -q1[0] * q0[2] + q1[1] * q0[3] + q1[2] * q0[0] - q1[3] * q0[1]
    z = -q1[0] * q0[3] - q1[1] * q0[2] + q1[2] * q0[1] + q1[3] * q0[0]
    norm = math.sqrt(w * w + x * x + y * y + z * z)
    first = x if x != 0.0 else (y if y != 0.0 else z)
    if w < 0.0 or (w == 0.0 and first < 0.0):
        norm = -norm
    w, x, y, z = w / norm, x / norm, y / norm, z / norm
    s = math.sqrt(x * x + y * y + z * z)
    scale = 2.0 * math.atan2(s, w) / s if s >= 1e-8 else 2.0 / w
    out[0], out[1], out[2] = x * scale, y * scale, z * scale


@kernel
def jerk_at(ring: NDArray[np.float64], at: int, dt: float) -> float:
    """|jerk| (m/s^3) three samples before row `at`, from the seven rows that end there; exact for cubics."""
    square = 0.0
    for d in range(3):
        j = (ring[at, d] - 3.0 * ring[at - 2, d] + 3.0 * ring[at - 4, d] - ring[at - 6, d]) / (8.0 * dt**3)
        square += j * j
    return math.sqrt(square)


@kernel
def _usable(row: NDArray[np.float64], length: int, nonzero: bool) -> int:
    """_OK, or _UNAVAILABLE for an absent row, _INVALID for one that has another length, is not finite or is all zero."""
    if row.shape[0] == 0:
        return _UNAVAILABLE
    if row.shape[0] != length or first_bad(row) >= 0:
        return _INVALID
    square = 0.0
    for d in range(length):
        square += row[d] * row[d]
    return _INVALID if nonzero and not 1e-12 < square < 1e12 else _OK


@kernel
def update_tool(
    position: NDArray[np.float64],
    quaternion: NDArray[np.float64],
    length_scale: float,
    dt: float,
    positions: NDArray[np.float64],
    rotations: NDArray[np.float64],
    jerks: NDArray[np.float64],
    previous: NDArray[np.float64],
    states: NDArray[np.int64],
    step: int,
    values: NDArray[np.float64],
    statuses: NDArray[np.uint8],
) -> int:
    """Take one pose.

    Arrays and scalars:
        position: (3,) m, or (0,) when there is none. quaternion: (4,) w, x, y, z, or (0,).
        length_scale: m/rad. dt: s.
        positions: (2 * max(W, 7), 3). rotations: (2 * (W - 1), 3). jerks: (2 * (W - 3), 1).
        previous: (8,): the last quaternion and room for one rotation vector and one jerk.
        states: (4, 2): of positions, rotations, jerks; the last row is [last step number, whether `previous` holds a quaternion].
        values, statuses: (10,), for each order full, p, o, then TI; written.

    Returns:
        0, plus 1 if the position is unusable, plus 2 if the quaternion is; absent parts are not unusable.
    """
    terms = rotations.shape[0] // 2 + 1 - ORDERS
    position_status, quaternion_status = _usable(position, 3, False), _usable(quaternion, 4, True)
    if step != states[3, 0] + 1:
        states[:3, 0] = 0
        states[3, 1] = 0
    states[3, 0] = step
    end, ti = 0, np.nan
    if position_status == _OK:
        end = push(positions, states[0], position)
        if states[0, 0] >= TI_SAMPLES:
            previous[7] = jerk_at(positions, end - 1, dt)
            last = push(jerks, states[2], previous[7:8])
            square = 0.0
            for i in range(last - states[2, 0], last):
                square += jerks[i, 0] * jerks[i, 0]
            ti = math.sqrt(square / states[2, 0])
    else:
        states[0, 0] = 0
        states[2, 0] = 0
    turn = 0
    if quaternion_status == _OK:
        if states[3, 1] == 1:
            relative_rotation_into(previous[:4], quaternion, previous[4:7])
            turn = push(rotations, states[1], previous[4:7])
        _copy(quaternion, previous, 0)
        states[3, 1] = 1
    else:
        states[1, 0] = 0
        states[3, 1] = 0
    p_ready = states[0, 0] >= terms + ORDERS
    o_ready = states[1, 0] >= terms + ORDERS - 1
    p_status = position_status if position_status != _OK or p_ready else _WARMING_UP
    o_status = quaternion_status if quaternion_status != _OK or o_ready else _WARMING_UP
    both = p_status if p_status > o_status else o_status
    for order in range(1, ORDERS + 1):
        p, o = 0.0, 0.0
        for d in range(3):
            p += mean_difference(positions, end, d, order, terms) if p_ready else np.nan
            o += mean_difference(rotations, turn, d, order - 1, terms) if o_ready else np.nan
        p /= 3.0 * 2.0 ** (order - 1)
        o /= 3.0 * 2.0 ** (order - 1)
        at = (order - 1) * 3
        values[at], values[at + 1], values[at + 2] = (p + length_scale * o) / 2.0, p, o
        statuses[at], statuses[at + 1], statuses[at + 2] = both, p_status, o_status
    values[9] = ti
    statuses[9] = position_status if position_status != _OK or not np.isnan(ti) else _WARMING_UP
    return (position_status == _INVALID) + 2 * (quaternion_status == _INVALID)


@kernel
def standing_still(path: float, rotation: float, spread: float, limits: NDArray[np.float64]) -> bool:
    """Whether path (m), rotation (rad) and gripper spread (strokes) lie below `limits` (3,); a NaN part is not asked."""
    return bool(path < limits[0] and (np.isnan(rotation) or rotation < limits[1]) and (np.isnan(spread) or spread < limits[2]))


@kernel
def update_motion(
    position: NDArray[np.float64],
    quaternion: NDArray[np.float64],
    gripper: float,
    command: NDArray[np.float64],
    limits: NDArray[np.float64],
    absolute: bool,
    hold: int,
    ring: NDArray[np.float64],
    previous: NDArray[np.float64],
    state: NDArray[np.int64],
    step: int,
    values: NDArray[np.float64],
    statuses: NDArray[np.uint8],
) -> None:
    """Take one step of the standing-still detector.

    Arrays and scalars:
        position: (3,) m, or (0,). quaternion: (4,), or (0,). gripper: 0 to 1, NaN when not measured.
        command: (k,) the commanded position part, in the unit of the action; (0,) when there is none.
        limits: (5,): path, rotation, gripper spread; commanded path above which a still tool is blocked, below which the policy is idle.
        absolute: commands are targets, so that their differences are the commanded path; else each is an increment.
        hold: steps that the condition must hold before the flag is set.
        ring: (2W, 4) with columns path, rotation, opening and commanded path of each increment.
        previous: (15 + k,): position 0..2, quaternion 3..6, commanded path 7, room for a row 8..11 and a turn 12..14, the last command from 15 on.
        state: [filled, next row, last step number, steps held, previous quaternion known, previous command known].
        values, statuses: (6,): frozen flag, path, rotation, steps; blocked; idle. Written.
    """
    window = ring.shape[0] // 2
    values[:] = np.nan
    position_status, quaternion_status = _usable(position, 3, False), _usable(quaternion, 4, True)
    if step != state[2] + 1 or position_status != _OK:
        state[0], state[3], state[4], state[5] = 0, 0, 0, 0
    state[2] = step
    if position_status != _OK:
        statuses[:] = position_status
        return
    row, turn = previous[8:12], previous[12:15]
    row[0], row[1], row[2], row[3] = 0.0, np.nan, gripper if math.isfinite(gripper) else np.nan, 0.0
    if state[0] > 0:
        square = 0.0
        for d in range(3):
            square += (position[d] - previous[d]) ** 2
        row[0], row[3] = math.sqrt(square), previous[7]
    if quaternion_status == _OK:
        if state[4] == 1:
            relative_rotation_into(previous[3:7], quaternion, turn)
            row[1] = math.sqrt(turn[0] ** 2 + turn[1] ** 2 + turn[2] ** 2)
        _copy(quaternion, previous, 3)
    state[4] = 1 if quaternion_status == _OK else 0
    _copy(position, previous, 0)
    previous[7] = _commanded(command, previous[15:], absolute, state)
    end = push(ring, state, row)
    if state[0] < window:
        statuses[:] = _WARMING_UP
        statuses[2] = _WARMING_UP if quaternion_status == _OK else quaternion_status
        return
    path, rotation, commanded, lowest, highest = 0.0, 0.0, 0.0, np.inf, -np.inf
    for i in range(end - window, end):
        if i > end - window:
            path += ring[i, 0]
            rotation += ring[i, 1]
            commanded += ring[i, 3]
        if not np.isnan(ring[i, 2]):
            lowest, highest = min(lowest, ring[i, 2]), max(highest, ring[i, 2])
    spread = highest - lowest if highest >= lowest else np.nan
    still = standing_still(path, rotation, spread, limits)
    state[3] = state[3] + 1 if still else 0
    values[0], values[1], values[3] = 1.0 if state[3] >= hold else 0.0, path, state[3]
    statuses[:] = _OK
    values[2] = rotation
    if np.isnan(rotation):
        statuses[2] = quaternion_status if quaternion_status != _OK else _WARMING_UP
    if np.isnan(commanded):
        statuses[4], statuses[5] = (_UNAVAILABLE, _UNAVAILABLE) if command.shape[0] == 0 else (_INVALID, _INVALID)
        return
    values[4] = 1.0 if path < limits[0] and commanded > limits[3] else 0.0
    values[5] = 1.0 if still and commanded < limits[4] else 0.0


@kernel
def _commanded(command: NDArray[np.float64], last: NDArray[np.float64], absolute: bool, state: NDArray[np.int64]) -> float:
    """Length of the way that `command` asks for; NaN when it is absent or not finite, 0 for the first absolute target."""
    if command.shape[0] == 0 or first_bad(command) >= 0:
        state[5] = 0
        return np.nan
    square = 0.0
    for d in range(command.shape[0]):
        part = command[d] - (last[d] if state[5] == 1 else command[d]) if absolute else command[d]
        square += part * part
    _copy(command, last, 0)
    state[5] = 1
    return math.sqrt(square)

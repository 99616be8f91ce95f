"""Recorded trajectories: rotations, differences, jerk, resampling. Plain functions over whole arrays, for offline use and tests."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.metrics.actions import instability
from monitor.metrics.window_kernels import ORDERS, TI_SAMPLES, jerk_at, relative_rotation_into

Float = NDArray[np.float64]


def _table(name: str, given: ArrayLike, columns: int) -> Float:
    array = np.array(given, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != columns:
        raise ValueError(f"{name} of shape {array.shape}, expected (T, {columns})")
    return array


def relative_rotation(q0: ArrayLike, q1: ArrayLike) -> Float:
    """The rotation vector (3,) in rad, fixed frame, that turns q0 into q1.

    Both are quaternions (4,) w, x, y, z; neither their signs nor their lengths matter, but length 0 gives NaN.
    """
    out = np.empty(3)
    relative_rotation_into(np.array(q0, dtype=np.float64), np.array(q1, dtype=np.float64), out)
    return out


def rotation_increments(quaternions: ArrayLike) -> Float:
    """(T, 4) quaternions w, x, y, z to (T - 1, 3) rotation vectors in rad between successive ones, fixed frame."""
    q = _table("quaternions", quaternions, 4)
    return np.array([relative_rotation(a, b) for a, b in pairwise(q)]).reshape(-1, 3)


def tool_instability(positions: ArrayLike, quaternions: ArrayLike | None, order: int) -> Float:
    """TCP-PI, TCP-VI or TCP-AI (order 1, 2, 3) of one window, by component.

    Args:
        positions: (W, 3) m, oldest first, W >= 4.
        quaternions: (W, 4) w, x, y, z, or None.
        order: 1, 2 or 3.

    Returns:
        (6,): three of position in m and three of orientation in rad; (3,) without quaternions.
    """
    r = _table("positions", positions, 3)
    found = instability(r, order)
    if quaternions is None:
        return found
    turns = rotation_increments(quaternions)
    terms = r.shape[0] - ORDERS
    differences = np.diff(turns, n=order - 1, axis=0)[-terms:]
    return np.concatenate([found, np.abs(differences).mean(axis=0) / 2.0 ** (order - 1)])


def jerk_online(window: ArrayLike, dt: float) -> Float:
    """|jerk| in m/s^3 of (T, 3) positions dt seconds apart, (T - 6,): value i belongs to sample i + 3 and is known at sample i + 6."""
    r = _table("window", window, 3)
    return np.array([jerk_at(r, at, dt) for at in range(TI_SAMPLES - 1, r.shape[0])])


def jerk_gradient(positions: ArrayLike, dt: float) -> Float:
    """|jerk| in m/s^3 of (T, 3) positions by central differences applied three times, (T,).

    The three values at either end come from one-sided differences and can be three times too large.
    """
    derivative = _table("positions", positions, 3)
    for _ in range(3):
        derivative = np.gradient(derivative, dt, axis=0)
    return np.asarray(np.linalg.norm(derivative, axis=1))


def published_jerk(positions: ArrayLike) -> Float:
    """The series that the papers' package computes, (T - 2,), with dt = 1; only to compare with published numbers.

    Its values from windows of eight hold -1/8 of the acceleration.
    """
    r = _table("positions", positions, 3)
    first = jerk_gradient(r[:TI_SAMPLES], 1.0)[:5]
    later = [jerk_gradient(r[end - 8 : end], 1.0)[5] for end in range(8, r.shape[0] + 1)]
    return np.concatenate([first, later])


def root_mean_square(values: ArrayLike) -> float:
    """sqrt(mean of squares)."""
    return float(np.sqrt(np.mean(np.square(values))))


def resample(times: ArrayLike, positions: ArrayLike, quaternions: ArrayLike | None, dt: float) -> tuple[Float, Float | None]:
    """Poses on the grid times[0] + j * dt: positions linear, orientations along the shortest arc.

    Args:
        times: (T,) s, increasing, T >= 2.
        positions: (T, 3) m.
        quaternions: (T, 4) w, x, y, z, or None.
        dt: s.

    Returns:
        (N, 3) and (N, 4) (unit length, w >= 0) or None; the last grid point is at or before times[-1].

    Raises:
        ValueError: shapes do not fit or the times do not increase.
    """
    t, r = np.asarray(times, dtype=np.float64), _table("positions", positions, 3)
    if t.shape != (r.shape[0],) or t.size < 2 or not (np.diff(t) > 0).all():
        raise ValueError(f"times of shape {t.shape}, expected ({r.shape[0]},), at least two, increasing")
    grid = t[0] + dt * np.arange(int(np.floor((t[-1] - t[0]) / dt + 1e-9)) + 1)
    right = np.clip(np.searchsorted(t, grid), 1, t.size - 1)
    share = np.clip((grid - t[right - 1]) / (t[right] - t[right - 1]), 0.0, 1.0)[:, None]
    moved = r[right - 1] + share * (r[right] - r[right - 1])
    if quaternions is None:
        return moved, None
    q = _table("quaternions", quaternions, 4)
    q = q / np.linalg.norm(q, axis=1, keepdims=True)
    return moved, _slerp(q[right - 1], q[right], share)


def between(position: Float, quaternion: Float | None, new_position: Float, new_quaternion: Float | None, share: float) -> tuple[Float, Float | None]:
    """The pose at `share` (0 to 1) of the way from one pose to another: position (3,) linear, quaternion (4,) along the shortest arc.

    Without one of the quaternions, or with one of length 0, there is no orientation.
    """
    moved = position + share * (new_position - position)
    if quaternion is None or new_quaternion is None:
        return moved, None
    pair = np.stack([quaternion, new_quaternion])
    lengths = np.linalg.norm(pair, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and (lengths > 1e-6).all()):
        return moved, None
    pair = pair / lengths
    return moved, _slerp(pair[:1], pair[1:], np.full((1, 1), share))[0]


def _slerp(before: Float, after: Float, share: Float) -> Float:
    cosine = (before * after).sum(axis=1, keepdims=True)
    after = np.where(cosine < 0.0, -after, after)
    angle = np.arctan2(np.linalg.norm(after - before, axis=1, keepdims=True), np.linalg.norm(after + before, axis=1, keepdims=True)) * 2.0
    sine = np.sin(angle)
    near = sine < 1e-9
    safe = np.where(near, 1.0, sine)
    first, second = (np.where(near, 1.0 - share, np.sin((1.0 - share) * angle) / safe), np.where(near, share, np.sin(share * angle) / safe))
    turned = first * before + second * after
    turned /= np.linalg.norm(turned, axis=1, keepdims=True)
    return np.asarray(np.where(turned[:, :1] < 0.0, -turned, turned))

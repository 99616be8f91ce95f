"""How the kernels are compiled: typed decorator, bit casts and an exponential that vectorises.

numba's own `exp` calls a scalar library function for each element. The one here has no branches and no calls, so that LLVM turns a loop
over it into vector code. No function is compiled with flags that let the compiler assume that NaN or infinity do not occur.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]
from numba import njit, types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

_LOG2_E = 1.4426950408889634
_LN2_HIGH = 6.93145751953125e-1
_LN2_LOW = 1.42860682030941723212e-6
_ROUND = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to an integer and leaves that integer in the low bits
EXP_UNDERFLOW = -708.0


def kernel(function: F) -> F:
    """Compile without Python objects, cached on disk, each sum in the order written."""
    return cast(F, njit(cache=True, error_model="numpy", fastmath={"contract"})(function))


def reduction(function: F) -> F:
    """As `kernel`, but sums may be split over vector lanes; the split depends on the length only, so equal input gives equal bits."""
    return cast(F, njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})(function))


def _generate_float_to_bits(_context: Any, value: Any) -> Any:
    def generate(_c: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


def _generate_bits_to_float(_context: Any, value: Any) -> Any:
    def generate(_c: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


# The 64 bits of a float as a signed integer, and back; for use inside kernels. For floats >= 0 the integers are ordered as the floats are.
float_to_bits: Callable[[float], int] = cast(Any, intrinsic(_generate_float_to_bits))
bits_to_float: Callable[[int], float] = cast(Any, intrinsic(_generate_bits_to_float))


@kernel
def exp_below(x: float) -> float:
    """e**x for EXP_UNDERFLOW <= x <= 0; relative error below 1e-15. Outside that range the result has no meaning."""
    shifted = x * _LOG2_E + _ROUND
    count = shifted - _ROUND
    r = (x - count * _LN2_HIGH) - count * _LN2_LOW
    p = 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * bits_to_float((float_to_bits(shifted) + 1023) << 52)

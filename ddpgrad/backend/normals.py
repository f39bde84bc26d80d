"""Normal numbers from uniform ones (Box and Muller, https://doi.org/10.1214/aoms/1177706645), to PyTorch's last bit.

PyTorch pairs element j of a block of 16 with element j + 8. In float32 its processors with AVX2 or AVX-512 evaluate
the polynomials of Cephes (https://netlib.org/cephes/single.tgz: logf, sinf, cosf) with fused products and sums, so
this does on any processor; in float64 it calls the C library, as does Python. `cpu/normals.py` has the same
steps compiled, for many numbers or where Numba is loaded anyway.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

import numpy as np

from ..core.environment import numba_enabled

Array = np.ndarray[Any, Any]

BLOCK = 16
HALF = BLOCK // 2
_WORTH_LOADING = 1 << 14  # numbers for which a compiler is loaded
_FEW_CALLS = 1 << 11  # that are made without one

_f = np.float32
SQRT_HALF = _f(math.sqrt(0.5))
LN_2 = _f(-2.12194440e-4), _f(0.693359375)
LOG = [
    _f(c)
    for c in (
        7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
        2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
    )
]  # fmt: skip
FOUR_BY_PI = _f(4 / math.pi)
QUARTER_PI = _f(-0.78515625), _f(-2.4187564849853515625e-4), _f(-3.77489497744594108e-8)
SIN = _f(-1.9515295891e-4), _f(8.3321608736e-3), _f(-1.6666654611e-1)
COS = _f(2.443315711809948e-5), _f(-1.388731625493765e-3), _f(4.166664568298827e-2)
TWO_PI = _f(2 * math.pi)


def box_muller(unit: Array, out: Array, mean: float, std: float) -> None:
    """Turn whole blocks of uniform numbers, float32 or float64, into normal ones in `out`."""
    compiled = _compiled(unit.size)
    if compiled is not None and compiled.box_muller(unit, out, mean, std):
        return
    pairs, target = unit.reshape(-1, 2, HALF), out.reshape(-1, 2, HALF)
    if unit.dtype == np.float32:
        radius = np.sqrt(_f(-2) * _log(_f(1) - pairs[:, 0]))
        sin, cos = _sin_cos(TWO_PI * pairs[:, 1])
        target[:, 0] = _fused(radius * cos, _f(std), _f(mean))
        target[:, 1] = _fused(radius * sin, _f(std), _f(mean))
        return
    for i, block in enumerate(pairs.tolist()):
        for j, (size, turn) in enumerate(zip(*block, strict=True)):
            radius, angle = math.sqrt(-2.0 * math.log(1 - size)), 2.0 * math.pi * turn
            target[i, 0, j] = scaled(radius * math.cos(angle), std, mean)
            target[i, 1, j] = scaled(radius * math.sin(angle), std, mean)


def one_by_one(unit: Array, out: Array) -> None:
    """Turn pairs of uniform numbers into pairs of normal ones, both float64, as PyTorch draws single numbers."""
    compiled = _compiled(unit.size)
    (_one_by_one if compiled is None else compiled.one_by_one)(unit, out)


def _one_by_one(unit: Array, out: Array) -> None:
    for i in range(0, unit.size, 2):
        out[i], out[i + 1] = normal_pair(unit[i], unit[i + 1])


def normal_pair(first: float, second: float) -> tuple[float, float]:
    """Two normal numbers from two uniform ones."""
    radius, angle = math.sqrt(-2.0 * math.log1p(-second)), 2.0 * math.pi * first
    return radius * math.cos(angle), radius * math.sin(angle)


def scaled(value: float, std: float, mean: float) -> float:
    """value * std + mean, rounded once."""
    if mean == 0.0 or std == 1.0:
        return value * std + mean
    return float(Fraction(value) * Fraction(std) + Fraction(mean))


class _Compiled:
    """calls: without the compiled transforms. module: these, once they were worth loading."""

    calls: int = 0
    module: Any = None


def _compiled(count: int) -> Any:
    """The compiled transforms, where they are worth loading: for many numbers, or many calls."""
    if _Compiled.module is None:
        few = count < _WORTH_LOADING and _Compiled.calls < _FEW_CALLS and "numba" not in sys.modules
        if few or not numba_enabled():
            _Compiled.calls += 1
            return None
        from .cpu import normals

        _Compiled.module = normals
    return _Compiled.module


def _fused(a: Any, b: Any, c: Any) -> Array:
    """a * b + c of float32, rounded once."""
    product = np.multiply(a, b, dtype=np.float64)  # exact
    total = product + c
    # Rounding to float64 and then to float32 is rounding once, but where the first leaves a tie that was none.
    tie = (total.view(np.int64) & 0x1FFFFFFF) == 0x10000000
    if tie.any():
        back = total - product
        lost = (product - (total - back)) + (c - back)
        total = np.where(tie & (lost != 0), np.nextafter(total, np.copysign(np.inf, lost)), total)
    return total.astype(np.float32)


def _polynomial(x: Array, coefficients: Any) -> Array:
    y = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        y = _fused(y, x, c)
    return y


def _log(x: Array) -> Array:
    fraction, exponent = np.frexp(x)
    low = fraction < SQRT_HALF
    e = (exponent - low).astype(np.float32)
    x = (fraction - _f(1)) + np.where(low, fraction, _f(0))
    z = x * x
    y = _fused(_polynomial(x, LOG) * x, z, e * LN_2[0]) - z * _f(0.5)
    return _fused(e, LN_2[1], x + y)


def _sin_cos(x: Array) -> tuple[Array, Array]:
    octant = ((x * FOUR_BY_PI).astype(np.int32) + 1) & ~1
    y = octant.astype(np.float32)
    for part in QUARTER_PI:
        x = _fused(y, part, x)
    z = x * x
    cos = _fused(_polynomial(z, COS) * z, z, -(z * _f(0.5))) + _f(1)
    sin = _fused(_polynomial(z, SIN) * z, x, x)
    swap = (octant & 2) != 0
    sin, cos = np.where(swap, cos, sin), np.where(swap, sin, cos)
    return np.where(octant & 4, -sin, sin), np.where((octant - 2) & 4, cos, -cos)

"""Functions that NumPy lacks or computes slowly, compiled for the CPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from ..layout import beside
from .doublemath import FAR, whole
from .doublemath import cos as cos_of_double
from .doublemath import sin as sin_of_double
from .element_loops import of_elements
from .normals import log_of_normal
from .numbers import where
from .threads import shared
from .vectormath import _INLINED, _of_double, compiled_for, exp_of_negative, kernel, log1p_of_fraction, normal

Array = np.ndarray[Any, Any]

_SMALL = 1024  # elements that NumPy is done with before compiled code has started

# erf(x) / x as a polynomial in x**2, fitted for the smallest relative error (1.2e-9) on [0, 1].
_F6, _F5, _F4, _F3, _F2, _F1, _F0 = (
    np.float32(c)
    for c in (
        7.847259180345168e-05,
        -0.0008008189339841345,
        0.005188098891356984,
        -0.026853691100770797,
        0.11283582248018244,
        -0.3761262556740147,
        1.1283791656893234,
    )
)
_ZERO, _ONE, _TWO, _ROOT_2 = np.float32(0), np.float32(1), np.float32(2), np.float32(math.sqrt(2))


def erf(input: Array) -> Array:
    """The error function of each element."""
    return of_elements(_erf, input)


def erfinv(input: Array) -> Array:
    """What `erf` makes each float32 of."""
    return of_elements(_erfinv, input) if input.dtype.char != "d" else NotImplemented


def digamma(input: Array) -> Array:
    """The derivative of the logarithm of the gamma function."""
    return of_elements(_digamma, input)


def polygamma(input: Array, n: int) -> Array:
    """The first derivative of `digamma`; others are left to the zeta function."""
    return of_elements(_trigamma, input) if n == 1 else NotImplemented


def sign(input: Array) -> Array:
    """-1, 0 or 1 by the sign of each element, 0 for a nan."""
    return of_elements(_sign, input)


def rsqrt(input: Array) -> Array:
    """1 / sqrt(x)."""
    return of_elements(_rsqrt, input)


def frac(input: Array) -> Array:
    """x less its whole part."""
    return of_elements(_frac, input)


def sin(input: Array) -> Array:
    """The sine of each float64."""
    return _of_double_elements(_sin, input)


def cos(input: Array) -> Array:
    """The cosine of each float64."""
    return _of_double_elements(_cos, input)


def _of_double_elements(loop: Any, input: Array) -> Array:
    if input.size < _SMALL or input.dtype.char != "d":
        return NotImplemented
    out, flat, vectors = beside(input.dtype, input)
    loop(*vectors, flat)
    return out


def logaddexp(input: Array, other: Array) -> Array:
    """log(exp(input) + exp(other)) without overflow."""
    return of_elements(_logaddexp, input, other)


def hypot(input: Array, other: Array) -> Array:
    """sqrt(x**2 + y**2) of float32, without overflow."""
    if input.size < _SMALL or input.shape != other.shape or not input.dtype.char == other.dtype.char == "f":
        return NotImplemented
    out, flat, vectors = beside(input.dtype, input, other)
    _hypot(*vectors, flat)
    return out


def nan_to_num(input: Array, nan: float, posinf: float | None, neginf: float | None) -> Array:
    """Numbers in place of nan and the infinities: the largest and smallest of the dtype where they are None."""
    if not compiled_for(input):
        return NotImplemented
    known = np.finfo(input.dtype)
    high, low = known.max if posinf is None else posinf, known.min if neginf is None else neginf
    return of_elements(_finite, input, options=(nan, high, low))


def erf_of(x):
    """The error function of one float32 or float64."""
    return math.erf(x)


@overload(erf_of, jit_options=_INLINED)
def _(x):
    def erf32(x):
        z = x * x
        y = _F6 * z + _F5
        y = y * z + _F4
        y = y * z + _F3
        y = y * z + _F2
        y = y * z + _F1
        y = y * z + _F0
        tail, _ = normal(-abs(x) * _ROOT_2)
        far = _ONE - _TWO * tail
        far = where(x > _ZERO, far, -far)
        return where(z < _ONE, x * y, far)

    return erf32 if x == types.float32 else _of_double("erf")


def _erf(x):
    return where(x == x, erf_of(x), x)


# erfinv(x) / x as polynomials in w - 2.5 and sqrt(w) - 3 with w = -log(1 - x**2), where w is below and above 5: M. Giles,
# "Approximating the erfinv function", GPU Computing Gems 2, 2011, for single precision.
_NEAR = tuple(
    np.float32(c)
    for c in (
        2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
        0.246640727, 1.50140941,
    )
)  # fmt: skip
_FAR = tuple(
    np.float32(c)
    for c in (
        -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
        1.00167406, 2.83297682,
    )
)  # fmt: skip
_FIVE, _INF = np.float32(5), np.float32(np.inf)


def _erfinv(x):
    rest = (_ONE - x) * (_ONE + x)
    w = -log_of_normal(where(rest > _ZERO, rest, _ONE))
    near, far = w - np.float32(2.5), np.float32(math.sqrt(w)) - np.float32(3)
    p, q = _NEAR[0], _FAR[0]
    for k in range(1, 9):
        p, q = p * near + _NEAR[k], q * far + _FAR[k]
    found = where(w < _FIVE, p, q) * x
    found = where(rest == _ZERO, x * _INF, found)
    return where(rest >= _ZERO, found, np.float32(np.nan))


# The numbers of Bernoulli B(2k), for the series at large x; digamma's has B(2k) / 2k.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_OF_DIGAMMA = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI, 1))


def _digamma(x):
    given = np.float64(x)
    mirrored = given <= 0  # digamma(1 - x) - digamma(x) = pi / tan(pi x)
    z = 1 - given if mirrored else given
    total = 0.0
    while z < 10:  # digamma(x + 1) = digamma(x) + 1 / x
        total -= 1 / z
        z += 1
    w = 1 / (z * z)
    series = 0.0
    for k in range(6, -1, -1):
        series = w * (_OF_DIGAMMA[k] + series)
    total += math.log(z) - 0.5 / z - series
    if mirrored:
        part = given - np.trunc(given)  # `math.trunc` makes an int, which may be too large
        total -= math.pi / math.tan(math.pi * part) if part else math.nan
        total = math.copysign(math.inf, -given) if given == 0 else total
    return total


def _trigamma(x):
    given = np.float64(x)
    mirrored = given <= 0  # trigamma(1 - x) + trigamma(x) = (pi / sin(pi x))**2
    z = 1 - given if mirrored else given
    total = 0.0
    while z < 10:  # trigamma(x + 1) = trigamma(x) - 1 / x**2
        total += 1 / (z * z)
        z += 1
    w = 1 / (z * z)
    series = 0.0
    for k in range(6, -1, -1):
        series = w * (_BERNOULLI[k] + series)
    total += 0.5 * w + (1 + series) / z
    if mirrored:
        sine = math.sin(math.pi * (given - np.trunc(given)))
        total = (math.pi / sine) ** 2 - total if sine else math.inf
    return total


def _sign(x):
    zero, one = type(x)(0), type(x)(1)
    return where(x > zero, one, where(x < zero, -one, zero))


def _finite(x, nan, high, low):
    infinity = type(x)(np.inf)
    known = where(x == infinity, high, where(x == -infinity, low, x))
    return where(x == x, known, nan)


def _rsqrt(x):
    return type(x)(1) / math.sqrt(x)


# Otherwise the compiler takes the processor's estimate and mends it, which is nan for 0 and infinity.
_rsqrt.__dict__["fastmath"] = False


def _frac(x):
    return x - whole(x)


def _logaddexp(x, y):
    top = where(x > y, x, y)
    total = top + log1p_of_fraction(exp_of_negative(-abs(x - y)))
    # Infinities that are equal have no difference; a nan is neither larger nor smaller.
    return where(x == y, x + type(x)(math.log(2)), total)


def _near_and_far(near: Any, far: Any) -> Any:
    """A function by `near`, and by the C library's, `far`, where that has lost digits."""

    def loop(x, out):
        lost = False
        for i in range(x.size):
            out[i] = near(x[i])
            lost |= not abs(x[i]) <= FAR
        if lost:
            for i in range(x.size):
                if not abs(x[i]) <= FAR:
                    out[i] = far(x[i])

    return shared("x", "out")(kernel(loop))


_sin, _cos = _near_and_far(sin_of_double, math.sin), _near_and_far(cos_of_double, math.cos)


@shared("x", "y", "out")
@kernel
def _hypot(x, y, out):
    for i in range(x.size):
        a, b = np.float64(x[i]), np.float64(y[i])
        size = math.sqrt(a * a + b * b)
        out[i] = math.inf if (abs(a) == math.inf) | (abs(b) == math.inf) else size

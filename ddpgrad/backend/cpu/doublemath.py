"""Functions of one float64 that vectorise, without a branch: what `vectormath.py` has for float32.

Errors are below 3 units in the last place, of `normal` below 8. Infinities and NaN come out as IEEE 754 says. Products and
sums that have to be rounded once are written so, since a compiler may or may not do that.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import njit, types

from .register_tile import intrinsic
from .vectormath import _INLINED, instruction


def _called(builder: Any, name: str, *arguments: Any) -> Any:
    """LLVM's function `name` of floating-point numbers of one type."""
    kind = arguments[0].type
    full = f"llvm.{name}.{'f64' if kind == ir.DoubleType() else 'f32'}"
    return builder.call(intrinsic(builder, full, kind, [kind] * len(arguments)), arguments)


@instruction
def fused(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c of one floating-point type, rounded once."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _called(builder, "fma", *arguments)

    return a(a, a, a), build


def _rounded(name: str) -> Any:
    """The function of a floating-point number that LLVM has under this name."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _called(builder, name, *arguments)

    return instruction(lambda typingctx, x: (x(x), build))


whole, floor, nearest = _rounded("trunc"), _rounded("floor"), _rounded("rint")


def polynomial(*coefficients: float) -> Any:
    """The function of a float64 with these coefficients, the one of the highest power first."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (x,) = arguments
        total = ir.Constant(x.type, coefficients[0])
        for coefficient in coefficients[1:]:
            total = _called(builder, "fma", total, x, ir.Constant(x.type, coefficient))
        return total

    return instruction(lambda typingctx, x: (types.float64(types.float64), build))


@instruction
def _power_of_2(typingctx: Any, shifted: Any) -> Any:
    """2**n, where n, of an exponent in the normal range, is in the lowest bits of `shifted`."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = ir.IntType(64)
        exponent = builder.shl(builder.bitcast(arguments[0], bits), bits(52))
        return builder.bitcast(builder.add(exponent, bits(1023 << 52)), arguments[0].type)

    return types.float64(types.float64), build


@instruction
def _quadrant(typingctx: Any, shifted: Any) -> Any:
    """The two lowest bits of `shifted`."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = ir.IntType(64)
        return builder.and_(builder.bitcast(arguments[0], bits), bits(3))

    return types.int64(types.float64), build


_NEAREST = 1.5 * 2**52  # the integer nearest to x is in the lowest bits of x + this
# ln 2 and pi / 2 in parts: products of the first part of ln 2 with exponents are exact.
_LOG2_E, _LN_2_HIGH, _LN_2_LOW = math.log2(math.e), 0.6931471803691238, 1.9082149292705877e-10
_TWO_BY_PI, _PI_2_1, _PI_2_2, _PI_2_3 = (
    2 / math.pi,
    math.pi / 2,
    6.123233995736766e-17,
    -1.4973849048591698e-33,
)
_DENSITY_AT_0 = 1 / math.sqrt(2 * math.pi)
FAR = float(1 << 20)
"""Above this `sin` and `cos` have lost digits."""

# Polynomials by interpolation at Chebyshev's points, in 60 digits: (e**x - 1) / x for |x| <= ln 2 / 2 (relative error 2e-18) ...
_EXPM1 = polynomial(
    2.0918137737642736e-09, 2.5110049204818658e-08, 2.75572632790885e-07, 2.755724088722987e-06, 2.4801587336442236e-05,
    0.00019841269890076403, 0.0013888888888879073, 0.008333333333319589, 0.04166666666666668, 0.1666666666666668, 0.5, 1.0,
)  # fmt: skip
# ... artanh(s) / s in s**2 up to 1/9 (2e-18) ...
_ARTANH = polynomial(
    0.08522081781390699, 0.0416225325593041, 0.06055084364034609, 0.06650187016337313, 0.07693307021152004, 0.09090870416252403,
    0.11111112040373837, 0.14285714272727057, 0.20000000000092874, 0.33333333333333076, 1.0,
)  # fmt: skip
# ... erf(x) / x in x**2 up to 1 (2e-17) ...
_ERF = polynomial(
    5.957176147748911e-11, -1.1372848856791674e-09, 1.4659775274047436e-08, -1.6350312701054695e-07, 1.6461000484121368e-06,
    -1.4925595266831182e-05, 0.0001205533111164271, -0.000854832698083379, 0.0052239776248180145, -0.026866170645076792,
    0.11283791670954879, -0.3761263890318375, 1.1283791670955126,
)  # fmt: skip
# ... Phi(-a) e**(a**2 / 2) / t in t = 1 / (1 + a / 5), for a up to 39 (2e-16) ...
_TAIL = polynomial(
    -0.0009332069573188149, 0.011398886098713914, -0.06388208898184863, 0.21708270667069918, -0.49919569827686777,
    0.8248691528741359, -1.0226051548324846, 0.9864168756472674, -0.7570780034800223, 0.46417383717517596, -0.23470268258424823,
    0.09673013104215797, -0.0247842498194973, 0.023676143192783047, 0.02376729386449057, 0.03790814514974808,
    0.049743755728627916, 0.06102682157904468, 0.07021348776011532, 0.07659693659240818, 0.0797884554673577, 0.07978845608956175,
)  # fmt: skip
# ... (sin(x) / x - 1) / x**2 and (cos(x) - 1 + x**2 / 2) / x**4 in x**2, for |x| up to pi / 4 (6e-17).
_SIN = polynomial(
    -7.586636882825159e-13, 1.6058530596645953e-10, -2.50521062259944e-08, 2.755731921932058e-06, -0.0001984126984126504,
    0.008333333333333331, -0.16666666666666666,
)  # fmt: skip
_COS = polynomial(
    -1.138254464534925e-11, 2.087614504941318e-09, -2.755731726587808e-07, 2.48015872987544e-05, -0.0013888888888887389,
    0.041666666666666664,
)  # fmt: skip


@njit(**_INLINED)
def exp(x):
    """e**x."""
    shifted = fused(x, _LOG2_E, _NEAREST)
    n = shifted - _NEAREST
    r = fused(-n, _LN_2_LOW, fused(-n, _LN_2_HIGH, x))
    half = fused(n, 0.5, _NEAREST)  # the power in two factors, neither of which leaves the normal range
    rest = (n - (half - _NEAREST)) + _NEAREST
    y = fused(r, _EXPM1(r), 1.0) * _power_of_2(half) * _power_of_2(rest)
    y = 0.0 if x < -746.0 else y
    y = math.inf if x > 710.0 else y
    return x if x != x else y


@njit(**_INLINED)
def expm1(x):
    """e**x - 1, without loss of digits near 0."""
    shifted = fused(x, _LOG2_E, _NEAREST)
    n = shifted - _NEAREST
    r = fused(-n, _LN_2_LOW, fused(-n, _LN_2_HIGH, x))
    power = _power_of_2(shifted)
    y = fused(power, r * _EXPM1(r), power - 1.0)
    y = -1.0 if x < -40.0 else y
    y = exp(x) if x > 40.0 else y
    return x if x != x else y


@njit(**_INLINED)
def log1p_of_fraction(x):
    """log(1 + x) for x in [0, 1]."""
    s = x / (x + 2.0)
    return 2.0 * s * _ARTANH(s * s)


@njit(**_INLINED)
def normal(x):
    """The standard normal distribution: (probability below x, density at x)."""
    a = abs(x)
    a = 40.0 if a > 40.0 else a  # where both are 0
    square = a * a
    lost = fused(a, a, -square)
    bell = exp(-0.5 * square)
    bell = fused(-0.5 * lost, bell, bell)
    t = 1.0 / fused(0.2, a, 1.0)
    tail = _TAIL(t) * t * bell
    return (1.0 - tail if x > 0.0 else tail), bell * _DENSITY_AT_0


@njit(**_INLINED)
def erf(x):
    """The error function."""
    z = x * x
    tail, _ = normal(-abs(x) * math.sqrt(2.0))
    far = fused(-2.0, tail, 1.0)
    far = far if x > 0.0 else -far
    y = x * _ERF(z) if z < 1.0 else far
    return x if x != x else y


@njit(**_INLINED)
def _sin_and_cos(x):
    """(sin, cos) of what is left of x beside multiples of pi / 2, and how often that was taken away, of 4."""
    shifted = fused(x, _TWO_BY_PI, _NEAREST)
    n = shifted - _NEAREST
    r = fused(-n, _PI_2_3, fused(-n, _PI_2_2, fused(-n, _PI_2_1, x)))
    z = r * r
    return fused(r * z, _SIN(z), r), fused(z * z, _COS(z), fused(-0.5, z, 1.0)), _quadrant(shifted)


@njit(**_INLINED)
def sin(x):
    """The sine for |x| up to `FAR`."""
    s, c, quadrant = _sin_and_cos(x)
    y = c if quadrant & 1 else s
    return -y if quadrant & 2 else y


@njit(**_INLINED)
def cos(x):
    """The cosine for |x| up to `FAR`."""
    s, c, quadrant = _sin_and_cos(x)
    y = s if quadrant & 1 else c
    return -y if (quadrant + 1) & 2 else y

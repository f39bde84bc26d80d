"""What the compiled CPU kernels share: the compiler's options, and functions of one number that vectorise.

Numba's PyPI build has no vector mathematics library, so `math.exp` in a loop is a call per
element. In float32 the functions here are branch-free polynomials, which LLVM inlines and
turns into vector code (error below 2 units in the last place, results below the normal
range are 0), and those of `doublemath.py` in float64.
Infinities and NaN come out as IEEE 754 says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import config
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic, overload, register_jitable

from .kernel_cache import cached

# No entry for callers in C: half of what is compiled is called from compiled code alone, and its entry takes a fifth of the time.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "boundscheck": False, "no_cfunc_wrapper": True}  # fmt: skip
# `reassoc` lets a sum be split over vector lanes, in an order that only its length decides.
# Never `nnan` or `ninf`: a NaN in the data must reach the loss.
_KERNEL = {"reassoc", "contract", "nsz", "arcp"}
# exp splits its argument by adding and subtracting a large constant; regrouping would undo that.
_EXACT = {"contract"}
_INLINED: Any = {"fastmath": _EXACT, "forceinline": True, **_OPTIONS}

# Multiplications below which a matrix product is BLAS's: it has finished before `float_product` has packed anything.
SMALL_PRODUCT = 1 << 19

# The integer type as wide as the number.
_INTEGER = {types.float32: types.int32, types.float64: types.int64}


def part(function: Callable[..., Any]) -> Any:
    """A function for compiled code to call, which may be called as it is, too."""
    return register_jitable(no_cfunc_wrapper=True)(function)


def kernel(function: Callable[..., Any], fastmath: Any = _KERNEL) -> Callable[..., Any]:
    """Compile `function` when it is first called with arguments of a type; keep the result on disk.

    Single-threaded and free of the GIL. Sums over vector lanes have one order per length. Two arrays that it is given
    must not overlap, unless a loop reads each element before it writes that one.
    The copy on disk is renewed when the function's own file changes: whoever edits what is
    inlined from this module deletes `__pycache__/*.nb?` beside it.
    """
    return cached(njit(fastmath=fastmath, **_OPTIONS)(function), apart=True)


def compiled(function: Any, *arguments: Any) -> Any:
    """For arguments of these types only: arrays of all strides are one type."""
    dispatcher = cached(njit(**_OPTIONS)(function))
    dispatcher.compile(arguments)
    dispatcher.disable_compile()
    return dispatcher


def processor_has(*features: str) -> bool:
    """Whether kernels are compiled for a processor with these features: this one's, or those that Numba is told of by
    NUMBA_CPU_FEATURES, NUMBA_CPU_NAME=generic or NUMBA_ENABLE_AVX=0."""
    told: str | None = vars(config)["CPU_FEATURES"]
    known = (get_host_cpu_features() if told is None else told).split(",")
    return all(f"+{feature}" in known for feature in features)


def compiled_for(*arrays: np.ndarray) -> bool:
    """True when `arrays` are all of one type that the kernels are written for: float32 or float64."""
    dtype = arrays[0].dtype
    if dtype.char not in "fd" or not dtype.isnative:
        return False
    for array in arrays[1:]:  # noqa: SIM110 - all(…) takes longer than a small kernel
        if array.dtype is not dtype and array.dtype != dtype:
            return False
    return True


@njit(**_INLINED)
def copy_matrix(source, out):
    """Copy to a matrix of the same shape. `out[...] = source` compiles beside the loop what a text about shapes needs: seconds."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = source[i, j]


def instruction(implement: Callable[..., Any]) -> Any:
    """A function for compiled code, given by the LLVM instructions that `implement` builds."""
    return intrinsic(implement)


@instruction
def _add_to_exponent(typingctx: Any, y: Any, shifted: Any) -> Any:
    """y * 2**n by one integer addition, for float32 y and result in the normal range.

    The lowest bits of `shifted`, a float32, hold the integer n.
    """
    if y != types.float32 or shifted != types.float32:
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = ir.IntType(32)
        exponent = builder.shl(builder.bitcast(args[1], bits), bits(23))
        return builder.bitcast(builder.add(builder.bitcast(args[0], bits), exponent), args[0].type)

    return y(y, y), codegen


def _flip_negative(builder: Any, bits: Any) -> Any:
    """Invert all but the sign bit of negative integers: sign and magnitude to two's complement and back."""
    width = bits.type.width
    sign = builder.ashr(bits, bits.type(width - 1))
    return builder.xor(bits, builder.and_(sign, bits.type(2 ** (width - 1) - 1)))


@instruction
def to_ordered(typingctx: Any, x: Any) -> Any:
    """The integer of x's width that orders as x does: a maximum over integers vectorises, over floats not.

    A NaN with its sign bit clear is above all numbers, one with its sign bit set below.
    """
    if x not in _INTEGER:
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _flip_negative(builder, builder.bitcast(args[0], ir.IntType(x.bitwidth)))

    return _INTEGER[x](x), codegen


@instruction
def from_ordered(typingctx: Any, key: Any) -> Any:
    """The floating-point number that `to_ordered` made `key` of."""
    number = {integer: number for number, integer in _INTEGER.items()}.get(key)
    if number is None:
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(_flip_negative(builder, args[0]), context.get_value_type(number))

    return number(key), codegen


# float32 exp: x = n ln 2 + r with |r| <= ln 2 / 2 and ln 2 in two parts (Cody and Waite); a polynomial
# fitted to e**r for the smallest relative error (1.9e-9).
_LOG2_E = np.float32(math.log2(math.e))
_LN_2_HIGH = np.float32(0.693359375)
_LN_2_LOW = np.float32(math.log(2) - 0.693359375)
# Adding this leaves the integer nearest to x in the lowest bits of the sum.
_NEAREST = np.float32(1.5 * 2**23)
_EXP_LOW = np.float32(-87.33654)
_EXP_HIGH = np.float32(88.72283)
_E6, _E5, _E4, _E3, _E2, _E1, _E0 = (
    np.float32(c)
    for c in (
        0.0013836741860115845, 0.008374898362262573, 0.04166823180472038, 0.16666419190362594, 0.4999999203230352,
        1.0000000365391117, 1.0000000005585965,
    )
)  # fmt: skip
_ZERO, _HALF, _ONE, _TWO, _INF = (np.float32(c) for c in (0, 0.5, 1, 2, np.inf))
_EXPM1_LOW = np.float32(-17.5)  # below which e**x - 1 rounds to -1
# log(1 + x) = 2 artanh(s) with s = x / (2 + x); artanh(s) / s as a polynomial in s**2, fitted for the
# smallest relative error (4.5e-9) on [0, 1/9].
_L4, _L3, _L2, _L1 = (
    np.float32(c) for c in (0.14005993429735145, 0.1400090263311644, 0.200107636197074, 0.3333320814283048)
)


@njit(**_INLINED)
def _exp_parts(x):
    """(y, shifted) with e**x = y * 2**n, n in the lowest bits of `shifted`."""
    shifted = x * _LOG2_E + _NEAREST
    n = shifted - _NEAREST
    r = x - n * _LN_2_HIGH - n * _LN_2_LOW
    y = _E6 * r + _E5
    y = y * r + _E4
    y = y * r + _E3
    y = y * r + _E2
    y = y * r + _E1
    y = y * r + _E0
    return y, shifted


def _of_double(name):
    from . import doublemath  # which no rank needs that trains in float32

    return getattr(doublemath, name).py_func


def exp(x):
    """e**x of one float32 or float64."""
    return math.exp(x)


@overload(exp, jit_options=_INLINED)
def _exp(x):
    def exp32(x):
        y, shifted = _exp_parts(x)
        y = _add_to_exponent(y, shifted)
        y = _ZERO if x < _EXP_LOW else y
        y = _INF if x > _EXP_HIGH else y
        return x if x != x else y

    return exp32 if x == types.float32 else _of_double("exp")


def exp_of_negative(x):
    """e**x of one float32 or float64 x <= 0; a fifth faster than `exp`, as it cannot overflow."""
    return math.exp(x)


@overload(exp_of_negative, jit_options=_INLINED)
def _exp_of_negative(x):
    def exp32(x):
        y, shifted = _exp_parts(x)
        y *= _add_to_exponent(_ONE, shifted)
        return _ZERO if x < _EXP_LOW else y

    return exp32 if x == types.float32 else _of_double("exp")


def expm1(x):
    """e**x - 1 of one float32 or float64, without loss of digits near 0."""
    return math.expm1(x)


@overload(expm1, jit_options=_INLINED)
def _expm1(x):
    def expm1_32(x):
        shifted = x * _LOG2_E + _NEAREST
        n = shifted - _NEAREST
        r = x - n * _LN_2_HIGH - n * _LN_2_LOW
        # The polynomial of exp without its constant: e**r - 1.
        y = _E6 * r + _E5
        y = y * r + _E4
        y = y * r + _E3
        y = y * r + _E2
        y = y * r + _E1
        y = y * r
        half = _add_to_exponent(_ONE, shifted - _ONE)  # of 2**n, which may be too large
        y = _TWO * (half * y + (half - _HALF))
        y = -_ONE if x < _EXPM1_LOW else y
        y = _INF if x > _EXP_HIGH else y
        return x if x != x else y

    return expm1_32 if x == types.float32 else _of_double("expm1")


@njit(**_INLINED)
def less_both(x, first, second):
    """(x - first) - second, in this order: x - (first + second) has lost the digits of a small x - first."""
    return (x - first) - second


def log1p_of_fraction(x):
    """log(1 + x) of one float32 or float64 x in [0, 1]."""
    return math.log1p(x)


@overload(log1p_of_fraction, jit_options=_INLINED)
def _log1p_of_fraction(x):
    def log1p32(x):
        s = x / (x + _TWO)
        z = s * s
        y = _L4 * z + _L3
        y = y * z + _L2
        y = y * z + _L1
        y = y * z + _ONE
        return _TWO * s * y

    return log1p32 if x == types.float32 else _of_double("log1p_of_fraction")


# Phi(-a) = exp(-a**2 / 2) P(1 / (1 + 0.3 a)) for a >= 0, the form of Abramowitz and Stegun 26.2.17;
# P was fitted for the smallest relative error (1.1e-7) on [0, 13].
_P0 = np.float32(0.3)
_P8, _P7, _P6, _P5, _P4, _P3, _P2, _P1 = (
    np.float32(c)
    for c in (
        0.036194830907056094, -0.15937821399737892, 0.21011824050473227, -0.05716723922209318, 0.13041639545000946,
        0.09934713908953943, 0.12084552827652636, 0.1196232627513188,
    )
)  # fmt: skip
_DENSITY_AT_0 = 1 / math.sqrt(2 * math.pi)
_DENSITY_AT_0_32 = np.float32(_DENSITY_AT_0)


def normal(x):
    """The standard normal distribution at one float32 or float64: (probability below x, density at x)."""
    return 0.5 * math.erfc(-x * math.sqrt(0.5)), _DENSITY_AT_0 * math.exp(-0.5 * x * x)


@overload(normal, jit_options=_INLINED)
def _normal(x):
    def normal32(x):
        a = abs(x)
        bell = exp_of_negative(-_HALF * x * x)
        t = _ONE / (_ONE + _P0 * a)
        p = _P8 * t + _P7
        p = p * t + _P6
        p = p * t + _P5
        p = p * t + _P4
        p = p * t + _P3
        p = p * t + _P2
        p = p * t + _P1
        tail = p * t * bell
        return (_ONE - tail if x > _ZERO else tail), bell * _DENSITY_AT_0_32

    return normal32 if x == types.float32 else _of_double("normal")


# Floats of 16 bits as compiled code gets them: see `half.stored`.
_BITS = ir.IntType(32)


# By LLVM's own numbers: Numba adds uint32 in 64 bits, which takes more than twice as long.
@instruction
def _from_bfloat16(typingctx: Any, value: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.shl(builder.zext(arguments[0], _BITS), _BITS(16))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(types.uint16), build


@instruction
def _to_bfloat16(typingctx: Any, value: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], _BITS)
        high = builder.lshr(bits, _BITS(16))
        # Half of the last place, and ties to even; NaN would overflow to something else.
        half = builder.add(builder.and_(high, _BITS(1)), _BITS(0x7FFF))
        rounded = builder.lshr(builder.add(bits, half), _BITS(16))
        nan = builder.or_(builder.and_(high, _BITS(0x8000)), _BITS(0x7FC0))
        is_nan = builder.fcmp_unordered("uno", arguments[0], arguments[0])
        return builder.trunc(builder.select(is_nan, nan, rounded), ir.IntType(16))

    return types.uint16(types.float32), build


@instruction
def _from_half(typingctx: Any, value: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.int16), build


@instruction
def _to_half(typingctx: Any, value: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.fptrunc(arguments[0], ir.HalfType()), ir.IntType(16))

    return types.int16(types.float32), build


def widened(stored):
    """An element of `stored` as float32; one of another type as it is."""
    raise NotImplementedError("for compiled code")


def narrowed(value, example):
    """`value`, rounded to the type that `example` is stored as."""
    raise NotImplementedError("for compiled code")


@overload(widened, jit_options=_INLINED)
def _(stored):
    if stored == types.uint16:
        return lambda stored: _from_bfloat16(stored)
    if stored == types.int16:
        return lambda stored: _from_half(stored)
    return lambda stored: stored


@overload(narrowed, jit_options=_INLINED)
def _(value, example):
    if example.dtype == types.uint16:
        return lambda value, example: _to_bfloat16(np.float32(value))
    if example.dtype == types.int16:
        return lambda value, example: _to_half(np.float32(value))
    return lambda value, example: value

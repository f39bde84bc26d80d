"""Elementwise kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import log
from types import ModuleType
from typing import Any

from ..dtype import NARROW, bfloat16, float32, largest, numpy_of
from ..layout import empty_in_order, in_order, in_own_order, memory_order
from ..registry import backend_for

Array = Any
Kernel = Callable[..., Array]


def in_float32(kernel: Kernel) -> Kernel:
    """`kernel` of one array, which takes the floats of 16 bits as float32 and rounds the result once."""

    @wraps(kernel)
    def wide(input: Array, *args: Any) -> Array:
        dtype = input.dtype
        if dtype.itemsize == 2 and dtype in NARROW:
            F = backend_for(input)
            return F.cast(getattr(F, kernel.__name__)(F.cast(input, float32.numpy), *args), dtype)
        return kernel(input, *args)

    return wide


def ufuncs(xp: ModuleType) -> dict[str, Any]:
    same_name = [
        "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan", "tanh", "sinh", "cosh",
        "maximum", "minimum", "fmax", "fmin", "isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit",
        "logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor",
        "logaddexp2", "hypot", "copysign", "nextafter", "gcd", "lcm", "deg2rad", "rad2deg", "frexp",
    ]  # fmt: skip
    renamed = {
        "add": "add", "sub": "subtract", "mul": "multiply", "div": "true_divide",
        "neg": "negative", "abs": "absolute", "eq": "equal", "ne": "not_equal", "lt": "less",
        "le": "less_equal", "gt": "greater", "ge": "greater_equal", "bitwise_not": "invert",
        "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2",
        "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    }  # fmt: skip
    return {name: getattr(xp, name) for name in same_name} | {k: getattr(xp, v) for k, v in renamed.items()}


def guarded(xp: ModuleType) -> dict[str, Any]:
    """Functions of the library that PyTorch defines otherwise for integers and bools."""

    def kept(name: str) -> Kernel:
        """Integers stay as they are."""
        function = getattr(xp, name)

        def kernel(input: Array) -> Array:
            if input.dtype.kind in "bc":
                raise NotImplementedError(
                    f"{name} is not supported for complex inputs: not implemented for {input.dtype}"
                )
            return input.copy() if input.dtype.kind in "iu" else function(input)

        return kernel

    def division(name: str) -> Kernel:
        """Integers divided by 0 are an error, where it costs no wait for a GPU to find out."""
        function = getattr(xp, name)
        if xp.__name__ != "numpy":
            return function

        def kernel(input: Array, other: Any) -> Array:
            out = function(input, other)
            if out.dtype.kind not in "iu":
                return out
            if _are_bools(input, other):
                raise NotImplementedError(f"{name}: not implemented for bools")
            if not xp.all(other):
                raise ZeroDivisionError("ZeroDivisionError: an integer is divided by zero")
            return out

        return kernel

    def shift(name: str) -> Kernel:
        function = getattr(xp, name)

        def kernel(input: Any, other: Any) -> Array:
            if _are_bools(input, other):
                raise NotImplementedError(f"bitwise_{name}: not implemented for bools")
            return function(input, other)

        return kernel

    def pow(input: Any, other: Any) -> Array:
        kind = other.dtype.kind if hasattr(other, "dtype") else ""
        if kind == "i":
            # 1 / input ** -other, cut to an integer: 0 but for 1 and -1.
            inverse = xp.where(input == 1, 1, xp.where(input == -1, 1 - 2 * (other & 1), 0))
            return xp.where(other < 0, inverse, xp.power(input, xp.maximum(other, 0))).astype(other.dtype)
        if _are_bools(input, other):
            raise NotImplementedError("pow: not implemented for bools")
        alike = _power_by_products(input, other)
        return _power(xp, input, other) if alike is None else alike(xp, input)

    def square(input: Array) -> Array:
        return xp.square(input.astype(xp.int64) if input.dtype.kind == "b" else input)

    return {name: kept(name) for name in ("floor", "ceil", "trunc", "rint")} | {
        name: division(name) for name in ("floor_divide", "remainder", "fmod")
    } | {f"bitwise_{name}": shift(name) for name in ("left_shift", "right_shift")} | {
        "pow": pow, "square": square,
    }  # fmt: skip


# Powers that are as PyTorch's, and sooner, without logarithms.
_POWERS: dict[float, Any] = {
    0.5: lambda xp, x: xp.sqrt(x),
    2: lambda xp, x: xp.square(x),
    3: lambda xp, x: xp.square(x) * x,
    -0.5: lambda xp, x: 1 / xp.sqrt(x),
    -1: lambda xp, x: 1 / x,
    -2: lambda xp, x: 1 / xp.square(x),
}
# Of floats of 16 bits, whose exponent is one: PyTorch rounds a cube of bfloat16 after each product, one of float16 once.
_POWERS_OF_BFLOAT16 = {float(n): _POWERS[n] for n in (0.5, 2, 3)}
_POWERS_OF_FLOAT16 = {float(n): _POWERS[n] for n in (0.5, 2)}
_MANY = 4096  # elements from which it pays to look at the signs first


def _power_by_products(input: Any, other: Any) -> Any:
    """What computes a power as PyTorch does, where `other` is one of some numbers."""
    kind = other.__class__
    if kind is float or kind is int:
        return _POWERS.get(other) if input.dtype.kind == "f" else None
    if getattr(other, "ndim", 1) or not hasattr(input, "dtype") or input.dtype not in NARROW:
        return None
    powers = _POWERS_OF_FLOAT16 if input.dtype.kind == "f" else _POWERS_OF_BFLOAT16
    return powers.get(float(other)) if kind is input.dtype.type else None


def _power(xp: ModuleType, input: Any, other: Any) -> Array:
    """xp.power, which on a CPU takes ten times as long for each negative number: they get their signs afterwards."""
    array = getattr(input, "dtype", None)
    if xp.__name__ != "numpy" or array is None or array.char not in "fd" or input.size < _MANY:
        return xp.power(input, other)
    exponent = xp.asarray(other, getattr(other, "dtype", array))
    negative = xp.signbit(input)
    if exponent.dtype != array or not negative.any():
        return xp.power(input, other)
    out = xp.power(xp.absolute(input), exponent)
    half = exponent * 0.5
    is_whole = xp.trunc(exponent) == exponent
    odd = is_whole & (xp.trunc(half) != half)
    F = backend_for(input)
    out = F.where(negative & odd, -out, out)
    # A number below 0 has no power between whole ones; infinity has, and -0.
    has_one = is_whole | ~negative | (input == 0) | xp.isinf(input) | xp.isinf(exponent)
    return F.where(xp.broadcast_to(has_one, out.shape), out, xp.nan)


def composed(xp: ModuleType) -> dict[str, Any]:
    def reciprocal(input: Array) -> Array:
        return 1 / input

    @in_float32
    def rsqrt(input: Array) -> Array:
        return 1 / xp.sqrt(input)

    @in_float32
    def sigmoid(input: Array) -> Array:
        # Where exp overflows, 1 / inf is the right result. A form with tanh would lose small results' digits.
        out = xp.exp(-input)
        out += 1
        return 1 / out

    def clamp(input: Array, min: Any = None, max: Any = None) -> Array:
        return input.clip(min, max)

    def where(condition: Array, input: Any, other: Any) -> Array:
        return xp.where(condition, input, other)

    def cast(input: Array, dtype: Any) -> Array:
        target = numpy_of(dtype)
        if input.dtype is target:
            return input
        if input.dtype.kind == "c" and target.kind not in "cb":
            return input.real.astype(target)
        return input.astype(target, copy=False) if 0 not in input.strides else in_own_order(input, target)

    def by_a_number(name: str, input: Any, other: Any) -> Array:
        dtype = (input if hasattr(input, "dtype") else other).dtype
        wide = [x.astype(float32.numpy) if hasattr(x, "dtype") else x for x in (input, other)]
        return getattr(xp, name)(*wide).astype(dtype)

    def clone(input: Array, memory_format: Any = None) -> Array:
        order = getattr(memory_format, "order", None)
        if order is not None:
            return in_order(input, order(input.ndim))
        return xp.array(input, copy=True) if 0 not in input.strides else in_own_order(input, input.dtype)

    def contiguous(input: Array) -> Array:
        return xp.ascontiguousarray(input) if input.ndim else input

    def conj(input: Array) -> Array:
        return xp.conjugate(input) if input.dtype.kind == "c" else input

    def real(input: Array) -> Array:
        return input.real

    def imag(input: Array) -> Array:
        return input.imag

    def complex(real: Array, imag: Array) -> Array:
        shape, dtype = xp.broadcast_shapes(real.shape, imag.shape), xp.result_type(real.dtype, xp.complex64)
        like = next((x for x in (real, imag) if x.shape == shape), None)
        out = (
            xp.empty(shape, dtype) if like is None else empty_in_order(like, shape, dtype, memory_order(like))
        )
        out.real, out.imag = real, imag
        return out

    def view_as_real(input: Array) -> Array:
        return input[..., None].view(input.real.dtype)

    def view_as_complex(input: Array) -> Array:
        return input.view(xp.result_type(input.dtype, xp.complex64))[..., 0]

    def sgn(input: Array) -> Array:
        if input.dtype.kind != "c":
            return sign(input)
        size = xp.absolute(input)
        return xp.where(size == 0, input, input / xp.where(size == 0, 1, size))

    def sign(input: Array) -> Array:
        if input.dtype.kind == "c":
            raise NotImplementedError("sign: not meant for complex numbers. Use sgn.")
        if input.dtype.kind == "b":
            return input.copy()
        result = xp.asarray(xp.sign(input))
        if input.dtype.kind not in "iu":
            result[result != result] = 0  # of NaN, as in PyTorch
        return result

    def logaddexp(input: Array, other: Array) -> Array:
        if input.dtype.kind != "c":
            return xp.logaddexp(input, other)
        larger = input.real >= other.real
        high, low = xp.where(larger, input, other), xp.where(larger, other, input)
        return xp.where(input == other, input + log(2.0), high + xp.log1p(xp.exp(low - high)))

    def frac(input: Array) -> Array:
        return input - xp.trunc(input)

    @in_float32
    def sinc(input: Array) -> Array:
        scaled = input * xp.pi
        return xp.where(input == 0, 1, xp.sin(scaled) / xp.where(input == 0, 1, scaled)).astype(input.dtype)

    def heaviside(input: Array, values: Array) -> Array:
        return xp.where(input == 0, values, input > 0).astype(input.dtype)

    def nan_to_num(input: Array, nan: float, posinf: float | None, neginf: float | None) -> Array:
        if input.dtype != NARROW[1]:
            return xp.nan_to_num(input, nan=nan, posinf=posinf, neginf=neginf)
        # NumPy takes bfloat16 for no floating-point type, and leaves it as it is.
        top = largest(bfloat16)
        posinf, neginf = top if posinf is None else posinf, -top if neginf is None else neginf
        return xp.nan_to_num(input.astype(xp.float32), nan=nan, posinf=posinf, neginf=neginf).astype(
            input.dtype
        )

    def isin(input: Array, test_elements: Array) -> Array:
        if input.dtype == test_elements.dtype == NARROW[1]:  # whose nan NumPy does not sort to the end
            input, test_elements = input.astype(xp.float32), test_elements.astype(xp.float32)
        return xp.isin(input, test_elements)

    return {
        "reciprocal": reciprocal, "rsqrt": rsqrt, "sigmoid": sigmoid, "clamp": clamp, "where": where, "cast": cast,
        "by_a_number": by_a_number,
        "clone": clone, "contiguous": contiguous, "conj": conj, "real": real, "imag": imag, "complex": complex,
        "view_as_real": view_as_real, "view_as_complex": view_as_complex,
        "sgn": sgn, "sign": sign, "frac": frac, "sinc": sinc, "heaviside": heaviside, "nan_to_num": nan_to_num,
        "logaddexp": logaddexp,
        "isin": isin,
    }  # fmt: skip


def _are_bools(*operands: Any) -> bool:
    return all(x.dtype.kind == "b" if hasattr(x, "dtype") else isinstance(x, bool) for x in operands)

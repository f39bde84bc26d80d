"""Elementwise ops of one operand: mathematics, rounding, tests, casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...core import return_types
from ...core.tensor import Tensor
from ..creation.factories import as_element
from ..dispatch.declare import Rule, TensorLike, composite, op, primitive
from ..dispatch.dtype_lists import refuse_dtypes
from ..dispatch.samples import calls, one

Unary = Callable[[Tensor], Tensor]


def _function(
    name: str, rule: Rule, reference: Any, low: float = -2.0, high: float = 2.0, *aliases: str
) -> Unary:
    """Declare the primitive `name` of one tensor whose gradient is `rule(F, g, …)`."""

    def function(F: Any, input: Tensor) -> Tensor: ...

    function.__name__ = name
    function.__doc__ = f"Elementwise {name}."
    return primitive(
        grads={"input": rule},
        promotion="float",
        samples=one(low, high),
        reference=reference,
        aliases=aliases,
        inplace=True,
    )(function)


exp = _function("exp", lambda F, g, out: g * out, np.exp)
expm1 = _function("expm1", lambda F, g, out: g * (out + 1), np.expm1)
log = _function("log", lambda F, g, input: g / input, np.log, 0.2, 3.0)
log1p = _function("log1p", lambda F, g, input: g / (1 + input), np.log1p, -0.5, 2.0)
log2 = _function("log2", lambda F, g, input: g / (input * math.log(2)), np.log2, 0.2, 3.0)
log10 = _function("log10", lambda F, g, input: g / (input * math.log(10)), np.log10, 0.2, 3.0)
sqrt = _function("sqrt", lambda F, g, out: g / (2 * out), np.sqrt, 0.2, 3.0)
rsqrt = _function("rsqrt", lambda F, g, out: g * -0.5 * out * out * out, lambda x: 1 / np.sqrt(x), 0.2, 3.0)
reciprocal = _function("reciprocal", lambda F, g, out: -g * out * out, np.reciprocal, 0.2, 3.0)
sin = _function("sin", lambda F, g, input: g * F.cos(input), np.sin)
cos = _function("cos", lambda F, g, input: -g * F.sin(input), np.cos)
tan = _function("tan", lambda F, g, out: g * (1 + out * out), np.tan, -1.0, 1.0)
asin = _function("asin", lambda F, g, input: g * F.rsqrt(1 - input * input), np.arcsin, -0.9, 0.9, "arcsin")
acos = _function("acos", lambda F, g, input: -g * F.rsqrt(1 - input * input), np.arccos, -0.9, 0.9, "arccos")
atan = _function("atan", lambda F, g, input: g / (1 + input * input), np.arctan, -2.0, 2.0, "arctan")
sinh = _function("sinh", lambda F, g, input: g * F.cosh(input), np.sinh)
cosh = _function("cosh", lambda F, g, input: g * F.sinh(input), np.cosh)
tanh = _function("tanh", lambda F, g, out: g - g * out * out, np.tanh)
asinh = _function(
    "asinh", lambda F, g, input: g * F.rsqrt(input * input + 1), np.arcsinh, -2.0, 2.0, "arcsinh"
)
acosh = _function(
    "acosh", lambda F, g, input: g * F.rsqrt(input * input - 1), np.arccosh, 1.2, 3.0, "arccosh"
)
atanh = _function("atanh", lambda F, g, input: g / (1 - input * input), np.arctanh, -0.9, 0.9, "arctanh")
sigmoid = _function("sigmoid", lambda F, g, out: F.sigmoid_backward(g, out), lambda x: 1 / (1 + np.exp(-x)))
exp2 = _function("exp2", lambda F, g, out: g * out * math.log(2), np.exp2)
deg2rad = _function("deg2rad", lambda F, g: g * (math.pi / 180), np.deg2rad)
rad2deg = _function("rad2deg", lambda F, g: g * (180 / math.pi), np.rad2deg)


@composite
def sigmoid_backward(F: Any, g: Any, out: Any) -> Any:
    """The gradient of `sigmoid`."""
    return g * out * (1 - out)


def _sinc_rule(F: Any, g: Any, input: Any) -> Any:
    """(cos(pi x) - sinc(x)) / x, which is 0 at 0."""
    apart = F.where(input == 0, F.full_like(input, 1), input)
    slope = (F.cos(apart * math.pi) - F.sin(apart * math.pi) / (apart * math.pi)) / apart
    return g * F.where(input == 0, F.full_like(input, 0), slope)


sinc = _function("sinc", _sinc_rule, np.sinc)


def _same_type(
    name: str,
    rule: Rule | None,
    reference: Any,
    low: float = -2.0,
    high: float = 2.0,
    *aliases: str,
    **options: Any,
) -> Unary:
    """Declare the primitive `name` of one tensor that keeps its dtype."""

    def function(F: Any, input: Tensor) -> Tensor: ...

    function.__name__ = name
    function.__doc__ = f"Elementwise {name}."
    return primitive(
        grads={"input": rule} if rule else None,
        samples=one(low, high),
        reference=reference,
        aliases=aliases,
        **{"inplace": bool(rule), **options},
    )(function)


def _zero(F: Any, g: Any) -> Any:
    """The gradient of a function that is constant between its steps."""
    return F.full_like(g, 0)


@composite
def square_backward(F: Any, g: Any, input: Any) -> Any:
    """The gradient of `square`."""
    return g * 2 * input


neg = _same_type("neg", lambda F, g: -g, np.negative, -2.0, 2.0, "negative")
abs = _same_type("abs", lambda F, g, input: g * F.sgn(input), np.abs, -2.0, 2.0, "absolute")
square = _same_type(
    "square", lambda F, g, input: F.square_backward(g, input), np.square, grad_name="PowBackward0"
)
sign = _same_type("sign", _zero, np.sign)
floor = _same_type("floor", _zero, np.floor)
ceil = _same_type("ceil", _zero, np.ceil)
trunc = _same_type("trunc", _zero, np.trunc, -2.0, 2.0, "fix")
frac = _same_type("frac", lambda F, g: g, lambda x: x - np.trunc(x))
isnan = _same_type("isnan", None, np.isnan)
isinf = _same_type("isinf", None, np.isinf)
isfinite = _same_type("isfinite", None, np.isfinite)
isposinf = _same_type("isposinf", None, np.isposinf)
isneginf = _same_type("isneginf", None, np.isneginf)
signbit = _same_type("signbit", None, np.signbit)
logical_not = _same_type("logical_not", None, np.logical_not, inplace=True)


def _refuse_floats(input: Tensor) -> None:
    if input.dtype.category > 1:
        raise NotImplementedError(
            f"bitwise_not(): not implemented for '{input.dtype.scalar_type}'; expected integers or bools"
        )


@primitive(
    samples=lambda rng: [((rng.integers(0, 9, 5),), {})],
    reference=np.invert,
    check=_refuse_floats,
    inplace=True,
)
def bitwise_not(F: Any, input: Tensor) -> Tensor:
    """Bitwise complement; logical not of bools."""
    ...


def _check_round(input: Tensor, decimals: int = 0) -> None:
    if decimals:
        if not hasattr(decimals, "__index__"):
            raise TypeError(f"round(): argument 'decimals' must be int, not {type(decimals).__name__}")
        refuse_dtypes("round", "bi", (input,))


@op(
    grads={"input": _zero},
    samples=lambda rng: [((rng.uniform(-5, 5, (2, 3)),), {}), ((rng.uniform(-5, 5, 4), 2), {})],
    reference=np.round,
    check=_check_round,
    inplace=True,
)
def round(F: Any, input: Tensor, decimals: int = 0) -> Tensor:
    """To `decimals` places, halves to even."""
    if decimals == 0:
        return F.rint(input)
    scale = 10.0**decimals
    return F.cast(F.rint(input * scale) / scale, input.dtype)  # NumPy takes bfloat16 and a number to float32


@composite
def clamp_backward(F: Any, g: Any, input: Any, min: Any, max: Any) -> Any:
    """The gradient of `clamp` for its input."""
    inside = True
    if min is not None:
        inside = input >= min
    if max is not None:
        inside = F.logical_and(inside, input <= max) if min is not None else input <= max
    return F.where(inside, g, F.full_like(g, 0))


def _clamp_min_rule(F: Any, g: Any, input: Any, min: Any, max: Any) -> Any:
    below = input < min
    return F.where(below if max is None else F.logical_and(below, min < max), g, F.full_like(g, 0))


def _clamp_max_rule(F: Any, g: Any, input: Any, min: Any, max: Any) -> Any:
    above = input > max
    return F.where(above if min is None else F.logical_or(above, max < min), g, F.full_like(g, 0))


def _check_clamp(input: Tensor, min: Any = None, max: Any = None) -> None:
    if min is None and max is None:
        raise RuntimeError("clamp(): At least one of 'min' or 'max' must not be None")
    if input._array.dtype.kind == "b" and min is not None and max is not None:
        refuse_dtypes("clamp", "b", (input, min, max), numbers=True)
    for bound in (min, max):
        if isinstance(bound, (float, int)) and not 0 <= bound <= 127:
            kind = input.dtype
            if kind.category < 2 and (isinstance(min, float) or isinstance(max, float)):
                kind = dtypes.get_default_dtype()
            as_element(bound, kind)  # which refuses what does not fit


@primitive(
    grads={
        "input": lambda F, g, input, min, max: F.clamp_backward(g, input, min, max),
        "min": _clamp_min_rule,
        "max": _clamp_max_rule,
    },
    promotion="ordered",
    check=_check_clamp,
    samples=calls((-0.5, 0.7), (None, 0.3), (0.1,)),
    reference=lambda x, min=None, max=None: np.clip(x, min, max),
    grad_name=lambda min, max: f"ClampBackward{int(not hasattr(min, 'dtype') and not hasattr(max, 'dtype'))}",
    aliases=("clip",),
    inplace=True,
)
def clamp(F: Any, input: Tensor, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:
    """Limited to [min, max]; None is no limit. Where min > max the result is max."""
    ...


def _adapt_hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> tuple[Any, ...]:
    if min_val > max_val:
        raise ValueError(f"min_val cannot be greater than max_val, got {min_val} and {max_val}")
    dtype = input.dtype
    if dtype.category == 3:
        raise NotImplementedError(f"hardtanh(): not implemented for '{dtype.scalar_type}': it has no order")
    if dtype.category == 0:
        raise RuntimeError("hardtanh(): Bool inputs not supported for hardtanh")
    if dtype.category == 1:  # the limits are of the dtype too
        if min_val <= -1 and not dtype.is_signed:
            raise RuntimeError("hardtanh(): cannot do hardtanh on an unsigned type with negative limits")
        info = np.iinfo(dtype.numpy)
        low, high = (int(max(info.min, min(info.max, limit))) for limit in (min_val, max_val))
        return input, low, high
    return input, min_val, max_val


@op(
    grads={"input": lambda F, g, input, min_val, max_val: F.hardtanh_backward(g, input, min_val, max_val)},
    adapt=_adapt_hardtanh,
    samples=calls((), (-0.3, 0.4)),
    reference=lambda x, low=-1.0, high=1.0: np.clip(x, low, high),
    method=False,
)
def hardtanh(
    F: Any, input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Limited to [min_val, max_val], in the dtype of the input; no gradient passes at the limits."""
    return F.clamp(input, min_val, max_val)


@composite
def hardtanh_backward(F: Any, g: Any, input: Any, min_val: Any, max_val: Any) -> Any:
    """The gradient of `hardtanh`."""
    limited = F.logical_or(input <= min_val, input >= max_val)
    return F.where(limited, F.full_like(g, 0), g)


@primitive(
    grads={"input": lambda F, g, input: F.where(F.isfinite(input), g, F.full_like(g, 0))},
    samples=calls((), (0.5, 1.0, -1.0)),
    reference=lambda x, *values: np.nan_to_num(x, *values),
    inplace=True,
)
def nan_to_num(
    F: Any, input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Numbers in place of nan and the infinities: by default 0, and the largest and smallest of the dtype."""
    ...


@primitive(
    grads={"input": lambda F, g, exponent: g / F.exp2(F.cast(exponent, g.dtype))},
    extras=("exponent",),
    outputs=2,
    samples=one(0.2, 3.0),
    reference=np.frexp,
)
def frexp(F: Any, input: Tensor) -> return_types.frexp:
    """(mantissa, exponent): input is mantissa * 2**exponent, with 0.5 <= |mantissa| < 1."""
    ...


@primitive(
    grads={"input": lambda F, g: g},
    samples=calls((np.float64,)),
    reference=lambda x, dtype: x.astype(dtype),
    method=False,
    grad_name="ToCopyBackward0",
)
def cast(F: Any, input: Tensor, dtype: Any) -> Tensor:
    """In another dtype; the gradient comes back in the input's."""
    ...


@primitive(grads={"input": lambda F, g: g}, samples=one(), reference=np.copy)
def clone(F: Any, input: Tensor, memory_format: Any = None) -> Tensor:
    """A copy in new memory, in the order that the input has there, or that of `memory_format`."""
    ...

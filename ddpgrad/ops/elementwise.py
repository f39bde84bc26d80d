"""Elementwise ops of one operand: mathematics, rounding, tests, casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .._tensor import Tensor
from .declare import Rule, TensorLike, op, primitive
from .samples import calls, one

Unary = Callable[[Tensor], Tensor]
_vectorized_erf = np.vectorize(math.erf, otypes=[np.float64])


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
tanh = _function("tanh", lambda F, g, out: g * (1 - out * out), np.tanh)
asinh = _function(
    "asinh", lambda F, g, input: g * F.rsqrt(input * input + 1), np.arcsinh, -2.0, 2.0, "arcsinh"
)
acosh = _function(
    "acosh", lambda F, g, input: g * F.rsqrt(input * input - 1), np.arccosh, 1.2, 3.0, "arccosh"
)
atanh = _function("atanh", lambda F, g, input: g / (1 - input * input), np.arctanh, -0.9, 0.9, "arctanh")
sigmoid = _function("sigmoid", lambda F, g, out: g * out * (1 - out), lambda x: 1 / (1 + np.exp(-x)))
erf = _function(
    "erf",
    lambda F, g, input: g * (2 / math.sqrt(math.pi)) * F.exp(-input * input),
    lambda x: _vectorized_erf(x),
)


def _same_type(name: str, rule: Rule | None, reference: Any, low: float = -2.0, high: float = 2.0) -> Unary:
    """Declare the primitive `name` of one tensor that keeps its dtype."""

    def function(F: Any, input: Tensor) -> Tensor: ...

    function.__name__ = name
    function.__doc__ = f"Elementwise {name}."
    return primitive(
        grads={"input": rule} if rule else None,
        samples=one(low, high),
        reference=reference,
        inplace=bool(rule),
    )(function)


neg = _same_type("neg", lambda F, g: -g, np.negative)
abs = _same_type("abs", lambda F, g, input: g * F.sign(input), np.abs)
square = _same_type("square", lambda F, g, input: g * 2 * input, np.square)
sign = _same_type("sign", lambda F, g: g * 0, np.sign)
floor = _same_type("floor", lambda F, g: g * 0, np.floor)
ceil = _same_type("ceil", lambda F, g: g * 0, np.ceil)
trunc = _same_type("trunc", lambda F, g: g * 0, np.trunc)
isnan = _same_type("isnan", None, np.isnan)
isinf = _same_type("isinf", None, np.isinf)
isfinite = _same_type("isfinite", None, np.isfinite)
logical_not = _same_type("logical_not", None, np.logical_not)


@primitive(samples=lambda rng: [((rng.integers(0, 9, 5),), {})], reference=np.invert, inplace=True)
def bitwise_not(F: Any, input: Tensor) -> Tensor:
    """Bitwise complement; logical not of bools."""
    ...


@op(
    grads={"input": lambda F, g: g * 0},
    samples=lambda rng: [((rng.uniform(-5, 5, (2, 3)),), {}), ((rng.uniform(-5, 5, 4), 2), {})],
    reference=np.round,
    inplace=True,
)
def round(F: Any, input: Tensor, decimals: int = 0) -> Tensor:
    """To `decimals` places, halves to even."""
    scale = 10.0**decimals
    return F.rint(input) if decimals == 0 else F.rint(input * scale) / scale


def _clamp_rule(F: Any, g: Any, input: Any, min: Any, max: Any) -> Any:
    inside = None
    if min is not None:
        inside = input >= min
    if max is not None:
        inside = input <= max if inside is None else F.logical_and(inside, input <= max)
    return g if inside is None else F.where(inside, g, F.full_like(g, 0))


@primitive(
    grads={
        "input": _clamp_rule,
        "min": lambda F, g, input, min: F.where(input < min, g, F.full_like(g, 0)),
        "max": lambda F, g, input, max: F.where(input > max, g, F.full_like(g, 0)),
    },
    promotion="same",
    samples=calls((-0.5, 0.7), (None, 0.3), (0.1,)),
    reference=lambda x, min=None, max=None: np.clip(x, min, max),
    aliases=("clip",),
    inplace=True,
)
def clamp(F: Any, input: Tensor, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:
    """Limited to [min, max]; None is no limit."""
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
def clone(F: Any, input: Tensor) -> Tensor:
    """A copy in new memory."""
    ...

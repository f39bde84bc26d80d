"""Elementwise kernels."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ..dtype import numpy_of

Array = Any


def ufuncs(xp: ModuleType) -> dict[str, Any]:
    same_name = [
        "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan", "tanh", "sinh", "cosh", "floor",
        "ceil", "trunc", "square", "sign", "maximum", "minimum", "isnan", "isinf", "isfinite", "logical_and",
        "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "floor_divide",
        "remainder", "fmod", "logaddexp",
    ]  # fmt: skip
    renamed = {
        "add": "add", "sub": "subtract", "mul": "multiply", "div": "true_divide", "pow": "power",
        "neg": "negative", "abs": "absolute", "eq": "equal", "ne": "not_equal", "lt": "less",
        "le": "less_equal", "gt": "greater", "ge": "greater_equal", "bitwise_not": "invert",
        "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2",
        "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    }  # fmt: skip
    return {name: getattr(xp, name) for name in same_name} | {k: getattr(xp, v) for k, v in renamed.items()}


def composed(xp: ModuleType) -> dict[str, Any]:
    def reciprocal(input: Array) -> Array:
        return 1 / input

    def rint(input: Array) -> Array:
        return xp.rint(input) if input.dtype.kind not in "bui" else input.copy()

    def rsqrt(input: Array) -> Array:
        return 1 / xp.sqrt(input)

    def sigmoid(input: Array) -> Array:
        # tanh does not overflow, where exp(-x) does for large negative x.
        out = xp.tanh(input * 0.5)
        return out * 0.5 + 0.5

    def clamp(input: Array, min: Any = None, max: Any = None) -> Array:
        return xp.clip(input, min, max)

    def where(condition: Array, input: Any, other: Any) -> Array:
        return xp.where(condition, input, other)

    def cast(input: Array, dtype: Any) -> Array:
        return input.astype(numpy_of(dtype), copy=False)

    def clone(input: Array) -> Array:
        return xp.array(input, copy=True)

    def contiguous(input: Array) -> Array:
        return xp.ascontiguousarray(input) if input.ndim else input

    return {
        "reciprocal": reciprocal, "rsqrt": rsqrt, "rint": rint, "sigmoid": sigmoid, "clamp": clamp, "where": where,
        "cast": cast, "clone": clone, "contiguous": contiguous,
    }  # fmt: skip

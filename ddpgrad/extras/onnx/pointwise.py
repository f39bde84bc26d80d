"""ONNX export of elementwise ops, comparisons and reductions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .graph import CONVERTERS, Graph, converts
from .trace import Step

_ONE_TO_ONE = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh",
    "ceil": "Ceil", "clone": "Identity", "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "floor": "Floor",
    "hardswish": "HardSwish", "isinf": "IsInf", "isnan": "IsNaN", "log": "Log", "logical_not": "Not", "mish": "Mish",
    "neg": "Neg", "reciprocal": "Reciprocal", "relu": "Relu", "selu": "Selu", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin",
    "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh", "to_contiguous": "Identity",
}  # fmt: skip
_PAIRS = {
    "add": "Add", "div": "Div", "eq": "Equal", "ge": "GreaterOrEqual", "gt": "Greater", "le": "LessOrEqual",
    "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "lt": "Less", "maximum": "Max", "minimum": "Min",
    "mul": "Mul", "pow": "Pow", "sub": "Sub",
}  # fmt: skip
_REDUCTIONS = {
    "amax": "ReduceMax", "amin": "ReduceMin", "logsumexp": "ReduceLogSumExp", "mean": "ReduceMean", "prod": "ReduceProd",
    "sum": "ReduceSum",
}  # fmt: skip


def operands(g: Graph, s: Step, *names: str) -> list[str]:
    """The named arguments, with numbers in the dtype of the arrays beside them."""
    values = [getattr(s, name) for name in names]
    dtype = next(v.dtype for v in values if hasattr(v, "dtype"))
    return [g.of(v, dtype) for v in values]


def _one(kind: str) -> Any:
    return lambda g, s: g.node(kind, [g.of(s.input)])


def _pair(kind: str) -> Any:
    return lambda g, s: g.node(kind, operands(g, s, "input", "other"))


CONVERTERS.update({name: _one(kind) for name, kind in _ONE_TO_ONE.items()})
CONVERTERS.update({name: _pair(kind) for name, kind in _PAIRS.items()})
CONVERTERS.update(
    {
        "silu": lambda g, s: g.node("Mul", [s.input, g.node("Sigmoid", [s.input])]),
        "square": lambda g, s: g.node("Mul", [s.input, s.input]),
        "celu": lambda g, s: g.node("Celu", [s.input], alpha=float(s.alpha)),
        "cumsum": lambda g, s: g.node("CumSum", [_in_dtype(g, s), g.constant(s.dim, np.int64)]),
        "elu": lambda g, s: g.node("Elu", [s.input], alpha=float(s.alpha)),
        "exp2": lambda g, s: g.node("Pow", [g.constant(2, s.input.dtype), s.input]),
        "hardsigmoid": lambda g, s: g.node("HardSigmoid", [s.input], alpha=1 / 6, beta=0.5),
        "leaky_relu": lambda g, s: g.node("LeakyRelu", [s.input], alpha=float(s.negative_slope)),
        "ne": lambda g, s: g.node("Not", [g.node("Equal", operands(g, s, "input", "other"))]),
        "prelu_kernel": lambda g, s: g.node("PRelu", operands(g, s, "input", "weight")),
        "rsqrt": lambda g, s: g.node("Reciprocal", [g.node("Sqrt", [s.input])]),
        "where": lambda g, s: g.node("Where", [s.condition, *operands(g, s, "input", "other")]),
    }
)


@converts(*_REDUCTIONS)
def _reduction(g: Graph, s: Step) -> str:
    name = _in_dtype(g, s)
    return reduced(g, _REDUCTIONS[s.op], name, s.dim, s.keepdim)


def _in_dtype(g: Graph, s: Step) -> str:
    """The input in the dtype of the result: sums of bools and small integers are int64."""
    name, result = g.of(s.input), s.results[0]
    assert result is not None
    return name if s.input.dtype == result.dtype else g.cast(name, result.dtype)


def reduced(g: Graph, kind: str, name: str, dim: Any, keepdim: bool) -> str:
    """A reduction over dims, or over all for None or none."""
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    return g.node(kind, [name, g.ints(dims)] if dims else [name], keepdims=int(keepdim))


@converts("argmax", "argmin")
def _position(g: Graph, s: Step) -> str:
    name, dim = g.of(s.input), s.dim
    kind = "ArgMax" if s.op == "argmax" else "ArgMin"
    if dim is None:
        return g.node(
            "Squeeze", [g.node(kind, [g.node("Reshape", [name, g.ints([-1])])], axis=0, keepdims=0)]
        )
    return g.node(kind, [name], axis=dim, keepdims=int(s.keepdim))


@converts("all", "any")
def _truth(g: Graph, s: Step) -> str:
    kind = "ReduceMin" if s.op == "all" else "ReduceMax"
    name = g.cast(g.cast(g.of(s.input), np.bool_), np.int32)
    return g.cast(reduced(g, kind, name, s.dim, s.keepdim), np.bool_)


@converts("var", "std")
def _spread(g: Graph, s: Step) -> str:
    value = s.input
    dims = [s.dim] if isinstance(s.dim, int) else list(s.dim or range(len(value.shape)))
    correction = 1 if s.correction is None else s.correction
    name = g.of(value)
    off = g.node("Sub", [name, reduced(g, "ReduceMean", name, dims, True)])
    total = reduced(g, "ReduceSum", g.node("Mul", [off, off]), dims, s.keepdim)
    sizes = g.node("Gather", [g.node("Shape", [name]), g.ints(dims)], axis=0)
    count = g.cast(g.node("ReduceProd", [sizes], keepdims=0), value.dtype)
    variance = g.node("Div", [total, g.node("Sub", [count, g.constant(correction, value.dtype)])])
    return variance if s.op == "var" else g.node("Sqrt", [variance])


@converts("vector_norm")
def _norm(g: Graph, s: Step) -> str:
    kinds = {1.0: "ReduceL1", 2.0: "ReduceL2"}
    name = g.of(s.x)
    if s.ord in kinds:
        return reduced(g, kinds[s.ord], name, s.dim, s.keepdim)
    power = g.constant(s.ord, s.x.dtype)
    total = reduced(g, "ReduceSum", g.node("Pow", [g.node("Abs", [name]), power]), s.dim, s.keepdim)
    return g.node("Pow", [total, g.constant(1 / s.ord, s.x.dtype)])


@converts("round")
def _round(g: Graph, s: Step) -> str:
    """To the nearest even, as ONNX does."""
    name, decimals = g.of(s.input), s.decimals
    if not decimals:
        return g.node("Round", [name])
    scale = g.constant(10.0**decimals, s.input.dtype)
    return g.node("Div", [g.node("Round", [g.node("Mul", [name, scale])]), scale])


@converts("clamp", "hardtanh")
def _clamp(g: Graph, s: Step) -> str:
    dtype = s.input.dtype
    name = g.of(s.input)
    low, high = ("min", "max") if s.op == "clamp" else ("min_val", "max_val")
    for bound, kind in ((low, "Max"), (high, "Min")):
        if getattr(s, bound) is not None:
            name = g.node(kind, [name, g.of(getattr(s, bound), dtype)])
    return name


@converts("cast")
def _cast(g: Graph, s: Step) -> str:
    assert s.results[0] is not None
    return g.cast(g.of(s.input), s.results[0].dtype)


@converts("bitwise_and", "bitwise_or", "bitwise_xor")
def _bits(g: Graph, s: Step) -> str:
    kind = {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor"}[s.op]
    assert s.results[0] is not None
    names = operands(g, s, "input", "other")
    return g.node(kind if s.results[0].dtype == np.bool_ else f"Bitwise{kind}", names)


@converts("bitwise_not")
def _bitwise_not(g: Graph, s: Step) -> str:
    value = s.input
    return g.node("Not" if value.dtype == np.bool_ else "BitwiseNot", [g.of(value)])


@converts("expm1", "log1p")
def _near_zero(g: Graph, s: Step) -> str:
    one = g.constant(1, s.input.dtype)
    if s.op == "expm1":
        return g.node("Sub", [g.node("Exp", [s.input]), one])
    return g.node("Log", [g.node("Add", [s.input, one])])


@converts("log2", "log10")
def _log(g: Graph, s: Step) -> str:
    base = g.constant(math.log(2 if s.op == "log2" else 10), s.input.dtype)
    return g.node("Div", [g.node("Log", [s.input]), base])


@converts("xlogy")
def _xlogy(g: Graph, s: Step) -> str:
    """Nothing where the input is 0, whatever the logarithm, save that of NaN."""
    first, second = operands(g, s, "input", "other")
    assert s.results[0] is not None
    zero = g.constant(0, s.results[0].dtype)
    known = g.node("Not", [g.node("IsNaN", [second])])
    none = g.node("And", [g.node("Equal", [first, zero]), known])
    return g.node("Where", [none, zero, g.node("Mul", [first, g.node("Log", [second])])])


@converts("remainder", "fmod")
def _remainder(g: Graph, s: Step) -> str:
    """Of floats, ONNX's Mod has the sign of the dividend; the other is worked out by a floor."""
    first, second = operands(g, s, "input", "other")
    assert s.results[0] is not None
    floating = s.results[0].dtype.kind == "f"
    if s.op == "remainder" and floating:
        whole = g.node("Floor", [g.node("Div", [first, second])])
        return g.node("Sub", [first, g.node("Mul", [whole, second])])
    return g.node("Mod", [first, second], fmod=int(s.op == "fmod"))


@converts("lerp")
def _lerp(g: Graph, s: Step) -> str:
    first, last, weight = operands(g, s, "input", "end", "weight")
    return g.node("Add", [first, g.node("Mul", [weight, g.node("Sub", [last, first])])])


@converts("scaled_sum")
def _scaled_sum(g: Graph, s: Step) -> str:
    first, other, factor = operands(g, s, "input", "other", "alpha")
    return g.node("Add", [first, g.node("Mul", [other, factor])])


@converts("addcmul", "addcdiv")
def _weighted(g: Graph, s: Step) -> str:
    first, one, other, factor = operands(g, s, "input", "tensor1", "tensor2", "value")
    combined = g.node("Mul" if s.op == "addcmul" else "Div", [g.node("Mul", [one, factor]), other])
    return g.node("Add", [first, combined])


@converts("masked_fill")
def _masked_fill(g: Graph, s: Step) -> str:
    name, fill = operands(g, s, "input", "value")
    return g.node("Where", [s.mask, fill, name])


# -- activations -------------------------------------------------------------------------


@converts("gelu")
def _gelu(g: Graph, s: Step) -> str:
    dtype, name = s.input.dtype, g.of(s.input)
    half, one = g.constant(0.5, dtype), g.constant(1, dtype)
    if s.approximate == "tanh":
        cube = g.node("Mul", [g.node("Pow", [name, g.constant(3, dtype)]), g.constant(0.044715, dtype)])
        inner = g.node("Mul", [g.node("Add", [name, cube]), g.constant(math.sqrt(2 / math.pi), dtype)])
        bent = g.node("Tanh", [inner])
    else:
        bent = g.node("Erf", [g.node("Mul", [name, g.constant(math.sqrt(0.5), dtype)])])
    return g.node("Mul", [g.node("Mul", [name, half]), g.node("Add", [bent, one])])


@converts("glu")
def _glu(g: Graph, s: Step) -> str:
    first, gate = g.node("Split", [s.input], outputs=2, axis=s.dim, num_outputs=2)
    return g.node("Mul", [first, g.node("Sigmoid", [gate])])


@converts("hardshrink", "softshrink")
def _shrink(g: Graph, s: Step) -> str:
    lambd = float(s.lambd)
    bias = lambd if s.op == "softshrink" else 0.0
    return g.node("Shrink", [s.input], lambd=lambd, bias=bias)


@converts("softplus")
def _softplus(g: Graph, s: Step) -> str:
    dtype = s.input.dtype
    name = g.of(s.input)
    scaled = g.node("Mul", [name, g.constant(s.beta, dtype)])
    bent = g.node("Div", [g.node("Softplus", [scaled]), g.constant(s.beta, dtype)])
    return g.node("Where", [g.node("Greater", [scaled, g.constant(s.threshold, dtype)]), name, bent])


@converts("threshold")
def _threshold(g: Graph, s: Step) -> str:
    dtype = s.input.dtype
    name = g.of(s.input)
    above = g.node("Greater", [name, g.constant(s.threshold, dtype)])
    return g.node("Where", [above, name, g.constant(s.value, dtype)])


@converts("softmax", "log_softmax")
def _softmax(g: Graph, s: Step) -> str:
    kind = "Softmax" if s.op == "softmax" else "LogSoftmax"
    return g.node(kind, [_in_dtype(g, s)], axis=s.dim)

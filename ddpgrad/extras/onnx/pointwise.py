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
    values = [s.arguments[name] for name in names]
    dtype = next(v.dtype for v in values if hasattr(v, "dtype"))
    return [g.of(v, dtype) for v in values]


def _one(kind: str) -> Any:
    return lambda g, s: g.node(kind, [g.of(s.arguments["input"])])


def _pair(kind: str) -> Any:
    return lambda g, s: g.node(kind, operands(g, s, "input", "other"))


CONVERTERS.update({name: _one(kind) for name, kind in _ONE_TO_ONE.items()})
CONVERTERS.update({name: _pair(kind) for name, kind in _PAIRS.items()})


@converts(*_REDUCTIONS)
def _reduction(g: Graph, s: Step) -> str:
    name = _in_dtype(g, s)
    return reduced(g, _REDUCTIONS[s.op], name, s.arguments["dim"], s.arguments["keepdim"])


def _in_dtype(g: Graph, s: Step) -> str:
    """The input in the dtype of the result: sums of bools and small integers are int64."""
    name, result = g.of(s.arguments["input"]), s.results[0]
    assert result is not None
    return name if s.arguments["input"].dtype == result.dtype else g.cast(name, result.dtype)


def reduced(g: Graph, kind: str, name: str, dim: Any, keepdim: bool) -> str:
    """A reduction over dims, or over all for None or none."""
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    return g.node(kind, [name, g.ints(dims)] if dims else [name], keepdims=int(keepdim))


@converts("argmax", "argmin")
def _position(g: Graph, s: Step) -> str:
    name, dim = g.of(s.arguments["input"]), s.arguments["dim"]
    kind = "ArgMax" if s.op == "argmax" else "ArgMin"
    if dim is None:
        return g.node(
            "Squeeze", [g.node(kind, [g.node("Reshape", [name, g.ints([-1])])], axis=0, keepdims=0)]
        )
    return g.node(kind, [name], axis=dim, keepdims=int(s.arguments["keepdim"]))


@converts("all", "any")
def _truth(g: Graph, s: Step) -> str:
    kind = "ReduceMin" if s.op == "all" else "ReduceMax"
    name = g.cast(g.cast(g.of(s.arguments["input"]), np.bool_), np.int32)
    return g.cast(reduced(g, kind, name, s.arguments["dim"], s.arguments["keepdim"]), np.bool_)


@converts("var", "std")
def _spread(g: Graph, s: Step) -> str:
    value, a = s.arguments["input"], s.arguments
    dims = [a["dim"]] if isinstance(a["dim"], int) else list(a["dim"] or range(len(value.shape)))
    correction = 1 if a["correction"] is None else a["correction"]
    name = g.of(value)
    off = g.node("Sub", [name, reduced(g, "ReduceMean", name, dims, True)])
    total = reduced(g, "ReduceSum", g.node("Mul", [off, off]), dims, a["keepdim"])
    sizes = g.node("Gather", [g.node("Shape", [name]), g.ints(dims)], axis=0)
    count = g.cast(g.node("ReduceProd", [sizes], keepdims=0), value.dtype)
    variance = g.node("Div", [total, g.node("Sub", [count, g.constant(correction, value.dtype)])])
    return variance if s.op == "var" else g.node("Sqrt", [variance])


@converts("vector_norm")
def _norm(g: Graph, s: Step) -> str:
    a = s.arguments
    kinds = {1.0: "ReduceL1", 2.0: "ReduceL2"}
    name = g.of(a["x"])
    if a["ord"] in kinds:
        return reduced(g, kinds[a["ord"]], name, a["dim"], a["keepdim"])
    power = g.constant(a["ord"], a["x"].dtype)
    total = reduced(g, "ReduceSum", g.node("Pow", [g.node("Abs", [name]), power]), a["dim"], a["keepdim"])
    return g.node("Pow", [total, g.constant(1 / a["ord"], a["x"].dtype)])


@converts("cumsum")
def _cumsum(g: Graph, s: Step) -> str:
    return g.node("CumSum", [_in_dtype(g, s), g.constant(s.arguments["dim"], np.int64)])


@converts("rsqrt")
def _rsqrt(g: Graph, s: Step) -> str:
    return g.node("Reciprocal", [g.node("Sqrt", [g.of(s.arguments["input"])])])


@converts("square")
def _square(g: Graph, s: Step) -> str:
    name = g.of(s.arguments["input"])
    return g.node("Mul", [name, name])


@converts("round")
def _round(g: Graph, s: Step) -> str:
    """To the nearest even, as ONNX does."""
    name, decimals = g.of(s.arguments["input"]), s.arguments["decimals"]
    if not decimals:
        return g.node("Round", [name])
    scale = g.constant(10.0**decimals, s.arguments["input"].dtype)
    return g.node("Div", [g.node("Round", [g.node("Mul", [name, scale])]), scale])


@converts("clamp", "hardtanh")
def _clamp(g: Graph, s: Step) -> str:
    dtype = s.arguments["input"].dtype
    name = g.of(s.arguments["input"])
    low, high = ("min", "max") if s.op == "clamp" else ("min_val", "max_val")
    for bound, kind in ((low, "Max"), (high, "Min")):
        if s.arguments[bound] is not None:
            name = g.node(kind, [name, g.of(s.arguments[bound], dtype)])
    return name


@converts("cast")
def _cast(g: Graph, s: Step) -> str:
    assert s.results[0] is not None
    return g.cast(g.of(s.arguments["input"]), s.results[0].dtype)


@converts("bitwise_and", "bitwise_or", "bitwise_xor")
def _bits(g: Graph, s: Step) -> str:
    kind = {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor"}[s.op]
    assert s.results[0] is not None
    names = operands(g, s, "input", "other")
    return g.node(kind if s.results[0].dtype == np.bool_ else f"Bitwise{kind}", names)


@converts("bitwise_not")
def _bitwise_not(g: Graph, s: Step) -> str:
    value = s.arguments["input"]
    return g.node("Not" if value.dtype == np.bool_ else "BitwiseNot", [g.of(value)])


@converts("expm1", "log1p")
def _near_zero(g: Graph, s: Step) -> str:
    one = g.constant(1, s.arguments["input"].dtype)
    if s.op == "expm1":
        return g.node("Sub", [g.node("Exp", [g.of(s.arguments["input"])]), one])
    return g.node("Log", [g.node("Add", [g.of(s.arguments["input"]), one])])


@converts("log2", "log10")
def _log(g: Graph, s: Step) -> str:
    base = g.constant(math.log(2 if s.op == "log2" else 10), s.arguments["input"].dtype)
    return g.node("Div", [g.node("Log", [g.of(s.arguments["input"])]), base])


@converts("exp2")
def _exp2(g: Graph, s: Step) -> str:
    return g.node("Pow", [g.constant(2, s.arguments["input"].dtype), g.of(s.arguments["input"])])


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


@converts("where")
def _where(g: Graph, s: Step) -> str:
    return g.node("Where", [g.of(s.arguments["condition"]), *operands(g, s, "input", "other")])


@converts("masked_fill")
def _masked_fill(g: Graph, s: Step) -> str:
    name, fill = operands(g, s, "input", "value")
    return g.node("Where", [g.of(s.arguments["mask"]), fill, name])


@converts("ne")
def _unequal(g: Graph, s: Step) -> str:
    return g.node("Not", [g.node("Equal", operands(g, s, "input", "other"))])


# -- activations -------------------------------------------------------------------------


@converts("gelu")
def _gelu(g: Graph, s: Step) -> str:
    dtype, name = s.arguments["input"].dtype, g.of(s.arguments["input"])
    half, one = g.constant(0.5, dtype), g.constant(1, dtype)
    if s.arguments["approximate"] == "tanh":
        cube = g.node("Mul", [g.node("Pow", [name, g.constant(3, dtype)]), g.constant(0.044715, dtype)])
        inner = g.node("Mul", [g.node("Add", [name, cube]), g.constant(math.sqrt(2 / math.pi), dtype)])
        bent = g.node("Tanh", [inner])
    else:
        bent = g.node("Erf", [g.node("Mul", [name, g.constant(math.sqrt(0.5), dtype)])])
    return g.node("Mul", [g.node("Mul", [name, half]), g.node("Add", [bent, one])])


@converts("glu")
def _glu(g: Graph, s: Step) -> str:
    a = s.arguments
    first, gate = g.node("Split", [g.of(a["input"])], outputs=2, axis=a["dim"], num_outputs=2)
    return g.node("Mul", [first, g.node("Sigmoid", [gate])])


@converts("silu")
def _silu(g: Graph, s: Step) -> str:
    name = g.of(s.arguments["input"])
    return g.node("Mul", [name, g.node("Sigmoid", [name])])


@converts("leaky_relu")
def _leaky_relu(g: Graph, s: Step) -> str:
    return g.node("LeakyRelu", [g.of(s.arguments["input"])], alpha=float(s.arguments["negative_slope"]))


@converts("elu")
def _elu(g: Graph, s: Step) -> str:
    return g.node("Elu", [g.of(s.arguments["input"])], alpha=float(s.arguments["alpha"]))


@converts("celu")
def _celu(g: Graph, s: Step) -> str:
    return g.node("Celu", [g.of(s.arguments["input"])], alpha=float(s.arguments["alpha"]))


@converts("hardsigmoid")
def _hardsigmoid(g: Graph, s: Step) -> str:
    return g.node("HardSigmoid", [g.of(s.arguments["input"])], alpha=1 / 6, beta=0.5)


@converts("hardshrink", "softshrink")
def _shrink(g: Graph, s: Step) -> str:
    lambd = float(s.arguments["lambd"])
    bias = lambd if s.op == "softshrink" else 0.0
    return g.node("Shrink", [g.of(s.arguments["input"])], lambd=lambd, bias=bias)


@converts("softplus")
def _softplus(g: Graph, s: Step) -> str:
    a, dtype = s.arguments, s.arguments["input"].dtype
    name = g.of(a["input"])
    scaled = g.node("Mul", [name, g.constant(a["beta"], dtype)])
    bent = g.node("Div", [g.node("Softplus", [scaled]), g.constant(a["beta"], dtype)])
    return g.node("Where", [g.node("Greater", [scaled, g.constant(a["threshold"], dtype)]), name, bent])


@converts("threshold")
def _threshold(g: Graph, s: Step) -> str:
    a, dtype = s.arguments, s.arguments["input"].dtype
    name = g.of(a["input"])
    above = g.node("Greater", [name, g.constant(a["threshold"], dtype)])
    return g.node("Where", [above, name, g.constant(a["value"], dtype)])


@converts("softmax", "log_softmax")
def _softmax(g: Graph, s: Step) -> str:
    kind = "Softmax" if s.op == "softmax" else "LogSoftmax"
    return g.node(kind, [_in_dtype(g, s)], axis=s.arguments["dim"])

"""Matrix products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backend.registry import Backend
from ...core.tensor import Tensor
from ..creation.factories import full
from ..dispatch.declare import composite, op, primitive
from ..elementwise.binary import masked_fill
from .adjoint import transposed


def _matmul_grad_input(F: Any, g: Any, other: Any, input_shape: Any) -> Any:
    if len(other.shape) == 1:  # (..., k) @ (k,): g has lost the last dimension
        return g * other if len(input_shape) == 1 else F.unsqueeze(g, len(g.shape)) * other
    if len(input_shape) == 1:  # (k,) @ (..., k, n)
        return F.sum_to(
            F.squeeze(F.matmul(other, F.unsqueeze(g, len(g.shape))), (len(other.shape) - 1,)), input_shape
        )
    if len(other.shape) == 2 and len(g.shape) > 2:
        # One large product instead of many small ones.
        flat = F.matmul(F.reshape(g, (math.prod(g.shape[:-1]), g.shape[-1])), transposed(F, other))
        return F.reshape(flat, (*g.shape[:-1], other.shape[0]))
    return F.matmul(g, transposed(F, other))


def _matmul_grad_other(F: Any, g: Any, input: Any, other_shape: Any) -> Any:
    if len(input.shape) == 1:
        if len(other_shape) == 1:
            return g * input
        return F.reshape(input, (-1, 1)) * F.unsqueeze(g, len(g.shape) - 1)
    if len(other_shape) == 1:
        flat = F.reshape(input, (math.prod(g.shape), input.shape[-1]))
        return F.matmul(transposed(F, flat), F.reshape(g, (flat.shape[0],)))
    if len(other_shape) == 2 and len(g.shape) > 2:
        # The sum over the batch is part of one large product.
        rows = math.prod(g.shape[:-1])
        flat = F.reshape(input, (rows, input.shape[-1]))
        return F.matmul(transposed(F, flat), F.reshape(g, (rows, g.shape[-1])))
    return F.matmul(transposed(F, input), g)


_C_NAMES = {
    "float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int64": "long int",
    "int32": "int", "int16": "short int", "int8": "signed char", "uint8": "unsigned char",
    "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
}  # fmt: skip


def _c_name(x: Tensor) -> str:
    """The dtype as PyTorch's message has it."""
    return _C_NAMES.get(x.dtype.name, x.dtype.name)


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(str(n) for n in shape)


def _check_matmul(input: Tensor, other: Tensor) -> None:
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        wrong = other if isinstance(input, Tensor) else input
        raise TypeError(f"matmul(): both arguments must be Tensor, got {type(wrong).__name__}")
    a, b = input._array, other._array
    if a.ndim == 0 or b.ndim == 0:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {a.ndim}D and {b.ndim}D"
        )
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {_c_name(input)} != {_c_name(other)}; convert one "
            "with Tensor.to(dtype)"
        )
    columns, rows = a.shape[-1], b.shape[-2 if b.ndim > 1 else -1]
    if columns != rows:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({_times(a.shape)} and {_times(b.shape)}): the first has "
            f"{columns} columns, the second {rows} rows"
        )


def _pairs(*shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Any:
    return lambda rng: [((rng.standard_normal(a), rng.standard_normal(b)), {}) for a, b in shapes]


@primitive(
    grads={"input": _matmul_grad_input, "other": _matmul_grad_other},
    check=_check_matmul,
    samples=_pairs(
        ((2, 3), (3, 4)), ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 2)),
        ((5, 1, 2, 3), (2, 3, 2)), ((3,), (4, 3, 2)), ((4, 2, 3), (3,)),
    ),
    reference=np.matmul,
    grad_name=lambda shape: f"{('Dot', 'Mv', 'Mm', 'Bmm')[min(len(shape), 3)]}Backward0",
)  # fmt: skip
def matmul(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """The matrix product (..., n, k) @ (..., k, m) with broadcasting of the leading dimensions."""
    ...


@composite
def weight_gradient(F: Any, g: Any, input: Any, target: Any) -> Any:
    """g (M, N) transposed @ input (M, K), perhaps in memory that `target`, the node it goes to, has for it."""
    return F.matmul(F.transpose(g, 0, 1), input)


def _linear_rule(F: Any, g: Any, targets: Any, input: Any, weight: Any) -> tuple[Any, Any, Any]:
    to_input, to_weight, to_bias = targets
    grad_input = grad_weight = None
    if to_input is None and to_weight is None:
        return None, None, g  # which the engine sums
    if (len(weight.shape) == 1) if to_weight is None else (len(input.shape) > len(g.shape)):
        if to_input is not None:
            grad_input = _matmul_grad_input(F, g, weight, (*g.shape, weight.shape[0]))
        if to_weight is not None:
            grad_weight = _matmul_grad_other(F, g, input, (input.shape[-1],))
        return grad_input, grad_weight, None if to_bias is None else g
    rows, lead = g, 0
    if len(g.shape) != 2:
        if not isinstance(F, Backend) or F.joins_rows:
            rows = F.reshape(g, (math.prod(g.shape[:-1]), g.shape[-1]))
        else:
            lead = tuple(range(len(g.shape) - 1))
    if to_input is not None:
        grad_input = F.matmul(rows, weight)
        if rows is not g:
            grad_input = F.reshape(grad_input, (*g.shape[:-1], weight.shape[1]))
    if to_weight is not None:
        if rows is not g:
            input = F.reshape(input, (rows.shape[0], input.shape[-1]))
        grad_weight = F.weight_gradient(rows, input, to_weight)
    if to_bias is None:
        return grad_input, grad_weight, None
    if rows.dtype is not to_bias.dtype and rows.dtype.itemsize == 2 and to_bias.dtype == np.float32:
        # The parameter behind a cast: it gets what was added up, before that is rounded.
        return grad_input, grad_weight, F.sum(rows, lead, False, to_bias.dtype)
    return grad_input, grad_weight, F.sum(rows, lead)


def _check_no_matrix(a: Any, w: Any, bias: Tensor | None) -> None:
    """RuntimeError unless the weight `w`, which is no matrix, is a vector that multiplies `a`."""
    if w.ndim == 0 or a.ndim == 0:
        raise RuntimeError(
            f"both arguments to linear need to be at least 1D, but they are {a.ndim}D and {w.ndim}D"
        )
    if w.ndim > 2:
        raise RuntimeError(f"linear(): the weight must have at most 2 dimensions, but it has {w.ndim}")
    if a.shape[-1] != len(w):
        raise RuntimeError(
            f"linear(): size mismatch, the input {list(a.shape)} must end in in_features={len(w)}"
        )
    if bias is not None and bias.ndim:
        raise RuntimeError(f"linear(): a weight of one row {list(w.shape)} takes a bias of no dimensions")


def _leave_to_others(*operands: Any) -> None:
    """An operand of a class that is to be asked says so: its own memory is not what counts."""
    for operand in operands:
        _ = operand._operand


def _adapt_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> tuple[Any, ...]:
    a, w = input._array, weight._array
    if w.ndim != 2:
        _leave_to_others(input, weight)
        _check_no_matrix(a, w, bias)
    if a.ndim == 0 or a.shape[-1] != w.shape[-1]:
        _leave_to_others(input, weight)
        rows = a.size // a.shape[-1] if a.ndim and a.shape[-1] else 0
        raise RuntimeError(
            f"linear(): mat1 and mat2 shapes cannot be multiplied ({rows}x{a.shape[-1] if a.ndim else 0} and "
            f"{w.shape[1]}x{w.shape[0]}): the input {list(a.shape)} must end in in_features={w.shape[1]}"
        )
    if a.dtype is not w.dtype and a.dtype != w.dtype:
        raise RuntimeError(
            f"linear(): mat1 and mat2 must have the same dtype, but got {input.dtype.name} and {weight.dtype.name}"
        )
    return input, weight, bias


@op(
    joint=_linear_rule,
    kept_for={"input": ("weight",), "weight": ("input",)},
    adapt=_adapt_linear,
    samples=lambda rng: [
        ((rng.standard_normal((4, 3)), rng.standard_normal((2, 3)), rng.standard_normal(2)), {}),
        ((rng.standard_normal((2, 4, 3)), rng.standard_normal((2, 3))), {}),
        ((rng.standard_normal(3), rng.standard_normal((2, 3)), rng.standard_normal(2)), {}),
        ((rng.standard_normal((4, 3)), rng.standard_normal(3)), {}),
        ((rng.standard_normal((2, 4, 3)), rng.standard_normal(3), rng.standard_normal(())), {}),
    ],
    reference=lambda x, w, b=0.0: x @ w.T + b,
    method=False,
    grad_name="AddmmBackward0",
)
def linear(F: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input` (*, in) times `weight` (out, in) transposed, plus `bias` (out); (*) of a `weight` (in)."""
    out = F.matmul(input, F.transpose(weight, 0, 1) if len(weight.shape) == 2 else weight)
    if bias is not None and bias.dtype != out.dtype:
        raise RuntimeError(
            f"the bias should be of dtype {out.dtype}, that of input and weight, but got {bias.dtype}"
        )
    return out if bias is None else out + bias


def nothing_of(x: Tensor) -> Tensor:
    """Zeros in place of `x`, with its history: for results that PyTorch joins to the graph though they do not depend on x."""
    return masked_fill(x, full((), True, device=x.device), 0)

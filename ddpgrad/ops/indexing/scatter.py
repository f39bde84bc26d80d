"""Scattering: elements written by index along one dimension, also with a reduction."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...autograd.accumulate import edge_of
from ...autograd.nodes import refuse
from ...core.errors import GraphError
from ...core.tensor import Tensor
from ..creation.factories import as_element
from ..dispatch.declare import TensorLike, primitive
from ..dispatch.dtype_lists import refuse_dtypes
from ..dispatch.tensor_function import tensor_function
from ..elementwise import binary
from ..reduction.reduce import wrap_dim
from ..shape import shape
from .gather import positions

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def _adapt_scatter(name: str) -> Any:
    def adapt(input: Tensor, dim: int, index: Any, src: TensorLike, *rest: Any) -> tuple[Any, ...]:
        dim, places = wrap_dim(name, dim, input.ndim), positions(name, input, index)
        if places.size:
            _require_fit(name, input, dim, places, src)
        if isinstance(src, Tensor) and src._array.dtype != input._array.dtype:
            raise RuntimeError(
                f"{name}(): Expected self.dtype to be equal to src.dtype, got {input.dtype.name} and {src.dtype.name}"
            )
        return input, dim, places, src, *rest

    return adapt


def _require_fit(name: str, input: Tensor, dim: int, places: Any, src: TensorLike) -> None:
    size = places.shape or (1,)
    given = src.shape or (1,) if isinstance(src, Tensor) else size
    for other, ndim in (("self", max(input.ndim, 1)), ("src", len(given))):
        if len(size) != ndim:
            raise RuntimeError(
                f"{name}(): Index tensor must have the same number of dimensions as {other} tensor, got {places.ndim} "
                f"and {ndim}"
            )
    inside = all(n <= m for d, (n, m) in enumerate(zip(size, input.shape or (1,), strict=True)) if d != dim)
    if not inside or any(n > m for n, m in zip(size, given, strict=True)):
        raise RuntimeError(
            f"{name}(): Expected index {list(places.shape)} to be no larger than self {list(input.shape)} apart from "
            f"dimension {dim} and to be no larger than src {list(given)}"
        )


def _src_grad(F: Any, g: Any, dim: int, index: Any, src_shape: Any) -> Any:
    out = F.gather(g, dim, index)
    widths = [(0, n - m) for n, m in zip(src_shape, index.shape, strict=False)]
    return F.constant_pad(out, widths, 0.0) if any(high for _, high in widths) else out


def _scatter_samples(rng: Any) -> Any:
    x = rng.standard_normal((3, 4))
    yield (x, 1, np.array([[0, 3], [1, 1], [2, 0]]), rng.standard_normal((3, 4))), {}
    yield (x, 0, np.array([[2, 0, 1, 1]]), rng.standard_normal((1, 4))), {}


def _np_scatter_add(x: Any, d: int, i: Any, src: Any) -> Any:
    out = x.copy()
    for place in np.ndindex(i.shape):
        target = list(place)
        target[d] = i[place]
        out[tuple(target)] += src[place]
    return out


@primitive(
    grads={
        "input": lambda F, g: g,
        "src": lambda F, g, dim, index, src_shape: _src_grad(F, g, dim, index, src_shape),
    },
    adapt=_adapt_scatter("scatter_add"),
    samples=_scatter_samples,
    reference=_np_scatter_add,
    inplace=True,
)
def scatter_add(F: Any, input: Tensor, dim: int, index: Any, src: Tensor) -> Tensor:
    """`input` with the elements of `src` added at the places `index` along `dim`."""
    ...


@primitive(
    grads={
        "input": lambda F, g, dim, index: F.scatter_src(g, dim, index, 0.0),
        "src": lambda F, g, dim, index, src_shape: _src_grad(F, g, dim, index, src_shape),
    },
    adapt=_adapt_scatter("scatter"),
    samples=lambda rng: [
        ((rng.standard_normal((3, 4)), 1, np.array([[0, 3], [1, 2], [2, 0]]), rng.random((3, 2))), {})
    ],
    reference=lambda x, d, i, s: _np_scatter(x, d, i, s),
    method=False,
    grad_name="ScatterBackward0",
)
def scatter_src(F: Any, input: Tensor, dim: int, index: Any, src: TensorLike) -> Tensor:
    """`input` with the elements of `src`, or one number, at the places `index` along `dim`."""
    ...


def _np_scatter(x: Any, d: int, i: Any, s: Any) -> Any:
    out = x.copy()
    np.put_along_axis(out, i, s, d)
    return out


@tensor_function(inplace=True, out=True)
def scatter(
    input: Tensor, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """`input` with the elements of `src` (or `value`) at the places `index` along `dim`; or added, or multiplied, there."""
    src = value if src is None else src
    if isinstance(src, Tensor) and not src.ndim and getattr(index, "ndim", 1) and input.ndim:
        src = src.item() if not src.requires_grad else shape.expand(src, index.shape)
    if isinstance(src, (int, float, complex)):
        src = as_element(src, input.dtype)  # which refuses what does not fit
    if reduce is None:
        return scatter_src(input, dim, index, src)
    if reduce not in ("add", "multiply"):
        raise RuntimeError("reduce argument must be either add or multiply.")
    if not isinstance(src, Tensor):
        src = input.new_full(index.shape, src)
    return (
        scatter_add(input, dim, index, src)
        if reduce == "add"
        else scatter_reduce(input, dim, index, src, "prod")
    )


# -- with a reduction --------------------------------------------------------------------------


def _extremum_rule(F: Any, g: Any, input: Any, dim: int, index: Any, src: Any, out: Any) -> tuple[Any, Any]:
    """The gradient goes in equal parts to all that are the extremum."""
    mine = F.cast(F.eq(input, out), g.dtype)
    theirs = F.cast(F.eq(_covered(F, src, index), F.gather(out, dim, index)), g.dtype)
    share = g / F.maximum(F.scatter_add(mine, dim, index, theirs), F.full_like(mine, 1))
    return mine * share, theirs * F.gather(share, dim, index)


def _product_rule(
    F: Any, g: Any, input: Any, dim: int, index: Any, src: Any, include_self: bool, out: Any
) -> tuple[Any, Any]:
    """A factor's gradient is the product of the others: the whole by the factor, or, for a zero, worked out without it."""
    src = _covered(F, src, index)
    one, zero = F.full_like(input, 1), F.eq(input, 0)
    safe = F.where(zero, one, input)
    grad_input = g * F.scatter_reduce_by(safe, dim, index, src, "prod", include_self) / safe
    src_one, src_zero = F.full_like(src, 1), F.eq(src, 0)
    zeros = F.scatter_add(F.new_zeros(g, g.shape), dim, index, F.cast(src_zero, g.dtype))
    only = F.logical_and(src_zero, F.eq(F.gather(zeros, dim, index), 1))
    without = F.scatter_reduce_by(input, dim, index, F.where(only, src_one, src), "prod", include_self)
    quotient = F.gather(g * out, dim, index) / F.where(src_zero, src_one, src)
    grad_src = F.where(only, F.gather(g * without, dim, index), quotient)
    if isinstance(g, Tensor) and zeros.numel() and float(zeros.detach().amax()) > 1:
        # The gradients of two zeros are zero, but depend on each other, which the quotients do not say.
        error = GraphError(
            "scatter_reduce(): Double backward is unsupported for src when >1 zeros in src are scattered to the same "
            "position in self"
        )
        grad_src = refuse(grad_src, error, [edge_of(t) for t in (g, input, src)])
    return grad_input, grad_src


def _covered(F: Any, src: Any, index: Any) -> Any:
    """The part of `src` that `index` covers."""
    for d, n in enumerate(index.shape if len(src.shape) else ()):
        if src.shape[d] != n:
            src = F.narrow(src, d, 0, n)
    return src


def _reduce_rule(
    F: Any, g: Any, needs: Any, input: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool,
    out: Any, src_shape: Any,
) -> tuple[Any, Any]:  # fmt: skip
    if reduce == "prod":
        grad_input, grad_src = _product_rule(F, g, input, dim, index, src, include_self, out)
    else:
        grad_input, grad_src = _extremum_rule(F, g, input, dim, index, src, out)
    if not include_self:
        grad_input = F.scatter_src(grad_input, dim, index, 0.0)
    widths = [(0, n - m) for n, m in zip(src_shape, index.shape, strict=False)]
    return grad_input, F.constant_pad(grad_src, widths, 0.0) if any(high for _, high in widths) else grad_src


@primitive(
    joint=_reduce_rule,
    adapt=_adapt_scatter("scatter_reduce"),
    samples=lambda rng: [
        ((*args, reduce, include), {})
        for args, _ in _scatter_samples(rng)
        for reduce, include in (("prod", True), ("amax", False), ("amin", True))
    ],
    reference=lambda x, d, i, s, reduce, include: _np_scatter_reduce(x, d, i, s, reduce, include),
    method=False,
    grad_name="ScatterReduceBackward0",
)
def scatter_reduce_by(
    F: Any, input: Tensor, dim: int, index: Any, src: Tensor, reduce: str, include_self: bool
) -> Tensor:
    """The product or an extremum of the elements of `src` that share a place (and what `input` has there)."""
    ...


def _np_scatter_reduce(x: Any, d: int, i: Any, src: Any, reduce: str, include_self: bool) -> Any:
    out, combine = x.copy(), {"prod": np.multiply, "amax": np.maximum, "amin": np.minimum}[reduce]
    seen = set()
    for place in np.ndindex(i.shape):
        target = list(place)
        target[d] = i[place]
        key = tuple(target)
        out[key] = src[place] if not include_self and key not in seen else combine(out[key], src[place])
        seen.add(key)
    return out


@tensor_function(inplace=True, out=True)
def scatter_reduce(
    input: Tensor, dim: int, index: Any, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """The elements of `src` that share a place, and unless told otherwise what `input` has there, reduced to one."""
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if reduce not in REDUCTIONS:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if reduce not in ("sum", "mean"):
        refuse_dtypes("scatter_reduce", "" if reduce == "prod" else "c", (input, src))
        return scatter_reduce_by(input, dim, index, src, reduce, include_self)
    start = input if include_self else scatter_src(input, dim, index, 0)
    total = scatter_add(start, dim, index, src)
    if reduce == "sum":
        return total
    ones = input.new_ones(getattr(index, "shape", ()))
    counts = scatter_add(input.new_ones(input.shape), dim, index, ones)
    if not include_self:
        counts = counts - 1
    return _divided(total, binary.maximum(counts, input.new_ones(input.shape)))


def _divided(total: Tensor, counts: Tensor) -> Tensor:
    return total // counts if total.dtype.category < 2 else total / counts

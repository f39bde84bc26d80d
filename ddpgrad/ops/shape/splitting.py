"""Functions that split a tensor into views."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from ...core.size import as_ints
from ...core.tensor import Tensor
from ..dispatch.declare import primitive
from ..dispatch.tensor_function import tensor_function
from ..elementwise import unary
from ..reduction.reduce import wrap_dim
from . import shape

Ints = Sequence[int]


def _gradients(F: Any, g: Any, shapes: Sequence[Any]) -> list[Any]:
    """The gradients of several outputs as a list, zeros where none arrived."""
    parts = list(g) if isinstance(g, (tuple, list)) else [g]
    some = next(part for part in parts if part is not None)
    return [F.new_zeros(some, s) if part is None else part for part, s in zip(parts, shapes, strict=True)]


def _split_rule(F: Any, g: Any, input_shape: Any, split_sizes: Ints, dim: int) -> Any:
    shapes = [(*input_shape[:dim], n, *input_shape[dim + 1 :]) for n in split_sizes]
    return F.cat(_gradients(F, g, shapes), dim)


def _adapt_split(input: Tensor, sizes: Ints, dim: int = 0) -> tuple[Any, ...]:
    ndim = input._array.ndim
    if not ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    dim = wrap_dim("split", dim, ndim)
    sizes, total = as_ints("split_with_sizes", sizes), input._array.shape[dim]
    if sizes and min(sizes) < 0:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={list(sizes)}"
        )
    if sum(sizes) != total:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's size at dimension {dim}), "
            f"but got split_sizes={list(sizes)}"
        )
    return input, sizes, dim


@primitive(
    grads={"input": _split_rule},
    adapt=_adapt_split,
    view="several",
    samples=lambda rng: [
        ((rng.standard_normal((3, 4)), (1, 3), 1), {}),
        ((rng.standard_normal(4), (4,)), {}),
    ],
    reference=lambda x, sizes, dim=0: np.split(x, np.cumsum(sizes)[:-1], dim),
    grad_name="SplitBackward0",
)
def split_with_sizes(F: Any, input: Tensor, split_sizes: Ints, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive parts of the given sizes along `dim`."""
    ...


def _unbind_rule(F: Any, g: Any, input_shape: Any, dim: int) -> Any:
    one = (*input_shape[:dim], *input_shape[dim + 1 :])
    return F.stack(_gradients(F, g, [one] * input_shape[dim]), dim)


def _adapt_unbind(input: Tensor, dim: int = 0) -> tuple[Any, ...]:
    if not input.ndim:
        raise IndexError("unbind(): Dimension specified as 0 but tensor has no dimensions")
    return input, wrap_dim("unbind", dim, input.ndim)


@primitive(
    grads={"input": _unbind_rule},
    adapt=_adapt_unbind,
    view="several",
    samples=lambda rng: [((rng.standard_normal((3, 2)),), {}), ((rng.standard_normal((3, 1)), -1), {})],
    reference=lambda x, dim=0: list(np.moveaxis(x, dim, 0)),
)
def unbind(F: Any, input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of the slices along `dim`, without that dimension."""
    ...


@tensor_function(names={"split_size_or_sections": "split_size"})
def split(tensor: Tensor, split_size: int | Ints, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive parts along `dim`: of one size (the last may be smaller) or of the sizes given."""
    if isinstance(split_size, Tensor) and split_size.ndim == 0:
        split_size = index(split_size)
    if not isinstance(split_size, (int, np.integer)):
        return split_with_sizes(tensor, split_size, dim)
    if split_size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={split_size}")
    if not tensor.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    total = tensor._array.shape[wrap_dim("split", dim, tensor.ndim)]
    if not split_size:
        if total:
            raise RuntimeError(
                f"split_size can only be 0 if dimension size is 0, but got dimension size of {total}"
            )
        return split_with_sizes(tensor, (0,), dim)
    full, rest = divmod(total, split_size)
    return split_with_sizes(tensor, ([split_size] * full + ([rest] if rest else [])) or (0,), dim)


@tensor_function()
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` views of equal size along `dim` (the last may be smaller)."""
    if not input.ndim:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    n = input.shape[wrap_dim("chunk", dim, input.ndim)]
    return split(input, -(-n // chunks) if n else [0] * chunks, dim)


@tensor_function()
def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`split` into copies, which may be written to."""
    return tuple([unary.clone(part) for part in split(input, split_size, dim)])


@tensor_function()
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`chunk` into copies, which may be written to."""
    return tuple([unary.clone(part) for part in chunk(input, chunks, dim)])


@tensor_function()
def unsafe_split_with_sizes(input: Tensor, split_sizes: Ints, dim: int = 0) -> tuple[Tensor, ...]:
    """`split_with_sizes` into copies, which may be written to."""
    return tuple([unary.clone(part) for part in split_with_sizes(input, split_sizes, dim)])


@tensor_function(names={"tensor_indices_or_sections": "indices_or_sections"})
def tensor_split(
    input: Tensor, indices_or_sections: int | Ints | Tensor | None = None, dim: int = 0, *, sections: Any = None,
    indices: Any = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Views of a number of parts of nearly equal size, or of the parts between the given indices."""
    where: Any = next((w for w in (indices_or_sections, sections, indices) if w is not None), None)
    if where is None:
        raise TypeError("tensor_split() takes indices_or_sections, sections or indices, got none of them")
    if not input.ndim:
        raise RuntimeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    dim = wrap_dim("tensor_split", dim, input.ndim)
    total = input.shape[dim]
    if isinstance(where, Tensor):
        if where.dtype.name != "int64" or where.ndim > 1:
            raise RuntimeError(
                f"tensor_split expected tensor_indices_or_sections to be a 0- or 1-dimensional tensor of int64, got "
                f"{where.ndim} dimensions and {where.dtype.name}"
            )
        where = where.tolist()
    if isinstance(where, (int, np.integer)):
        if where <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {where}")
        small, larger = divmod(total, where)
        ends = np.cumsum([small + (i < larger) for i in range(where - 1)], dtype=int).tolist()
    else:
        if not isinstance(where, (tuple, list)):
            raise TypeError(
                "tensor_split() received an invalid combination of arguments: indices_or_sections must be an int, a "
                f"tuple of ints or a Tensor, not {type(where).__name__}"
            )
        ends = [int(i) for i in where]
    bounds = [min(max(i + total if i < 0 else i, 0), total) for i in (0, *ends, total)]
    return tuple([shape.narrow(input, dim, a, max(b - a, 0)) for a, b in itertools.pairwise(bounds)])


def _split_along(name: str, dim: int, least: int) -> Any:
    def split_along(input: Tensor, *indices: Any) -> tuple[Tensor, ...]:
        if input.ndim < least:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor with "
                f"{input.ndim} dimensions!"
            )
        if not indices:
            raise TypeError(f"{name}() takes sections or indices, got none of them")
        where = indices[0] if len(indices) == 1 else indices
        along = 0 if name == "hsplit" and input.ndim == 1 else dim
        if isinstance(where, int):
            n = where
            if n <= 0 or input.shape[along] % n:
                raise RuntimeError(
                    f"torch.{name} attempted to split along dimension {along}, but the size of the dimension "
                    f"{input.shape[along]} is not divisible by the split_size {n}!"
                )
        return tensor_split(input, where, along)

    split_along.__name__ = name
    split_along.__doc__ = f"`tensor_split` along dimension {dim}" + (
        ", or 0 of a vector." if name == "hsplit" else "."
    )
    return tensor_function(names={"sections": "indices", "indices_or_sections": "indices"})(split_along)


hsplit, vsplit, dsplit = (
    _split_along("hsplit", 1, 1),
    _split_along("vsplit", 0, 2),
    _split_along("dsplit", 2, 3),
)

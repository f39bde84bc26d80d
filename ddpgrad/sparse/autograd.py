"""The steps between sparse tensors and the values that they hold, each with its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from ..autograd.function import Function
from ..backend.registry import SparseArray
from ..backend.sparse.coo import COO, coo
from ..core.tensor import Tensor, wrap
from ..ops.indexing.index import subscript
from ..ops.layers.embedding import embedding_rows
from ..ops.shape.rearranging import broadcast_to
from ..ops.shape.shape import reshape

F = TypeVar("F", bound=type[Function])


def shown_as(name: str) -> Callable[[F], F]:
    """Give the node of a Function the name that PyTorch has for it."""

    def named(function: F) -> F:
        function._backward_cls.__name__ = function._backward_cls.__qualname__ = name
        return function

    return named


def is_coo(tensor: Tensor) -> bool:
    """Whether a tensor has the layout `torch.sparse_coo`."""
    return isinstance(tensor._array, COO)


def is_sparse(tensor: Tensor) -> bool:
    """Whether a tensor has any sparse layout."""
    return isinstance(tensor._array, SparseArray)


@shown_as("SparseCooTensorWithDimsAndTensorsBackward0")
class _Build(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, pattern: Any) -> Tensor:
        ctx.pattern = pattern
        return wrap(pattern.with_values(values._array))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return elements(g, ctx.pattern), None


def build(values: Tensor, pattern: Any) -> Tensor:
    """The sparse tensor with `values` (nnz, ...) at the places of the raw array `pattern`, whose shape and layout it has."""
    return _Build.apply(values, pattern)


class _Elements(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, pattern: Any) -> Tensor:
        ctx.pattern = pattern
        return wrap(input._array.at(pattern.indices)[0])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return build(g, ctx.pattern), None


def elements(input: Tensor, pattern: Any) -> Tensor:
    """(nnz, ...): the elements of a dense or sparse tensor at the places of `pattern`, in the shape of its values."""
    if is_sparse(input):
        return _Elements.apply(input, pattern)
    if not pattern.sparse_dim:
        return broadcast_to(input.unsqueeze(0), (pattern.nnz, *input.shape))
    return subscript(input, tuple(wrap(row) for row in pattern.indices))


@shown_as("ValuesBackward0")
class _Values(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor) -> Tensor:
        ctx.pattern = input._array
        return wrap(input._array.values)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
        return build(g, ctx.pattern)


def values_of(input: Tensor) -> Tensor:
    """The values of a coalesced tensor, in its own memory: of others, the gradient of one place has no one value."""
    return _Values.apply(input)


@shown_as("CoalesceBackward0")
class _Coalesce(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor) -> Tensor:
        return wrap(input._array.coalesce())

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
        return g


def coalesced(input: Tensor) -> Tensor:
    """The same sparse tensor with every place once, in order; itself where that is so."""
    return input if input._array.coalesced else _Coalesce.apply(input)


@shown_as("ToDenseBackward0")
class _ToDense(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, masked: bool) -> Tensor:
        ctx.pattern = input._array.coalesce() if masked else None
        return wrap(input._array.dense())

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return (g if ctx.pattern is None else build(elements(g, ctx.pattern), ctx.pattern)), None


def dense_of(input: Tensor, masked: bool = True) -> Tensor:
    """The dense tensor; masked: its gradient goes to the stored elements only."""
    return _ToDense.apply(input, masked) if is_sparse(input) else input


@shown_as("ToSparseBackward0")
class _Converted(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, array: Any) -> Tensor:
        ctx.pattern = input._array
        return wrap(array)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return build(elements(g, ctx.pattern), ctx.pattern), None


def converted(input: Tensor, array: Any) -> Tensor:
    """A sparse tensor in another layout: `array`, which holds the same elements. Its gradient has the layout of `input`."""
    return _Converted.apply(input, array)


@shown_as("ToSparseBackward0")
class _ToSparse(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, pattern: Any) -> Tensor:
        return wrap(pattern.with_values(elements(input, pattern)._array))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return dense_of(g), None


def sparse_of(input: Tensor, pattern: Any) -> Tensor:
    """The sparse tensor of a dense one's elements at the places of `pattern`; its gradient goes to all elements."""
    return _ToSparse.apply(input, pattern)


@shown_as("EmbeddingBackward0")
class SparseRows(Function):
    """Rows `indices` (*) of a table (rows, width), whose gradient is sparse; row `padding_idx` gets none."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, indices: Tensor, padding_idx: int | None) -> Tensor:
        places = indices._array.reshape(-1)
        ctx.kept = None if padding_idx is None else (places != padding_idx).nonzero()[0]
        ctx.places = (places if ctx.kept is None else places[ctx.kept]).astype("int64")[None]
        ctx.shape = weight.shape
        return embedding_rows(weight, indices)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        values = reshape(g, (math.prod(g.shape[:-1]), ctx.shape[1]))
        if ctx.kept is not None:
            values = subscript(values, wrap(ctx.kept))
        return build(values, coo(ctx.places, values._array, ctx.shape)), None, None

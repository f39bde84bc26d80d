"""Unique elements, and search in sorted sequences. No derivative is written for what is here."""

from __future__ import annotations

from typing import Any, Literal, overload

from ...autograd.accumulate import edge_of
from ...autograd.grad_mode import mode
from ...autograd.nodes import refuse
from ...backend import dtype as dtypes
from ...backend.registry import backend_for
from ...core.taping import untaped
from ...core.tensor import Tensor, wrap
from ..dispatch.explain import require_one_kind
from ..dispatch.tensor_function import tensor_function
from .reduce import require_order, wrap_dim


def _without_derivative(result: Tensor, name: str, input: Tensor) -> Tensor:
    """The `result` of function `name`, which is differentiable as such, but whose derivative is not written."""
    if not (mode.enabled and input._requires_grad):
        return result
    error = NotImplementedError(f"the derivative for '{name}' is not implemented.")
    return refuse(result, error, [edge_of(input)])


def _asked(
    name: str,
    input: Tensor,
    values: Any,
    inverse: Any,
    counts: Any,
    return_inverse: bool,
    return_counts: bool,
) -> Any:
    """The values of function `name` alone, or with what is asked for besides, as Tensors."""
    results = [_without_derivative(wrap(values), name, input)]
    results += [wrap(inverse)] if return_inverse else []
    results += [wrap(counts)] if return_counts else []
    return tuple(results) if len(results) > 1 else results[0]


def _dim_of_slices(name: str, input: Tensor, dim: int) -> int:
    """`dim` counted from the front; `RuntimeError` where the slices along it have no elements to compare."""
    dim = wrap_dim(name, dim, input.ndim)
    if not input.ndim:
        raise IndexError(f"{name}(): Dimension specified as {dim} but tensor has no dimensions")
    if 0 in input.shape[:dim] or 0 in input.shape[dim + 1 :]:
        raise RuntimeError(
            f"{name}(): There are 0 sized dimensions other than dim {dim}, so unique cannot be applied to shape "
            f"{list(input.shape)}"
        )
    return dim


@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    dim: int | None = None,
) -> Tensor: ...
@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    *,
    return_inverse: Literal[True],
    return_counts: Literal[False] = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    *,
    return_inverse: Literal[False] = False,
    return_counts: Literal[True],
    dim: int | None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    *,
    return_inverse: Literal[True],
    return_counts: Literal[True],
    dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any: ...
@tensor_function()
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements, or slices along `dim`, in order.

    With `return_inverse`, also where each element of `input` is among them; with
    `return_counts`, also how often each occurs. Each nan is an element of its own.
    """
    array = input._array
    require_order("unique", input)
    untaped("the shape of what unique gives depends on elements")
    if dim is not None:
        dim = _dim_of_slices("unique", input, dim)
    values, inverse, counts = backend_for(array).unique(array, dim if input.ndim else None)
    return _asked("unique", input, values, inverse, counts, return_inverse, return_counts)


@overload
def unique_consecutive(
    input: Tensor,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    dim: int | None = None,
) -> Tensor: ...
@overload
def unique_consecutive(
    input: Tensor,
    *,
    return_inverse: Literal[True],
    return_counts: Literal[False] = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def unique_consecutive(
    input: Tensor,
    *,
    return_inverse: Literal[False] = False,
    return_counts: Literal[True],
    dim: int | None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def unique_consecutive(
    input: Tensor, *, return_inverse: Literal[True], return_counts: Literal[True], dim: int | None = None
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any: ...
@tensor_function()
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements, or slices along `dim`, that differ from the one before; results besides as in `unique`."""
    untaped("the shape of what unique_consecutive gives depends on elements")
    F = backend_for(input._array)
    along = 0 if dim is None else _dim_of_slices("unique_consecutive", input, dim)
    x = F.reshape(input._array, (-1,)) if dim is None or not input.ndim else input._array
    length = x.shape[along]
    counts = F.full((length,), 1, dtypes.int64, x)
    if not length:
        inverse = F.reshape(counts, input.shape if dim is None else (0,))
        return _asked("unique_consecutive", input, x, inverse, counts, return_inverse, return_counts)
    others = tuple(d for d in range(x.ndim) if d != along)
    differs = F.narrow(x, along, 1, length - 1) != F.narrow(x, along, 0, length - 1)
    new = F.cat([F.full((1,), True, dtypes.bool_, x), F.any(differs, others, False) if others else differs])
    first = F.reshape(F.nonzero(new), (-1,))
    inverse = F.cumsum(new, 0) - 1
    ends = F.cat([first[1:], F.full((1,), length, dtypes.int64, x)])
    if dim is None:
        inverse = F.reshape(inverse, input.shape)
    values = F.index_select(x, along, first)
    return _asked("unique_consecutive", input, values, inverse, ends - first, return_inverse, return_counts)


def _is_right(name: str, right: bool, side: str | None) -> bool:
    if side not in (None, "left", "right"):
        raise RuntimeError(f"{name}(): side can only be 'left' or 'right' but got {side}")
    if right and side == "left":
        raise RuntimeError(
            f"{name}(): side and right can't be set to opposites, got side of left while right was True"
        )
    return right or side == "right"


@tensor_function(method=False, out=True)
def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where each of `input` would be inserted in `sorted_sequence`, which is sorted along its last dimension.

    `sorted_sequence` has one dimension, or the leading dimensions of `input`. Before equal
    elements, or behind them with `right` or side="right". sorter: indices that sort the sequence.
    """
    upper = _is_right("searchsorted", right, side)
    F = backend_for(sorted_sequence._array)
    values = input._array if isinstance(input, Tensor) else F.asarray(input)
    sequence = sorted_sequence._array
    require_one_kind("searchsorted", sequence, values)
    if sequence.ndim == 0:
        raise RuntimeError(
            "searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension"
        )
    if sequence.ndim > 1 and sequence.shape[:-1] != values.shape[:-1]:
        raise RuntimeError(
            "searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor "
            f"and input value tensor must match, but we got boundaries tensor {list(sequence.shape)} and input value "
            f"tensor {list(values.shape)}"
        )
    if sorter is not None:
        if sorter.shape != sorted_sequence.shape:
            raise RuntimeError(
                f"searchsorted(): boundary and sorter must have the same size, but got boundary tensor "
                f"{list(sequence.shape)} and got sorter tensor {list(sorter.shape)}"
            )
        if sorter.dtype is not dtypes.int64:
            raise RuntimeError(
                f"searchsorted(): sorter must be a tensor of long dtype but got {sorter.dtype.name}"
            )
        size = sequence.shape[-1]
        if sorter.numel() and not bool(((sorter._array >= 0) & (sorter._array < size)).all()):
            raise RuntimeError("searchsorted(): sorter index out of range")
        sequence = F.gather(sequence, sequence.ndim - 1, sorter._array)
    found = F.searchsorted(sequence, values, upper)
    return wrap(F.cast(found, dtypes.int32 if out_int32 else dtypes.int64))


@tensor_function(method=False, out=True)
def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The index of the bucket of each of `input` between sorted `boundaries`; a boundary belongs to the bucket
    that it ends, or with `right` to the one that it begins."""
    if boundaries.ndim != 1:
        raise RuntimeError(
            f"bucketize(): boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)

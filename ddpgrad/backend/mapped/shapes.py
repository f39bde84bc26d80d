"""Rules of kernels that move elements, and of new arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.errors import NotMapped
from .array import MappedArray, aligned, count_of
from .rules import each, later, ndim_of, rule

Array = Any


@rule("reshape", "view")
def _reshape(H: Any, input: MappedArray, shape: Any) -> Any:
    shape = shape if isinstance(shape, (tuple, list)) else (shape,)
    return input.whole.reshape((input.count, *shape))


@rule("permute")
def _permute(H: Any, input: MappedArray, dims: Sequence[int]) -> Any:
    return input.whole.transpose((0, *later(tuple(dims), input.ndim)))


@rule("transpose")
def _transpose(H: Any, input: MappedArray, dim0: int, dim1: int) -> Any:
    return (
        input.whole.swapaxes(later(dim0, input.ndim), later(dim1, input.ndim)) if input.ndim else input.whole
    )


@rule("expand")
def _expand(H: Any, input: MappedArray, shape: Sequence[int]) -> Any:
    lead = (1,) * (len(shape) - input.ndim)
    return H.expand(input.whole.reshape((input.count, *lead, *input.shape)), (input.count, *shape))


@rule("unsqueeze")
def _unsqueeze(H: Any, input: MappedArray, dim: int) -> Any:
    return H.unsqueeze(input.whole, dim % (input.ndim + 1) + 1)


@rule("narrow")
def _narrow(H: Any, input: MappedArray, dim: int, start: int, length: int) -> Any:
    return H.narrow(input.whole, later(dim, input.ndim), start, length)


@rule("select")
def _select(H: Any, input: MappedArray, dim: int, index: int) -> Any:
    return H.select(input.whole, later(dim, input.ndim), index)


@rule("roll")
def _roll(H: Any, input: MappedArray, shifts: Any, dims: Any = None) -> Any:
    if dims is None or not input.ndim:
        raise NotMapped
    return H.roll(input.whole, shifts, later(dims, input.ndim))


@rule("repeat")
def _repeat(H: Any, input: MappedArray, repeats: Sequence[int]) -> Any:
    lead = (1,) * (len(repeats) - input.ndim)
    return H.repeat(input.whole.reshape((input.count, *lead, *input.shape)), (1, *repeats))


@rule("constant_pad")
def _constant_pad(H: Any, input: MappedArray, widths: Sequence[tuple[int, int]], value: float = 0.0) -> Any:
    return H.constant_pad(input.whole, ((0, 0), *widths), value)


@rule("diagonal")
def _diagonal(H: Any, input: MappedArray, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return H.diagonal(input.whole, offset, later(dim1, input.ndim), later(dim2, input.ndim))


@rule("unbind")
def _unbind(H: Any, input: MappedArray, dim: int = 0) -> Any:
    return H.unbind(input.whole, later(dim, input.ndim))


@rule("split_with_sizes")
def _split_with_sizes(H: Any, input: MappedArray, split_sizes: Sequence[int], dim: int = 0) -> Any:
    return H.split_with_sizes(input.whole, split_sizes, later(dim, input.ndim))


@rule("cat")
def _cat(H: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    return H.cat(each(tensors, count_of(tensors)), later(dim, ndim_of(tensors[0])))


@rule("stack")
def _stack(H: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    return H.stack(each(tensors, count_of(tensors)), dim % (ndim_of(tensors[0]) + 1) + 1)


@rule("full_like")
def _full_like(H: Any, input: MappedArray, value: Any) -> Any:
    return H.full_like(input.whole, value)


@rule("new_zeros")
def _new_zeros(H: Any, input: MappedArray, shape: Sequence[int]) -> Any:
    return H.new_zeros(input.whole, (input.count, *shape))


@rule("full")
def _full(H: Any, shape: Sequence[int], value: Any, dtype: Any, like: MappedArray) -> Any:
    return H.full((like.count, *shape), value, dtype, like.whole)


@rule("fill_where")
def _fill_where(H: Any, out: MappedArray, mask: MappedArray, value: Any) -> None:
    H.fill_where(*aligned((out, mask)), value)


@rule("strided")
def _strided(
    H: Any, input: MappedArray, size: Sequence[int], stride: Sequence[int], delta: int, own: Sequence[int]
) -> Any:
    step = input.whole.strides[0] // input.itemsize
    return H.strided(input.whole, (input.count, *size), (step, *stride), delta, (step, *own))

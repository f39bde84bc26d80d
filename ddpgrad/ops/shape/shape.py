"""Ops that change the shape or the order of elements. Most return views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backend.elementary.shape import inverse
from ...core.size import as_ints
from ...core.tensor import Tensor
from ..dispatch.declare import op, primitive
from ..dispatch.samples import calls
from ..dispatch.tensor_function import tensor_function
from ..reduction.reduce import wrap_dim

Ints = Sequence[int]


def infer_size(name: str, shape: Sequence[Any], input: Tensor) -> tuple[int, ...]:
    """`shape` with a -1 worked out; `RuntimeError` when the number of elements does not fit."""
    total = input._array.size
    known = math.prod(shape)
    if known.__class__ is int and known == total and total and -1 not in shape:
        return tuple(shape)
    if known.__class__ is int and known < 0 < total and shape.count(-1) == 1 and total % known == 0:
        place = shape.index(-1)
        return (*shape[:place], total // -known, *shape[place + 1 :])
    sizes = as_ints(name, shape)
    known = math.prod([n for n in sizes if n != -1])
    if known == total and -1 not in sizes:
        return sizes
    if sizes.count(-1) == 1 and known > 0 and total % known == 0:
        return tuple(total // known if n == -1 else n for n in sizes)
    if sizes.count(-1) > 1:
        raise RuntimeError(f"{name}(): only one dimension can be inferred, got shape {list(sizes)}")
    if -1 in sizes and known == total == 0:
        raise RuntimeError(
            f"{name}(): cannot reshape tensor of 0 elements into shape {list(sizes)} because the unspecified dimension "
            "size -1 can be any value and is ambiguous"
        )
    for i, n in enumerate(sizes):
        if n < -1:
            raise RuntimeError(f"{name}(): invalid shape dimension {n} at index {i} of shape {list(sizes)}")
    raise RuntimeError(f"{name}(): shape '{list(sizes)}' is invalid for input of size {total}")


@primitive(
    grads={"input": lambda F, g, input_shape: F.reshape(g, input_shape)},
    adapt=lambda input, shape: (input, infer_size("reshape", shape, input)),
    view=True,
    samples=calls(((4, 6),), ((-1,),), ((2, 3, -1, 1),)),
    reference=np.reshape,
    grad_name="ViewBackward0",
)
def reshape(F: Any, input: Tensor, *shape: Any) -> Tensor:
    """The same elements in another shape; a view where memory allows it."""
    ...


def _adapt_permute(input: Tensor, dims: Ints) -> tuple[Any, ...]:
    ndim = input._array.ndim
    if len(dims) != ndim:
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            f"ordering of dimensions i.e. input.dim() = {ndim} is not equal to len(dims) = {len(dims)}"
        )
    order = tuple([wrap_dim("permute", d, ndim) for d in dims])
    if len(set(order)) < len(order):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return input, order


@primitive(
    grads={"input": lambda F, g, dims: F.permute(g, inverse(dims))},
    adapt=_adapt_permute,
    view=True,
    samples=calls(((2, 0, 1),), ((0, 2, 1),), ((-1, 0, 1),)),
    reference=np.transpose,
)
def permute(F: Any, input: Tensor, *dims: Any) -> Tensor:
    """Dimensions in the order `dims`; a view."""
    ...


def _adapt_transpose(input: Tensor, dim0: int, dim1: int) -> tuple[Any, ...]:
    ndim = input._array.ndim
    return input, wrap_dim("transpose", dim0, ndim), wrap_dim("transpose", dim1, ndim)


@primitive(
    grads={"input": lambda F, g, dim0, dim1: F.transpose(g, dim0, dim1)},
    adapt=_adapt_transpose,
    view=True,
    samples=calls((0, 1), (1, -1)),
    reference=np.swapaxes,
    aliases=("swapdims",),
)
def transpose(F: Any, input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged; a view."""
    ...


def _adapt_expand(input: Tensor, shape: Ints) -> tuple[Any, ...]:
    own = input._array.shape
    lead = len(shape) - len(own)
    if lead < 0:
        raise RuntimeError(
            f"expand({list(input.shape)}, size={list(shape)}): the number of sizes provided ({len(shape)}) must be "
            f"greater or equal to the number of dimensions in the tensor ({len(own)})"
        )
    sizes = list(as_ints("expand", shape))
    if lead and min(sizes[:lead]) < 0:
        raise RuntimeError(
            f"expand({list(input.shape)}, size={list(shape)}): the size of a leading dimension that the tensor has not "
            "must not be negative"
        )
    for i, have in enumerate(own, lead):
        if sizes[i] == -1:
            sizes[i] = have
        elif have != 1 and have != sizes[i]:
            raise RuntimeError(
                f"The expanded size of the tensor ({sizes[i]}) must match the existing size ({have}) at non-singleton "
                f"dimension {i}. Target sizes: {sizes}. Tensor sizes: {list(own)}"
            )
    return input, tuple(sizes)


@primitive(
    grads={"input": lambda F, g: g},  # the engine sums over what was stretched
    adapt=_adapt_expand,
    view=True,
    samples=lambda rng: [
        ((rng.standard_normal((3, 1)), (2, 3, 4)), {}),
        ((rng.standard_normal(()), (2,)), {}),
    ],
    reference=np.broadcast_to,
)
def expand(F: Any, input: Tensor, *size: Any) -> Tensor:
    """Dimensions of length 1 stretched to `size` without copying; -1 keeps a length."""
    ...


def _adapt_squeeze(input: Tensor, dim: Any = None) -> tuple[Any, ...]:
    sizes = input._array.shape
    if dim is None:
        return input, tuple([d for d, n in enumerate(sizes) if n == 1])
    ndim = len(sizes)
    wanted = dim if isinstance(dim, (tuple, list)) else (dim,)
    dims = sorted([wrap_dim("squeeze", d, ndim) for d in wanted])
    if len(set(dims)) < len(dims):
        raise RuntimeError(f"squeeze(): a dim appears multiple times in the list of dims {list(wanted)}")
    return input, tuple([d for d in dims if d < ndim and sizes[d] == 1])


@primitive(
    grads={"input": lambda F, g, input_shape: F.reshape(g, input_shape)},
    adapt=_adapt_squeeze,
    view=True,
    samples=calls((), (1,), (2,), shape=(2, 1, 3, 1)),
    reference=lambda x, dim=None: np.squeeze(x, dim) if dim is None or x.shape[dim] == 1 else x,
)
def squeeze(F: Any, input: Tensor, dim: Any = None) -> Tensor:
    """Without dimensions of length 1 (all, or those of `dim`); a view."""
    ...


@primitive(
    grads={"input": lambda F, g, dim: F.squeeze(g, (dim,))},
    adapt=lambda input, dim: (input, wrap_dim("unsqueeze", dim, input._array.ndim + 1)),
    view=True,
    samples=calls((0,), (2,), (-1,)),
    reference=np.expand_dims,
)
def unsqueeze(F: Any, input: Tensor, dim: int) -> Tensor:
    """With a dimension of length 1 at `dim`; a view."""
    ...


@tensor_function()
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions start_dim to end_dim as one: a view where memory allows it, itself where nothing changes."""
    size = input._array.shape
    start, end = wrap_dim("flatten", start_dim, len(size)), wrap_dim("flatten", end_dim, len(size))
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if start == end and size:
        return input
    return reshape(input, (*size[:start], math.prod(size[start : end + 1]), *size[end + 1 :]))


def _adapt_narrow(input: Tensor, dim: int, start: int, length: int) -> tuple[Any, ...]:
    sizes = input._array.shape
    if not sizes:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    dim = wrap_dim("narrow", dim, len(sizes))
    size = sizes[dim]
    if isinstance(start, Tensor) and (start.ndim or start.dtype.category != 1):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if not -size <= start <= size:
        raise IndexError(
            f"start out of range (expected to be in range of [{-size}, {size}], but got {int(start)})"
        )
    start = int(start) + (size if start < 0 else 0)
    if start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return input, dim, start, int(length)


def _narrow_rule(F: Any, g: Any, input_shape: Any, dim: int, start: int, length: int) -> Any:
    widths = [(0, 0)] * len(input_shape)
    widths[dim] = (start, input_shape[dim] - start - length)
    return F.constant_pad(g, widths, 0.0)


@primitive(
    grads={"input": _narrow_rule},
    adapt=_adapt_narrow,
    view=True,
    samples=calls((0, 1, 1), (2, 1, 2), (-1, 0, 4)),
    reference=lambda x, d, s, n: np.take(x, range(s, s + n), axis=d),
    grad_name="SliceBackward0",
)
def narrow(F: Any, input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """Elements start to start + length along `dim`; a view."""
    ...


def _constant_pad_rule(F: Any, g: Any, widths: Any) -> Any:
    for i, (low, high) in enumerate(widths):
        if low < 0 or high < 0:
            raise RuntimeError("constant_pad: widths must not be negative")
        if low or high:
            g = F.narrow(g, i, low, g.shape[i] - low - high)
    return g


@primitive(
    grads={"input": _constant_pad_rule},
    samples=calls((((1, 0), (0, 2), (1, 1)), 0.0), (((0, 0), (1, 0), (0, 1)), 2.0)),
    reference=lambda x, w, v: np.pad(x, w, constant_values=v),
    method=False,
    grad_name="ConstantPadNdBackward0",
)
def constant_pad(F: Any, input: Tensor, widths: Sequence[tuple[int, int]], value: float = 0.0) -> Tensor:
    """`value` around `input`: (before, after) for each dimension."""
    ...


def distinct(name: str, dims: Any, ndim: int) -> tuple[int, ...]:
    """Dimensions counted from the front; `RuntimeError` when one comes twice."""
    found = tuple(wrap_dim(name, d, ndim) for d in ((dims,) if isinstance(dims, int) else dims))
    for d in found:
        if found.count(d) > 1:
            raise RuntimeError(f"{name}(): dim {d} appears multiple times in the list of dims")
    return found


@primitive(
    grads={"input": lambda F, g, dims: F.flip(g, dims)},
    adapt=lambda input, dims: (input, distinct("flip", dims, input.ndim)),
    samples=calls(((0,),), ((1, -1),)),
    reference=np.flip,
)
def flip(F: Any, input: Tensor, *dims: Any) -> Tensor:
    """The order along `dims` reversed, in new memory."""
    ...


def _negated(shifts: Any) -> Any:
    return tuple(-s for s in shifts) if isinstance(shifts, (tuple, list)) else -shifts


def _adapt_roll(input: Tensor, shifts: Any, dims: Any = None) -> tuple[Any, ...]:
    shifts = tuple(shifts) if isinstance(shifts, (tuple, list)) else (int(shifts),)
    dims = () if dims is None else dims
    along: tuple[int, ...] = tuple(dims) if isinstance(dims, (tuple, list)) else (int(dims),)
    if not shifts:
        raise RuntimeError("`shifts` required")
    if not along and len(shifts) == 1:
        return input, shifts[0], None
    if len(shifts) != len(along):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(along)}")
    if not input.ndim:
        raise IndexError(f"Dimension specified as {along[0]} but tensor has no dimensions")
    return input, shifts, tuple(wrap_dim("roll", d, input.ndim) for d in along)


@primitive(
    grads={"input": lambda F, g, shifts, dims: F.roll(g, _negated(shifts), dims)},
    adapt=_adapt_roll,
    samples=calls((1, 0), (-2, 2), ((1, 2), (0, 1)), (3,)),
    reference=lambda x, s, d=None: np.roll(x, s, d),
)
def roll(F: Any, input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Elements moved by `shifts` along `dims`, round the end."""
    ...


def _adapt_repeat(input: Tensor, sizes: Ints) -> tuple[Any, ...]:
    if len(sizes) < input.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
        )
    sizes = as_ints("repeat", sizes)
    if any(n < 0 for n in sizes):
        raise RuntimeError(f"repeat(): Trying to create tensor with negative dimension: {list(sizes)}")
    return input, sizes


def _repeat_rule(F: Any, g: Any, input_shape: Any, repeats: Ints) -> Any:
    lead = len(repeats) - len(input_shape)
    split: list[int] = []
    for i, n in enumerate(repeats):
        split += [n, input_shape[i - lead] if i >= lead else 1]
    summed = F.sum(F.reshape(g, tuple(split)), tuple(range(0, 2 * len(repeats), 2)), False)
    return F.reshape(summed, tuple(input_shape))


@op(
    grads={"input": _repeat_rule},
    adapt=_adapt_repeat,
    samples=calls(((2, 1, 3),), ((2, 2, 1, 1),)),
    reference=np.tile,
)
def repeat(F: Any, input: Tensor, *repeats: Any) -> Tensor:
    """The tensor repeated `repeats` times along each dimension."""
    return F.tile(input, repeats)


@op(
    grads={"input": lambda F, g: g},
    samples=calls(()),
    reference=np.ascontiguousarray,
    method=False,
    grad_name="CloneBackward0",
)
def to_contiguous(F: Any, input: Tensor) -> Tensor:
    """A copy whose elements lie in order."""
    return F.asarray(F.contiguous(input))

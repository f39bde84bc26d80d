"""Kernels that move elements or look at them in another shape."""

from __future__ import annotations

import ctypes
import weakref
from bisect import bisect_right
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ..layout import order_of_images

Array = Any

# CPython: NumPy's struct of an array has the address of its elements first, after what all objects begin with.
_pointer_at = ctypes.c_void_p.from_address
_HEAD = object.__basicsize__
_probe = np.empty(1)
_IS_AFTER_HEAD = _pointer_at(id(_probe) + _HEAD).value == _probe.__array_interface__["data"][0]


def shapes(xp: ModuleType) -> dict[str, Any]:
    def reshape(input: Array, shape: Sequence[int]) -> Array:
        return input.reshape(shape)

    def permute(input: Array, dims: Sequence[int]) -> Array:
        return input.transpose(dims)

    def transpose(input: Array, dim0: int, dim1: int) -> Array:
        return input.swapaxes(dim0, dim1) if input.ndim else input[...]

    def expand(input: Array, shape: Sequence[int]) -> Array:
        if input.ndim == 0 and xp is np:  # as `broadcast_to`, in a tenth of its time
            return np.ndarray(shape, input.dtype, input, strides=(0,) * len(shape))
        out = xp.broadcast_to(input, shape)
        if out.size == input.size:
            return input.reshape(shape)
        if xp is np and input.flags.writeable:
            out.flags.writeable = (
                True  # as each of PyTorch's is; what may not be written to, ops say themselves
            )
        return out

    def unsqueeze(input: Array, dim: int) -> Array:
        shape = input.shape
        if dim < 0:
            dim += len(shape) + 1
        return input.reshape((*shape[:dim], 1, *shape[dim:]))  # five times as fast as xp.expand_dims

    def squeeze(input: Array, dim: tuple[int, ...]) -> Array:
        return input.squeeze(axis=dim)

    def flip(input: Array, dims: tuple[int, ...]) -> Array:
        return xp.flip(input, dims).copy() if input.ndim else input.copy()

    def roll(input: Array, shifts: Any, dims: Any = None) -> Array:
        return xp.roll(input if input.flags.c_contiguous else input.copy("C"), shifts, dims)

    def cat(tensors: Sequence[Array], dim: int = 0) -> Array:
        return joined(tensors, dim, tensors)

    def stack(tensors: Sequence[Array], dim: int = 0) -> Array:
        # Sooner than xp.stack, which asks about shapes that are known to be the same.
        return joined([unsqueeze(x, dim) for x in tensors], dim, tensors)

    def joined(parts: Sequence[Array], dim: int, given: Sequence[Array]) -> Array:
        """`parts` side by side, in the order of the dimensions; as they lie themselves if all are images in channels_last."""
        out = xp.concatenate(parts, axis=dim)
        return out if out.flags.c_contiguous or all(map(order_of_images, given)) else out.copy("C")

    def narrow(input: Array, dim: int, start: int, length: int) -> Array:
        return input[(slice(None),) * (dim % input.ndim) + (slice(start, start + length),)]

    def tile(input: Array, dims: Sequence[int]) -> Array:
        return xp.tile(input, dims)

    def tril(input: Array, diagonal: int = 0) -> Array:
        return xp.tril(input, diagonal)

    def triu(input: Array, diagonal: int = 0) -> Array:
        return xp.triu(input, diagonal)

    def diagonal(input: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
        out = input.diagonal(offset, dim1, dim2)
        if xp is np and input.flags.writeable:
            out.setflags(write=True)  # which NumPy's is not, unless asked
        return out

    def strided(
        input: Array, size: Sequence[int], stride: Sequence[int], delta: int, own: Sequence[int]
    ) -> Array:
        strides, width = input.strides, input.itemsize
        if (
            input.size
            and strides != tuple([step * width for step in own])
            and any(s != o * width and n > 1 for s, o, n in zip(strides, own, input.shape, strict=True))
        ):
            raise RuntimeError(
                "a strided view can only be made again of a tensor that lies in memory as the one that it was made of"
            )
        return strided_view(input, size, stride, delta)

    def unfold(input: Array, dimension: int, size: int, step: int) -> Array:
        if not input.ndim:
            return input.reshape(1)[:size]
        steps = [s // input.itemsize for s in input.strides]
        count = (input.shape[dimension] - size) // step + 1
        shape = (*input.shape[:dimension], count, *input.shape[dimension + 1 :], size)
        strides = (*steps[:dimension], steps[dimension] * step, *steps[dimension + 1 :], steps[dimension])
        return strided_view(input, shape, strides, 0)

    def split_with_sizes(input: Array, split_sizes: Sequence[int], dim: int = 0) -> list[Array]:
        parts, start = [], 0
        for n in split_sizes:
            parts.append(narrow(input, dim, start, n))
            start += n
        return parts

    def unbind(input: Array, dim: int = 0) -> list[Array]:
        if not dim and input.ndim > 1:
            return list(input)
        before = (slice(None),) * dim
        return [input[(*before, i, ...)] for i in range(input.shape[dim])]

    def select(input: Array, dim: int, index: int) -> Array:
        return input[(slice(None),) * dim + (index, ...)]

    def pad(input: Array, widths: Sequence[tuple[int, int]], value: float = 0.0) -> Array:
        shape, inside = [], []
        for n, (low, high) in zip(input.shape, widths, strict=True):
            shape.append(low + n + high)
            inside.append(slice(low, low + n))
        out = xp.full(shape, value, input.dtype)  # sooner than xp.pad
        out[(*inside, ...)] = input
        return out

    return {
        "reshape": reshape, "view": reshape, "permute": permute, "transpose": transpose, "expand": expand, "unsqueeze": unsqueeze,
        "squeeze": squeeze, "flip": flip, "roll": roll, "cat": cat, "stack": stack, "narrow": narrow, "tile": tile,
        "tril": tril, "triu": triu, "diagonal": diagonal, "constant_pad": pad, "strided": strided, "unfold": unfold,
        "split_with_sizes": split_with_sizes, "unbind": unbind, "select": select,
    }  # fmt: skip


_IN_BUFFERS = "?" + np.typecodes["AllInteger"] + np.typecodes["AllFloat"]
"""The dtypes whose arrays are buffers of Python's: all but those of other libraries, such as bfloat16."""


def strided_view(input: Array, shape: Sequence[int], stride: Sequence[int], delta: int) -> Array:
    """A view of the memory under `input`: steps in elements, from `delta` elements after its start."""
    width = input.itemsize
    strides = tuple([step * width for step in stride])
    if not isinstance(input, np.ndarray):
        return type(input)(shape, input.dtype, memptr=input.data + delta * width, strides=strides)
    owner = input.base if isinstance(input.base, np.ndarray) else input
    start = bytes_before(input, owner) + delta * width
    if owner.flags.c_contiguous and owner.dtype.char in _IN_BUFFERS:
        return np.ndarray(shape, input.dtype, owner, start, strides)
    dense = owner.transpose(memory_order(owner))
    if not dense.flags.c_contiguous:
        raise NotImplementedError(
            f"a strided view of memory that has gaps, which another library made: {owner.shape}, steps {owner.strides}"
        )
    return np.ndarray(shape, input.dtype, dense.reshape(-1).view(np.uint8), start, strides)


def memory_order(array: Array) -> list[int]:
    """The dimensions of `array` from the longest step to the shortest: in that order a dense array is contiguous."""
    strides = array.strides
    return sorted(range(len(strides)), key=lambda d: -strides[d])


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order of dimensions that undoes `order`."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


_parts: dict[int, tuple[list[int], list[int]]] = {}
"""Memory that counts as several: by the id of the array that has it, where each part starts and ends, in bytes."""


def part(owner: Array, starts: Sequence[int], ends: Sequence[int]) -> None:
    """Let stretches of the memory of `owner`, from start to end in bytes, count as memory of their own (`owner_of`)."""
    _parts[id(owner)] = (list(starts), list(ends))
    weakref.finalize(owner, _parts.pop, id(owner)).atexit = False


def is_parted(owner: Any) -> bool:
    """Whether the memory of `owner` counts as several."""
    return id(owner) in _parts


def owner_of(array: Any) -> Any:
    """The raw array that has the memory under `array`: all of it, or the part that counts as memory of its own."""
    base = array.base
    owner = array if base is None or base.__class__ is not array.__class__ else base
    if not is_parted(owner):
        return owner
    starts, ends = _parts[id(owner)]
    first = address_of(array) - address_of(owner)
    place = bisect_right(starts, first) - 1
    if place < 0 or first + array.nbytes > ends[place]:
        return owner
    return owner.reshape(-1).view(np.uint8)[starts[place] : ends[place]]


def bytes_before(array: Array, owner: Array) -> int:
    """How far from the start of the memory of `owner` the view `array` of it starts."""
    if array is owner or (array.nbytes == owner.nbytes and array.flags.c_contiguous):
        return 0
    return address_of(array) - address_of(owner)


def address_of(array: Array) -> int:
    """Where the first element of a raw array lies in memory."""
    if not isinstance(array, np.ndarray):
        return array.data.ptr
    if _IS_AFTER_HEAD:  # in a tenth of the time that the interface takes
        return _pointer_at(id(array) + _HEAD).value or 0
    return array.__array_interface__["data"][0]

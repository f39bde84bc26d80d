"""The layout of arrays in memory: which are neighbours, many tensors in one flat array, and new state beside a parameter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from ..backend import dtype as dtypes
from ..backend.elementary.shape import address_of, is_parted, part
from ..backend.layout import Dims, in_order, is_in_order, order_of_leaf
from ..backend.registry import backend_for, to_device
from ..core.dispatching import full_like as told_like
from ..core.dispatching import telling, tells
from ..core.tensor import Tensor, wrap

Array = Any


def joined(arrays: Sequence[Array], places: Sequence[int]) -> Array | None:
    """One flat view in which each array starts at its place, counted in elements; None if they do not lie so."""
    first = arrays[0]
    base, dtype = first.base, first.dtype
    if base is None or not base.flags.c_contiguous:
        return None
    start = address_of(first)
    for array, place in zip(arrays, places, strict=True):
        if array.base is not base or array.dtype != dtype or not array.flags.c_contiguous:
            return None
        if address_of(array) != start + place * dtype.itemsize:
            return None
    offset = start - address_of(base)
    size = (places[-1] + arrays[-1].size) * dtype.itemsize
    return base.reshape(-1).view(np.uint8)[offset : offset + size].view(dtype)


def lies_flat(tensors: Sequence[Tensor], places: Sequence[int]) -> Array | None:
    """The flat array that the tensors fill, each at its place; None if they lie otherwise."""
    arrays = [t._array for t in tensors]
    # In a gap of an array that they are in, another tensor may live.
    gapless = sum(array.size for array in arrays) == places[-1] + arrays[-1].size
    return joined(arrays, places) if gapless else None


def lay_flat(tensors: Sequence[Tensor], places: Sequence[int]) -> Array:
    """Make the tensors views of one flat array, each at its place; of the one that they are in, if they fill it."""
    flat = lies_flat(tensors, places)
    if flat is None:
        arrays = [t._array for t in tensors]
        flat = backend_for(arrays[0]).new_zeros(arrays[0], (places[-1] + arrays[-1].size,))
        for tensor, array, place in zip(tensors, arrays, places, strict=True):
            memory = flat[place : place + array.size].reshape(array.shape)
            # An array that knows more than its elements goes on knowing it.
            tensor._array = array.placed_at(memory) if hasattr(array, "placed_at") else memory
            tensor._array[...] = array
        # Each tensor is complete in a storage of its own, as programs find that save what shares a storage once.
        starts = [place * flat.itemsize for place in places]
        part(flat, starts, [start + array.nbytes for start, array in zip(starts, arrays, strict=True)])
    return flat


def references(parameter: Tensor) -> int:
    """How many refer to a parameter's array, or to the one in it, besides those that have to, or to memory that it is a view of."""
    # Who has the array, and the argument itself.
    count = getrefcount(parameter._array) - 2
    if hasattr(parameter._array, "placed_at"):
        count += getrefcount(parameter._array.array) - 2
    owner = _lender(parameter)
    return count if owner is None else count + getrefcount(owner) - 3


def lent(parameters: Sequence[Tensor]) -> list[int]:
    """`references` of each, without one another: a mapped file in which several lie, and that nobody else holds, counts for none."""
    views = Counter(id(_lender(p)) for p in parameters)
    views[id(None)] = 1
    return [max(0, references(p) - views[id(_lender(p))] + 1) for p in parameters]


def _lender(parameter: Tensor) -> Array | None:
    """Whose memory the parameter is a view of; None for memory of its own, and where `lay_flat` has put it."""
    array = parameter._array
    owner = (array.array if hasattr(array, "placed_at") else array).base
    return None if owner is None or is_parted(owner) else owner


def tied(tensors: Sequence[Tensor]) -> set[Tensor]:
    """Those that share memory with another of them, or occur twice: they must not be parted."""
    spans = sorted(((address_of(t._array), t._array.nbytes, t) for t in tensors), key=lambda span: span[:2])
    found: set[Tensor] = set()
    end, last = -1, None
    for start, size, tensor in spans:
        if last is not None and start < end:
            found |= {last, tensor}
        if start + size > end:
            end, last = start + size, tensor
    return found


def real(array: Array) -> Array:
    """Complex numbers as pairs of real ones, which optimizers treat independently."""
    if array.dtype.kind != "c":
        return array
    return (array if array.ndim else array.reshape(1)).view(array.real.dtype)


def order(parameter: Array) -> Dims | None:
    """The order of dimensions in which a parameter without gaps lies; None for that of the dimensions, or with gaps.

    RuntimeError for a parameter that was expanded: it would be updated several times; and for one of integers, whose steps
    would be cut off.
    """
    if parameter.dtype.kind in "biu":
        raise RuntimeError(
            f"optimizers update floating-point parameters, and one (shape {list(parameter.shape)}) is of dtype "
            f"{parameter.dtype.name}: leave it out, or convert it"
        )
    if (
        parameter.size
        and 0 in parameter.strides
        and any(n > 1 for n, step in zip(parameter.shape, parameter.strides, strict=True) if not step)
    ):
        raise RuntimeError(
            f"unsupported operation: more than one element of a parameter (shape {list(parameter.shape)}) refers to a single "
            "memory location. Please clone() the tensor before performing the operation."
        )
    return None if parameter.dtype.kind == "c" else order_of_leaf(parameter)


def flattened(array: Array, dims: Dims | None) -> Array:
    """The elements one after the other, in the order of `order`: a view if they lie so."""
    return (array if dims is None else array.transpose(dims)).reshape(-1)


def laid_out(array: Array, dims: Dims | None) -> Array:
    """The array in that order of memory: itself if it lies so."""
    if dims is None:
        return array if array.flags.c_contiguous else backend_for(array).contiguous(array)
    return array if is_in_order(array, dims) else in_order(array, dims)


def zeros_like(parameter: Tensor) -> Tensor:
    """State for a parameter: zeros of its shape, dtype, device and order in memory, on the same ranks."""
    if telling and tells(parameter):
        return told_like(parameter, 0)
    array, state = parameter._array, parameter.data
    state._array = laid_out(backend_for(array).new_zeros(array, array.shape), order(array))
    return state


def full_like(parameter: Tensor, value: float) -> Tensor:
    """State for a parameter: `value` in every place, in both parts of complex numbers."""
    if telling and tells(parameter):
        return told_like(parameter, value)
    state = zeros_like(parameter)
    real(state._array)[...] = value
    return state


def new_scalar(value: float, on: Tensor | None = None) -> Tensor:
    """State of one number, in host memory or on the device of a parameter."""
    dtype = np.float64 if dtypes.get_default_dtype() is dtypes.float64 else np.float32
    array = np.full((), value, dtype)
    return wrap(array if on is None else to_device(array, on.device))


class Piece:
    """A stretch of flat memory: param, gradient and states are flat, real and of one length. variables: what lies there."""

    __slots__ = ("grad", "param", "states", "variables")

    def __init__(
        self, variables: Sequence[Tensor], param: Array, grad: Array, states: Sequence[Array]
    ) -> None:
        self.variables = variables
        self.param, self.grad = real(param), real(grad)
        self.states = tuple([real(state) for state in states])

    def finish(self) -> None:
        """The kernel has run."""


class Single(Piece):
    """One parameter over its own memory. It holds a gradient only from `renew` to `finish`."""

    __slots__ = ("copied", "dims")

    @classmethod
    def over(cls, parameter: Tensor, grad: Array, state: dict[str, Any], names: Sequence[str]) -> Single:
        """One that has the memory of `parameter`; names: of the state that is laid out as it is."""
        array = parameter._array
        dims = order(array)
        for name in names:
            state[name]._array = laid_out(state[name]._array, dims)
        states = [flattened(state[name]._array, dims) for name in names]
        return cls((parameter,), flattened(array, dims), flattened(grad, dims), states, dims)

    def __init__(self, *flat: Any) -> None:
        *rest, self.dims = flat
        super().__init__(*rest)
        # Memory with gaps is flattened by copying.
        self.copied = self.dims is None and not self.variables[0]._array.flags.c_contiguous

    def renew(self, grad: Array) -> None:
        """Take up the gradient of this step."""
        self.grad = real(flattened(grad, self.dims))
        if self.copied:
            self.param = real(self.variables[0]._array.reshape(-1))

    def finish(self) -> None:
        if self.copied:
            array = self.variables[0]._array
            array[...] = self.param.view(array.dtype).reshape(array.shape)
        self.grad = None

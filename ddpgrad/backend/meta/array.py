"""`MetaArray`: shape, dtype and steps of an array whose elements are nowhere. What reads one raises `NoElementsError`.

It follows NumPy's protocols and CuPy's constructor, so that code written for those libraries' arrays runs on it:
ufuncs come to `__array_ufunc__`, the other functions of NumPy to `functions.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ...core.errors import NoElementsError
from ..shaped import ArrayMethods, Shaped
from .indices import selected, view_strides

Shape = tuple[int, ...]
Rule = Callable[..., Any]

RULES: dict[Any, Rule] = {}
"""NumPy function -> what it returns for MetaArrays; filled by `functions.py`."""


class Memory:
    """What the views of one MetaArray, their owner, have in common."""

    __slots__ = ("owner",)

    def __init__(self, owner: MetaArray) -> None:
        self.owner = ref(owner)


class Pointer(NamedTuple):
    """A place `ptr` bytes after the start of a memory."""

    mem: Memory
    ptr: int

    def __add__(self, steps: Any) -> Any:
        return Pointer(self.mem, self.ptr + steps)


class Flags(NamedTuple):
    """How the elements would lie."""

    c_contiguous: bool
    f_contiguous: bool
    writeable: bool = True


class MetaArray(ArrayMethods, Shaped, NDArrayOperatorsMixin):
    """An array without elements. strides: in bytes, those of elements in order of the dimensions by default."""

    __slots__ = ("__weakref__", "base", "data", "dtype", "shape", "strides")

    device_kind = "meta"

    def __init__(
        self, shape: Sequence[int], dtype: Any, memptr: Pointer | None = None, strides: Shape | None = None
    ) -> None:
        self.shape = shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.strides = steps_in_order(shape, self.dtype.itemsize) if strides is None else strides
        self.data = Pointer(Memory(self), 0) if memptr is None else memptr
        self.base = None if memptr is None else memptr.mem.owner()

    def __reduce__(self) -> Any:
        return MetaArray, (self.shape, self.dtype, None, self.strides)

    # -- what it is like -------------------------------------------------------------------

    @property
    def flags(self) -> Flags:
        return Flags(
            _in_order(self.shape, self.strides, self.itemsize),
            _in_order(self.shape[::-1], self.strides[::-1], self.itemsize),
        )

    def __iter__(self) -> Iterator[MetaArray]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"MetaArray({self.shape}, {self.dtype})"

    # -- what would read elements ------------------------------------------------------------

    def item(self) -> Any:
        raise NoElementsError("Tensor.item() cannot be called on meta tensors")

    __bool__ = __int__ = __float__ = __complex__ = __index__ = item

    def tolist(self) -> Any:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise NoElementsError("an array on meta has no elements to compute with")

    # -- functions of NumPy -----------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from .functions import apply_ufunc

        return apply_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        rule = RULES.get(func)
        if rule is None:
            raise NoElementsError(f"the shape of numpy.{func.__name__} is not known without elements")
        return rule(*args, **kwargs)

    # -- other views of the same memory -----------------------------------------------------

    def _view(self, change: Callable[[np.ndarray], np.ndarray]) -> MetaArray:
        """What NumPy makes of an array that lies in memory as this one, with elements of no bytes."""
        changed = change(_Layout(self.shape, self.strides, self.data.ptr).array())
        moved = changed.__array_interface__["data"][0] - _START
        return self._at(changed.shape, changed.strides, moved, self.dtype)

    def _at(self, shape: Shape, strides: Shape, ptr: int, dtype: Any) -> MetaArray:
        return MetaArray(shape, dtype, Pointer(self.data.mem, ptr), strides)

    def __getitem__(self, index: Any) -> MetaArray:
        shape = selected(self.shape, index)
        if shape is not None:
            return MetaArray(shape, self.dtype)
        parts = index if isinstance(index, tuple) else (index,)
        whole = parts if Ellipsis in parts else (*parts, Ellipsis)  # an array also where one element is named
        return self._view(lambda layout: layout[whole])

    def __setitem__(self, index: Any, value: Any) -> None:
        """Nothing, but the errors of what does not fit."""
        refuse_host(value)
        try:
            shape = self[index].shape
        except NoElementsError:  # a mask: anything may fit
            return
        given = getattr(value, "shape", ())
        extra = max(0, len(given) - len(shape))
        if set(given[:extra]) - {1} or np.broadcast_shapes(shape, given[extra:]) != shape:
            raise ValueError(f"could not broadcast input array from shape {value.shape} into shape {shape}")

    def transpose(self, *axes: Any) -> MetaArray:
        return self._view(lambda layout: layout.transpose(*axes))

    @property
    def T(self) -> MetaArray:
        return self.transpose()

    def swapaxes(self, axis1: int, axis2: int) -> MetaArray:
        return self._view(lambda layout: layout.swapaxes(axis1, axis2))

    def squeeze(self, axis: Any = None) -> MetaArray:
        return self._view(lambda layout: layout.squeeze(axis))

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> MetaArray:
        return self._view(lambda layout: layout.diagonal(offset, axis1, axis2))

    def reshape(self, *shape: Any) -> MetaArray:
        new = _full_shape(self, shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        strides = view_strides(self.shape, self.strides, new, self.itemsize)
        if strides is None:
            return MetaArray(new, self.dtype)
        return self._at(new, strides, self.data.ptr, self.dtype)

    def ravel(self) -> MetaArray:
        return self.reshape(-1)

    def view(self, dtype: Any = None) -> MetaArray:
        """The same memory, as another dtype: of as many bytes, or along the last dimension, whose elements lie side by side."""
        target = self.dtype if dtype is None else np.dtype(dtype)
        shape, strides = self.shape, self.strides
        if target.itemsize != self.itemsize:
            if not shape or (shape[-1] != 1 and strides[-1] != self.itemsize):
                raise ValueError("To change to a dtype of a different size, the last axis must be contiguous")
            if shape[-1] * self.itemsize % target.itemsize:
                raise ValueError(
                    "When changing to a larger dtype, its size must be a divisor of the total size in bytes of the last axis"
                )
            shape = (*shape[:-1], shape[-1] * self.itemsize // target.itemsize)
            strides = (*strides[:-1], target.itemsize)
        return self._at(shape, strides, self.data.ptr, target)

    def _part(self, bytes_after: int) -> MetaArray:
        return self._at(
            self.shape, self.strides, self.data.ptr + bytes_after, np.dtype(f"f{self.itemsize // 2}")
        )

    @property
    def real(self) -> MetaArray:
        return self._part(0) if self.dtype.kind == "c" else self

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> MetaArray:
        return self._part(self.itemsize // 2) if self.dtype.kind == "c" else MetaArray(self.shape, self.dtype)

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag[...] = value

    # -- new arrays -------------------------------------------------------------------------

    def astype(self, dtype: Any, copy: bool = True, **options: Any) -> MetaArray:
        target = np.dtype(dtype)
        return self if not copy and target == self.dtype else like(self, target)

    def copy(self, order: str = "C") -> MetaArray:
        return MetaArray(self.shape, self.dtype)

    def fill(self, value: Any) -> None:
        """Nothing: there is nowhere to write to."""


_START = 1 << 40  # where NumPy is told that a memory begins: anywhere but 0, for nothing is read there


class _Layout:
    """An array of elements of no bytes, described to NumPy."""

    __slots__ = ("__array_interface__",)

    def __init__(self, shape: Shape, strides: Shape, ptr: int) -> None:
        self.__array_interface__ = {
            "shape": shape, "strides": strides, "data": (_START + ptr, False), "typestr": "|V0", "version": 3,
        }  # fmt: skip

    def array(self) -> np.ndarray:
        return np.asarray(self)


def steps_in_order(shape: Shape, itemsize: int) -> Shape:
    """The steps, in bytes, of elements that lie in order of the dimensions."""
    steps = []
    for n in reversed(shape):
        steps.append(itemsize)
        itemsize *= n or 1
    return tuple(reversed(steps))


def like(array: MetaArray, dtype: Any) -> MetaArray:
    """A new array of the shape of `array`, whose dimensions lie in memory in the same order."""
    if array.flags.c_contiguous:
        return MetaArray(array.shape, dtype)
    order = sorted(range(array.ndim), key=lambda d: -abs(array.strides[d]))
    steps = dict(
        zip(
            order, steps_in_order(tuple(array.shape[d] for d in order), np.dtype(dtype).itemsize), strict=True
        )
    )
    return MetaArray(array.shape, dtype, strides=tuple(steps[d] for d in range(array.ndim)))


def refuse_host(*values: Any) -> None:
    """`TypeError` where one of `values` is an array that has elements, and dimensions."""
    if any(isinstance(v, np.ndarray) and v.ndim for v in values):
        raise TypeError("an array on meta and one that has elements were given")


def _in_order(shape: Shape, strides: Shape, itemsize: int) -> bool:
    if 0 in shape:
        return True
    for n, step in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and step != itemsize:
            return False
        itemsize *= n
    return True


def _full_shape(array: MetaArray, shape: Any) -> Shape:
    """`shape` with its -1, if any, filled in; `ValueError` where it has another number of elements."""
    given = tuple(map(int, shape)) if isinstance(shape, (tuple, list)) else (int(shape),)
    known = math.prod(n for n in given if n != -1)
    if -1 in given and known and array.size % known == 0:
        return tuple(array.size // known if n == -1 else n for n in given)
    if -1 in given or known != array.size:
        raise ValueError(f"cannot reshape array of size {array.size} into shape {given}")
    return given

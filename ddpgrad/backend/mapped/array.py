"""`MappedArray`: the examples of a batch as one array, with the shape and dtype of a single example."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, NoReturn, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ...core.errors import NotMapped
from ..shaped import Shaped

Array = Any

_OF_OTHERS = frozenset(("device_kind", "why"))
"""Attributes by which other raw arrays are told."""


class MappedArray(Shaped, NDArrayOperatorsMixin):
    """`whole` (examples, *shape), seen as one example of `shape`.

    It stands where other raw arrays stand: in a Tensor, in a walk of backward, in a node of the graph. It is never written to.
    Examples that are all the same have steps of 0 bytes between them (`same`).
    """

    __slots__ = ("__weakref__", "shape", "whole")
    base = None  # nobody else may have the memory: what is made of it is new

    def __init__(self, whole: Array) -> None:
        self.whole = whole
        self.shape: tuple[int, ...] = whole.shape[1:]

    @property
    def count(self) -> int:
        """How many examples there are."""
        return self.whole.shape[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.whole.dtype

    @property
    def strides(self) -> tuple[int, ...]:
        return self.whole.strides[1:]

    @property
    def flags(self) -> SimpleNamespace:
        one = self.whole[0].flags
        return SimpleNamespace(
            c_contiguous=one.c_contiguous, f_contiguous=one.f_contiguous, carray=False, writeable=False, aligned=True
        )  # fmt: skip

    @property
    def data(self) -> SimpleNamespace:
        """Memory of its own, as nothing is written to it: `memory_of` in `ops/dispatch/views.py`."""
        return SimpleNamespace(mem=self)

    def astype(self, dtype: Any, copy: bool = True) -> MappedArray:
        return self if not copy and self.dtype == dtype else MappedArray(self.whole.astype(dtype))

    def copy(self) -> MappedArray:
        return MappedArray(self.whole.copy())

    def alike(self, array: Array) -> MappedArray:
        """As many examples that are all `array`."""
        return repeated(array, self.count)

    def _one_by_one(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotMapped

    item = tolist = __bool__ = __int__ = __float__ = __complex__ = __index__ = _one_by_one
    __iter__ = __setitem__ = __getitem__ = __array__ = __array_function__ = __reduce__ = _one_by_one
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __getattr__(self, name: str) -> NoReturn:
        if name[0] == "_" or name in _OF_OTHERS:
            raise AttributeError(name)
        raise NotMapped

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options or ufunc.signature is not None:
            raise NotMapped
        wholes = aligned(inputs)
        return mapped(ufunc(*wholes), count_of(inputs))

    def __iadd__(self, other: Any) -> Self:
        return self + other


def mapped_in(values: Iterable[Any]) -> Iterator[MappedArray]:
    """The MappedArrays among `values`, and within tuples and lists there."""
    for value in values:
        if value.__class__ is MappedArray:
            yield value
        elif value.__class__ is tuple or value.__class__ is list:
            yield from mapped_in(value)


def count_of(values: Iterable[Any]) -> int:
    """How many examples the MappedArrays among `values` have."""
    return next(mapped_in(values)).count


def same(array: MappedArray) -> bool:
    """Whether all examples lie in the same memory."""
    return array.whole.strides[0] == 0 and array.count > 1


def mapped(result: Any, count: int) -> MappedArray:
    """What a function of all examples returned, which has them along its first dimension."""
    if getattr(result, "shape", ())[:1] != (count,):
        raise NotMapped
    return MappedArray(result)


def repeated(array: Array, count: int) -> MappedArray:
    """`count` examples that are all `array`."""
    return MappedArray(np.broadcast_to(array, (count, *array.shape)))


def aligned(values: Any) -> list[Any]:
    """Arrays of all examples that broadcast as single ones do; others as they are."""
    ndim = max(getattr(value, "ndim", 0) for value in values)
    return [
        value.whole.reshape((value.count,) + (1,) * (ndim - value.ndim) + value.shape)
        if value.__class__ is MappedArray and value.ndim < ndim
        else value.whole
        if value.__class__ is MappedArray
        else value
        for value in values
    ]

"""`MappedArray`: the examples of a batch as one array, with the shape and dtype of a single example."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ...core.errors import NotMapped
from ..registry import backend_for
from ..shaped import Shaped

Array = Any

_OF_OTHERS = frozenset(("device_kind", "why"))
"""Attributes by which other raw arrays are told."""


_NUMBERS = (float, int, bool)


class _Memory:
    """The memory of `whole`. mem: the object that has it. ptr: the address of the first example."""

    __slots__ = ("whole",)

    def __init__(self, whole: Array) -> None:
        self.whole = whole

    @property
    def mem(self) -> Any:
        owner = self.whole
        while isinstance(owner, np.ndarray) and isinstance(owner.base, np.ndarray):
            owner = owner.base
        return owner if isinstance(owner, np.ndarray) else owner.data.mem

    @property
    def ptr(self) -> int:
        whole = self.whole
        return whole.ctypes.data if isinstance(whole, np.ndarray) else whole.data.ptr


class MappedArray(Shaped, NDArrayOperatorsMixin):
    """`whole` (examples, *shape), seen as one example of `shape`.

    It stands where other raw arrays stand: in a Tensor, in a walk of backward, in a node of the graph. Examples that are all the
    same have steps of 0 bytes between them (`same`).

    There is a class for each `level`, which counts vmaps within one another from 1, and for each class of `whole`, which is a
    MappedArray of a lower level where the examples are themselves mapped. The class without a level is what a rule sees: the
    examples of the vmap that it is asked about. Arrays of vmaps around that one are single arrays to it.
    """

    __slots__ = ("__weakref__", "shape", "whole")
    level: ClassVar[int] = 0
    levels: ClassVar[tuple[int, ...]] = ()
    """The highest first."""
    base = None  # who has the memory, `data` says

    def __init__(self, whole: Array) -> None:
        self.whole = whole
        self.shape: tuple[int, ...] = whole.shape[1:]

    @property
    def count(self) -> int:
        """How many examples there are."""
        return self.whole.shape[0]

    @property
    def first(self) -> Array:
        """The first example, as an array of an array library."""
        one = self.whole[0, ...]
        return one.first if isinstance(one, MappedArray) else one

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.whole.dtype

    @property
    def strides(self) -> tuple[int, ...]:
        return self.whole.strides[1:]

    @property
    def flags(self) -> SimpleNamespace:
        one = self.whole[0, ...].flags
        return SimpleNamespace(
            c_contiguous=one.c_contiguous, f_contiguous=one.f_contiguous, carray=False, writeable=False, aligned=True
        )  # fmt: skip

    @property
    def data(self) -> _Memory:
        """Where the examples lie: `memory_of` in `ops/dispatch/views.py`."""
        return _Memory(self.whole)

    def _of(self, whole: Array) -> Any:
        """An array of the same level."""
        return self.__class__(whole)

    def total(self) -> Array:
        """The sum of all examples."""
        H = backend_for(self.whole)
        return H.asarray(H.sum(self.whole, 0))

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        return self if not copy and self.dtype == dtype else self._of(self.whole.astype(dtype))

    def copy(self) -> Any:
        return self._of(self.whole.copy())

    def reshape(self, *shape: Any) -> Any:
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return self._of(self.whole.reshape((self.count, *sizes)))

    def transpose(self, *dims: Any) -> Any:
        order = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
        return self._of(self.whole.transpose((0, *[d % self.ndim + 1 for d in order])))

    def swapaxes(self, first: int, second: int) -> Any:
        return self._of(self.whole.swapaxes(first % self.ndim + 1, second % self.ndim + 1))

    def __getitem__(self, index: Any) -> Any:
        return self._of(self.whole[behind(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, MappedArray):
            if value.level > self.level:
                raise NotMapped  # the examples here have no room for those of a vmap within
            if value.level == self.level:
                ndim = self.whole[behind(index)].ndim - 1
                value = value.whole.reshape((value.count,) + (1,) * (ndim - value.ndim) + value.shape)
        self.whole[behind(index)] = value

    def _one_by_one(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotMapped

    item = tolist = __bool__ = __int__ = __float__ = __complex__ = __index__ = _one_by_one
    __iter__ = __array__ = __array_function__ = __reduce__ = _one_by_one
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __getattr__(self, name: str) -> NoReturn:
        if name[0] == "_" or name in _OF_OTHERS:
            raise AttributeError(name)
        raise NotMapped

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options or ufunc.signature is not None:
            raise NotMapped
        some = innermost(inputs)
        assert some is not None
        if all(
            x.__class__ in _NUMBERS or (x.__class__ is some.__class__ and x.ndim == some.ndim) for x in inputs
        ):
            return at(some.level, ufunc(*[x if x.__class__ in _NUMBERS else x.whole for x in inputs]))
        return mapped(ufunc(*aligned(of_level(inputs, some.level))), some.count, some.level)

    def __iadd__(self, other: Any) -> Any:
        return self + other


class Summable(MappedArray):
    """Examples that are computed when somebody asks for them, and whose sum is computed without them."""

    __slots__ = ("_count", "_dtype", "_made", "_make", "_total")

    def __init__(
        self,
        make: Callable[[], Array],
        total: Callable[[], Array],
        shape: tuple[int, ...],
        dtype: Any,
        count: int,
    ) -> None:
        self._make, self._total, self.shape = make, total, shape
        self._dtype, self._count = dtype, count
        self._made: Any = None

    @property
    def count(self) -> int:
        return self._count

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    def whole(self) -> Array:
        if self._made is None:
            self._made = self._make()
        return self._made

    def _of(self, whole: Array) -> Any:
        return at(self.level, whole)

    def total(self) -> Array:
        return self._total()


def behind(index: Any) -> tuple[Any, ...]:
    """An index that is the same for all examples, behind them. Arrays in it must lie side by side, or NumPy would put their dimensions first."""
    parts = index if index.__class__ is tuple else (index,)
    places = [i for i, part in enumerate(parts) if not isinstance(part, (slice, type(None), type(Ellipsis)))]
    arrays = [i for i in places if isinstance(parts[i], bool) or not isinstance(parts[i], int)]
    if any(isinstance(part, MappedArray) for part in parts) or (
        arrays and places != list(range(places[0], places[-1] + 1))
    ):
        raise NotMapped
    return (slice(None), *parts)


@cache
def kind_of(level: int, below: type, base: type[MappedArray] = MappedArray) -> Any:
    """The class of arrays that hold the examples of the vmap at `level` in one of class `below`."""
    levels = (level, *getattr(below, "levels", ()))
    return type(f"{base.__name__}{level}", (base,), {"__slots__": (), "level": level, "levels": levels})


def at(level: int, whole: Array) -> MappedArray:
    """The examples of the vmap at `level` that lie in `whole`, along its first dimension."""
    return kind_of(level, whole.__class__)(whole)


def mapped_in(values: Iterable[Any]) -> list[MappedArray]:
    """The MappedArrays among `values`, and within tuples and lists there."""
    found = []
    for value in values:
        if isinstance(value, MappedArray):
            found.append(value)
        elif value.__class__ is tuple or value.__class__ is list:
            found += mapped_in(value)
    return found


_level = attrgetter("level")


def innermost(values: Iterable[Any]) -> MappedArray | None:
    """The first MappedArray of the highest level among `values`: where the result of a function of these belongs."""
    found = mapped_in(values)
    if not found:
        return None
    return found[0] if len(found) == 1 else max(found, key=_level)


def of_level(values: Sequence[Any], level: int) -> list[Any]:
    """`values` as a rule sees them that is asked about the vmap at `level`."""
    return [_of_level(value, level) for value in values]


def _of_level(value: Any, level: int) -> Any:
    kind = value.__class__
    if kind is tuple or kind is list:
        return kind([_of_level(part, level) for part in value])
    return MappedArray(value.whole) if isinstance(value, MappedArray) and value.level == level else value


def count_of(values: Iterable[Any]) -> int:
    """How many examples the MappedArrays have that a rule was given."""
    return next(value.count for value in mapped_in(values) if value.__class__ is MappedArray)


def same(array: MappedArray) -> bool:
    """Whether all examples lie in the same memory."""
    return array.whole.strides[0] == 0 and array.count > 1


def mapped(result: Any, count: int, level: int) -> MappedArray:
    """What a function of all examples returned, which has them along its first dimension."""
    if getattr(result, "shape", ())[:1] != (count,):
        raise NotMapped
    return at(level, result)


def repeated(array: Array, count: int) -> Array:
    """An array of `count` examples that are all `array`, in its memory."""
    return backend_for(array).expand(array, (count, *array.shape))


def alike(like: Array, array: Array) -> Array:
    """`array` for each example that `like` has, in memory of its own."""
    if not isinstance(like, MappedArray):
        return array
    whole = repeated(alike(like.whole[0, ...], array), like.count)
    return at(like.level, backend_for(whole).clone(whole))


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

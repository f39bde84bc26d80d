"""The index between a user's brackets, converted to one of raw arrays, and its kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backend.registry import backend_for, constant_on, to_device
from ...core.dispatching import telling, tells
from ...core.errors import warn_program
from ...core.overrides import Overridden
from ...core.tensor import Tensor
from ..dispatch.explain import require_one_kind

_INDEXING = (np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.bool_))


def index_array(index: Any) -> Any:
    """The array of an index that is a tensor; others are arrays. `Overridden` for one of a class that is told of ops."""
    if telling and tells(index):
        raise Overridden
    return index._array if isinstance(index, Tensor) else index


def raw_index(input: Tensor, index: Any, ndim: int | None = None) -> Any:
    """An index as NumPy wants it, beside `input`: arrays for tensors and lists, tuples of what was given.

    ndim: how many dimensions what is indexed has, those of `input` if not given.
    """
    if isinstance(index, list) and len(index) < 32 and any(map(_is_several, index)):
        warn_program(
            "Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] instead of x[seq]."
        )
        index = tuple(index)
    if not isinstance(index, tuple):
        return _raw_part(input, index)
    parts = [_raw_part(input, part) for part in index]
    if any(part is Ellipsis for part in parts) and sum(map(_taken, parts)) == (
        input._array.ndim if ndim is None else ndim
    ):
        # It stands for no dimension; NumPy would let it separate the arrays on its sides.
        parts = [part for part in parts if part is not Ellipsis]
    return tuple(parts)


def _taken(part: Any) -> int:
    """How many dimensions of what is indexed a part of a raw index is for."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if getattr(part, "dtype", None) == np.bool_ else 1


def _is_several(part: Any) -> bool:
    """True for a part of a list that makes PyTorch take the list for a tuple."""
    return (
        part is None or part is Ellipsis or isinstance(part, (list, tuple, range, slice, Tensor, np.ndarray))
    )


def _raw_part(input: Tensor, part: Any) -> Any:
    kind = part.__class__
    if kind is slice or kind is int:
        return part
    if isinstance(part, Tensor):
        array = index_array(part)
        if array.dtype == np.uint8:
            warn_program(
                "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead."
            )
            return beside(input, array.astype(np.bool_))  # PyTorch's old masks
        if not array.ndim and array.dtype.kind in "iu":  # selects, as an int does
            return int(array)
        if array.dtype not in _INDEXING:
            raise IndexError(
                f"tensors used as indices must be long, int, byte or bool tensors, got {part.dtype.name}"
            )
        return beside(input, array)
    if kind is bool:
        return beside(input, np.asarray(part), constant=True)
    listed = isinstance(part, (list, range))
    if listed:
        part = np.asarray(part, dtype=np.int64 if not len(part) else None)
    if isinstance(part, np.ndarray):
        # As a tensor without dimensions does.
        return int(part) if not part.ndim and part.dtype.kind in "iu" else beside(input, part, listed)
    return part


def beside(input: Tensor, index: Any, constant: bool = False) -> Any:
    """An index array where `input` is: indexes on the host serve tensors on a GPU, not the other way round.

    constant: the program wrote it down.
    """
    array = input._array
    if index.__class__ is array.__class__:
        return index
    home = backend_for(array)
    if home.kind == "cpu":
        require_one_kind("index", array, index)
        return index
    if home.kind == "meta":  # what a mask selects is known while it has elements
        return index
    return (constant_on if constant else to_device)(index, home.device_of(array))


def is_basic(index: Any) -> bool:
    """True for an index that selects a view: ints, slices, None, Ellipsis."""
    for part in index if isinstance(index, tuple) else (index,):
        kind = part.__class__
        if kind is slice or kind is int or part is None or part is Ellipsis:
            continue
        if not isinstance(part, (int, np.integer)) or kind is bool:
            return False
    return True


def for_mask(index: Any, value: Any) -> Any:
    """A value for elements that a mask chooses, which NumPy wants without the leading dimensions of length 1 that PyTorch takes."""
    mask = index[0] if index.__class__ is tuple and len(index) == 1 else index
    if getattr(mask, "dtype", None) == np.bool_ and getattr(value, "ndim", 0) > 1:
        while value.ndim > 1 and value.shape[0] == 1:
            value = value[0]
    return value


def is_mixed(index: Any) -> bool:
    """True for a raw index with both ints and arrays: PyTorch and NumPy order the result differently."""
    return (
        index.__class__ is tuple
        and any(isinstance(p, (int, np.integer)) and not isinstance(p, bool) for p in index)
        and any(hasattr(p, "ndim") and not isinstance(p, np.generic) for p in index)
    )


def split_mixed(index: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """A mixed index as two: ints, slices and None first, which give a view; then the arrays in that view."""
    first: list[Any] = []
    then: list[Any] = []
    for part in index:
        if hasattr(part, "ndim") and not isinstance(part, np.generic):
            first += [slice(None)] * (part.ndim if part.dtype == np.bool_ else 1)
            then.append(part)
        else:
            first.append(part)
            if part is Ellipsis:
                then.append(part)
            elif part is None or isinstance(part, slice):
                then.append(slice(None))
    return tuple(first), tuple(then)


def slicing(index: Any) -> tuple[Any, ...] | None:
    """The usual basic index, of nothing but ints, forward slices, None and one Ellipsis, as `with_ellipsis` has it."""
    if index.__class__ is not tuple:
        index = (index,)
    whole = False
    for part in index:
        kind = part.__class__
        if kind is slice:
            if part.step is not None:
                refuse_negative_steps(part)
        elif part is Ellipsis:
            whole = True
        elif kind is not int and part is not None:
            return None
    return index if whole else (*index, Ellipsis)


def refuse_negative_steps(index: Any) -> None:
    """`ValueError` for a slice that goes backwards, which no view of PyTorch's does."""
    for part in index if index.__class__ is tuple else (index,):
        if part.__class__ is slice and part.step is not None and part.step <= 0:
            raise ValueError("step must be greater than zero")


def with_ellipsis(index: Any) -> tuple[Any, ...]:
    """A basic index that selects an array also when it names one element, where NumPy has a scalar."""
    if index.__class__ is not tuple:
        return (index, Ellipsis) if index is not Ellipsis else (index,)
    return index if Ellipsis in index else (*index, Ellipsis)

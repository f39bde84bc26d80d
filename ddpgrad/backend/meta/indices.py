"""Where the elements that an index or a shape names would lie: arithmetic on shapes and steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.errors import NoElementsError

Shape = tuple[int, ...]


def selected(shape: Shape, index: Any) -> Shape | None:
    """The shape of what an index with arrays selects of `shape`; None for a basic index, which makes a view.

    IndexError for too many indices and arrays that do not broadcast, `NoElementsError` for a mask without elements.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    if not any(isinstance(part, (list, np.ndarray, bool)) or _is_meta(part) for part in parts):
        return None
    parts = [part if _is_meta(part) or _is_basic(part) else np.asarray(part) for part in parts]
    taken = sum(_taken(part) for part in parts)
    if taken > len(shape):
        raise IndexError(
            f"too many indices for array: array is {len(shape)}-dimensional, but {taken} were indexed"
        )
    if not any(part is Ellipsis for part in parts):
        parts.append(Ellipsis)
    out: list[int] = []
    arrays: list[Shape] = []
    place = dim = 0
    last = -1
    apart = False
    for k, part in enumerate(parts):
        if part is None:
            out.append(1)
        elif part is Ellipsis:
            out += shape[dim : dim + len(shape) - taken]
            dim += len(shape) - taken
        elif isinstance(part, slice):
            out.append(len(range(*part.indices(shape[dim]))))
            dim += 1
        else:
            apart, place, last = apart or (bool(arrays) and last != k - 1), place if arrays else len(out), k
            arrays.append(_index_shape(part, shape[dim : dim + _taken(part)]))
            dim += _taken(part)
    try:
        chosen = np.broadcast_shapes(*arrays)
    except ValueError:
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {' '.join(map(str, arrays))}"
        ) from None
    return (*chosen, *out) if apart else (*out[:place], *chosen, *out[place:])


def _is_meta(part: Any) -> bool:
    return hasattr(part, "dtype") and not isinstance(part, (np.ndarray, np.generic))


def _is_basic(part: Any) -> bool:
    return part is None or part is Ellipsis or isinstance(part, slice)


def _taken(part: Any) -> int:
    """How many dimensions a part of an index is for."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if not isinstance(part, slice) and part.dtype.kind == "b" else 1


def _index_shape(part: Any, dims: Shape) -> Shape:
    """The shape that an array in an index has, or, for a mask, that of the places where it is true."""
    if part.dtype.kind != "b":
        return part.shape
    if not isinstance(part, np.ndarray):
        raise NoElementsError("how many elements a mask selects depends on its elements, which are not there")
    if part.shape != dims:
        raise IndexError(
            f"boolean index did not match indexed array: sizes are {dims}, those of the mask {part.shape}"
        )
    return (int(np.count_nonzero(part)),)


def view_strides(shape: Shape, strides: Shape, new: Shape, itemsize: int) -> Shape | None:
    """The steps that show memory with other sizes; None where no steps do.

    Dimensions that lie in memory like one are one to be cut anew, from the last.
    """
    if not math.prod(shape) or not new:
        step, steps = itemsize, []
        for n in reversed(new):
            steps.append(step)
            step *= n or 1
        return tuple(reversed(steps))
    if not shape:
        shape, strides = (1,), (itemsize,)
    found: list[int] = []
    left = list(new)
    base = strides[-1]
    count = 1
    for d in reversed(range(len(shape))):
        count *= shape[d]
        if d and (shape[d - 1] == 1 or strides[d - 1] == count * base):
            continue
        filled = 1
        while left and (filled < count or left[-1] == 1):
            found.append(filled * base)
            filled *= left.pop()
        if filled != count:
            return None
        base, count = strides[d - 1] if d else itemsize, 1
    return tuple(reversed(found))

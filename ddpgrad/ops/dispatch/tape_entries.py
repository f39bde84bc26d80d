"""What a tape consists of: calls, whose arguments and results are named by slots; and how two of them are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core.tensor import Tensor


class Slot(NamedTuple):
    """What an entry made: value `number` of the tape."""

    number: int


class Constant(NamedTuple):
    """An object that each replay is given as it is."""

    value: Any


class AsTensor(NamedTuple):
    """A tensor without history around the array of a slot."""

    slot: Slot


class Entry(NamedTuple):
    """One call: its arguments and results are made of slots and constants, and tuples, lists, dicts and slices of them."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: Any


def load(tensor: Tensor) -> Any:
    """The array of a tensor that was there before the step."""
    return tensor._array


def load_grad(tensor: Tensor) -> Any:
    """The array of its gradient."""
    grad = tensor._grad
    assert grad is not None
    return grad._array


def write(array: Any, index: Any, value: Any) -> None:
    """Write elements in place."""
    array[index] = value


def converted(array: Any, dtype: Any) -> Any:
    """The elements as another type."""
    return array.astype(dtype)


def constant(array: np.ndarray) -> np.ndarray:
    """An array that the step made without an op, as it was when an op was first given it."""
    return array


def change(a: Any, b: Any) -> str | None:
    """How an argument differs between two recordings, or None."""
    if isinstance(a, Constant) and isinstance(b, Constant):
        if same(a.value, b.value):
            return None
        if isinstance(a.value, np.ndarray):
            return f"an array of shape {list(a.value.shape)} that no op made differs from step to step"
        if isinstance(a.value, Tensor):
            return f"a tensor of shape {list(a.value.shape)} is replaced by another from step to step"
        return f"what is {a.value!r} in one step is {b.value!r} in the next"
    if isinstance(a, (tuple, list)) and not isinstance(a, Slot) and type(a) is type(b) and len(a) == len(b):
        return next((found for x, y in zip(a, b, strict=True) if (found := change(x, y)) is not None), None)
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return next((found for key in a if (found := change(a[key], b[key])) is not None), None)
    return None if a == b else "an argument that differs from step to step"


def same(a: Any, b: Any) -> bool:
    """Whether two constants mean the same: arrays and numbers by their bits, other objects by identity or equality."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, (np.ndarray, np.generic)):
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, (float, complex)):
        return repr(a) == repr(b)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    return isinstance(a, (int, str, bytes, slice, np.dtype)) and bool(a == b)

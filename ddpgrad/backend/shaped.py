"""What follows from the shape and the dtype of a raw array: for the classes of arrays that are of no array library."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

_METHODS = frozenset({
    "all", "any", "argmax", "argmin", "argpartition", "argsort", "clip", "conj", "cumprod", "cumsum", "diagonal", "dot", "max",
    "mean", "min", "nonzero", "prod", "ravel", "repeat", "round", "sort", "squeeze", "std", "sum", "swapaxes", "take", "var",
})  # fmt: skip


class Shaped:
    """The sizes of an array, which has a `shape` and a `dtype`."""

    __slots__ = ()
    shape: tuple[int, ...]
    dtype: Any

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]


class ArrayMethods:
    """The methods that are functions of NumPy by another way: `x.sum(axis)` is `numpy.sum(x, axis)`."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(
                f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self
            )
        return partial(getattr(np, name), self)

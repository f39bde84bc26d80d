"""What follows from the shape and the dtype of a raw array: for the classes of arrays that are of no array library."""

from __future__ import annotations

import math
from typing import Any


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

"""Size: the shape of a tensor."""

from __future__ import annotations

import math
from typing import Any

_at = tuple.__getitem__


class Size(tuple):
    """A shape: a tuple of ints that prints as PyTorch's, and stays one when it is sliced, added or repeated."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements of a tensor of this shape."""
        return math.prod(self)

    def __getitem__(self, key: Any) -> Any:
        return (
            _at(self, key)
            if key.__class__ is int
            else Size(_at(self, key))
            if isinstance(key, slice)
            else _at(self, key)
        )

    def __add__(self, other: Any) -> Any:
        return Size(tuple.__add__(self, other))

    def __radd__(self, other: Any) -> Any:
        return Size((*other, *self))

    def __mul__(self, times: Any) -> Any:
        return Size(tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"

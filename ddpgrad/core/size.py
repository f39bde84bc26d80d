"""Size, the shape of a tensor, and layouts, how elements are stored."""

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


class Layout:
    """How elements are stored: tensors here are `strided` or `sparse_coo`. The others have names, to compare with."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class MemoryFormat(Layout):
    """An order of dimensions in memory. All are accepted; elements always lie in order of the dimensions."""


strided = Layout("strided")
sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc, jagged, _mkldnn = map(
    Layout, ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged", "_mkldnn")
)
contiguous_format, preserve_format = MemoryFormat("contiguous_format"), MemoryFormat("preserve_format")
channels_last, channels_last_3d = MemoryFormat("channels_last"), MemoryFormat("channels_last_3d")


def require_strided(name: str, layout: Any) -> None:
    """`NotImplementedError` for a layout that the new tensor cannot have."""
    if layout is not None and layout is not strided:
        raise NotImplementedError(
            f"{name}(): layout {layout} is not supported; leave layout=torch.strided, and call to_sparse() on the result"
        )

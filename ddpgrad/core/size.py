"""Size, the shape of a tensor; names of layouts, with which programs compare its own; and memory formats."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Self

from ..backend.layout import CHANNELS_LAST, begin_use

_at = tuple.__getitem__
new_size = tuple.__new__  # of what is known to be ints: `new_size(Size, shape)`


class Size(tuple):
    """A shape: a tuple of ints that prints as PyTorch's, and stays one when it is sliced, added or repeated."""

    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = ()) -> Self:
        """The sizes as ints, which may be tensors of one integer. Raises: TypeError for what is no integer."""
        sizes = tuple(sizes)
        for place, size in enumerate(sizes):
            if size.__class__ is not int:
                try:
                    sizes = (*sizes[:place], int(operator.index(size)), *sizes[place + 1 :])
                except TypeError:
                    kind = type(size).__name__
                    raise TypeError(
                        f"torch.Size() takes an iterable of 'int' (item {place} is '{kind}')"
                    ) from None
        return new_size(cls, sizes)

    def numel(self) -> int:
        """The number of elements of a tensor of this shape."""
        return math.prod(self)

    def __getitem__(self, key: Any) -> Any:
        return (
            _at(self, key)
            if key.__class__ is int
            else new_size(Size, _at(self, key))
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


def as_ints(name: str, sizes: Iterable[Any], argument: str = "size") -> tuple[int, ...]:
    """What the function `name` was given as `argument`, as ints; `TypeError` for what is no integer."""
    given = tuple(sizes)
    for place, n in enumerate(given):
        if n.__class__ is not int and not hasattr(n, "__index__"):
            raise TypeError(
                f"{name}(): argument '{argument}' must be tuple of ints, but found element of type {type(n).__name__} at "
                f"pos {place}"
            )
    return tuple([n if n.__class__ is int else int(operator.index(n)) for n in given])


def of_dimension(sizes: Sequence[int], dim: int) -> int:
    """What belongs to dimension `dim` of a tensor, which may count from the back; `IndexError` where there is none."""
    try:
        return sizes[dim]
    except IndexError:
        limit = max(len(sizes), 1)
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {dim})"
        ) from None


class Layout:
    """How elements are stored: tensors are `strided` or have one of the `SPARSE` layouts. Others have names, to compare with."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class MemoryFormat(Layout):
    """An order of dimensions in memory. order: gives it for a number of dimensions; None for that of the input."""

    def __init__(self, name: str, rank: int | None = None) -> None:
        super().__init__(name)
        self.rank = rank
        self.order = None if name == "preserve_format" else self._order

    def _order(self, ndim: int) -> tuple[int, ...]:
        """The dimensions, outermost first; `RuntimeError` for tensors of another rank than images have."""
        if self.rank is None:
            return tuple(range(ndim))
        begin_use()
        if ndim != self.rank:
            raise RuntimeError(
                f"required rank {self.rank} tensor to use {self.name} format, got one of rank {ndim}"
            )
        return CHANNELS_LAST[ndim]


strided = Layout("strided")
sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc, jagged, _mkldnn = map(
    Layout, ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged", "_mkldnn")
)
COMPRESSED = (sparse_csr, sparse_csc, sparse_bsr, sparse_bsc)
SPARSE = {layout.name: layout for layout in (sparse_coo, *COMPRESSED)}
contiguous_format, preserve_format = MemoryFormat("contiguous_format"), MemoryFormat("preserve_format")
channels_last, channels_last_3d = MemoryFormat("channels_last", 4), MemoryFormat("channels_last_3d", 5)


def require_strided(name: str, layout: Any) -> None:
    """`NotImplementedError` for a layout that the new tensor cannot have."""
    if layout is not None and layout is not strided:
        raise NotImplementedError(
            f"{name}(): layout {layout} is not supported; leave layout=torch.strided, and call to_sparse() on the result"
        )

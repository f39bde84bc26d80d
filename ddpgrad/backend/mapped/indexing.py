"""Rules of kernels that read or add by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.errors import NotMapped
from .array import MappedArray, behind, count_of
from .rules import RULES, Rule, each, later, rule

Array = Any


@rule("slice_by", "index_by")
def _slice_by(H: Any, input: Any, index: Any) -> Any:
    if input.__class__ is not MappedArray:  # rows of a table
        if index.__class__ is not MappedArray or index.dtype.kind == "b":
            raise NotMapped
        return H.index_by(input, index.whole)
    places = behind(index)
    return (H.slice_by if _is_basic(index) else H.index_by)(input.whole, places)


def _is_basic(index: Any) -> bool:
    parts = index if index.__class__ is tuple else (index,)
    return all(isinstance(part, (int, slice, type(None), type(Ellipsis))) for part in parts)


@rule("place")
def _place(H: Any, g: MappedArray, shape: Sequence[int], index: Any) -> Any:
    places = behind(index)
    zeros = H.new_zeros(g.whole, (g.count, *shape))
    if not _is_basic(index):
        return H.index_put_add(zeros, places, g.whole)
    zeros[places] = g.whole
    return zeros


@rule("index_select")
def _index_select(H: Any, input: Any, dim: int, index: Any) -> Any:
    if index.__class__ is MappedArray:
        raise NotMapped
    return H.index_select(input.whole, later(dim, input.ndim), index)


def _places_along(name: str) -> Rule:
    """The rule of a kernel (input, dim, index, arrays or options...) that goes along `dim` by an index of as many dimensions."""

    def made(H: Any, input: Any, dim: int, index: Any, *more: Any) -> Any:
        if not input.ndim or not index.ndim:
            raise NotMapped
        count = count_of((input, index, *more))
        if any(x.__class__ is MappedArray and x.ndim != index.ndim for x in more):
            raise NotMapped  # one number for all places
        input, *others = each((input, index, *more), count)
        return getattr(H, name)(input, later(dim, input.ndim - 1), *others)

    return made


RULES |= {name: _places_along(name) for name in ("gather", "scatter_add", "scatter_src", "scatter_reduce_by")}


@rule("embedding_rows")
def _embedding_rows(H: Any, input: Any, indices: Any, padding_idx: int | None = None) -> Any:
    if input.__class__ is MappedArray:
        raise NotMapped
    return H.embedding_rows(input, indices.whole, padding_idx)

"""What ranks find together about tensors of which each has a part: norms, and whether all elements are finite.

Squares are added up in the order of the whole tensor, so that a norm has the bits that one rank finds for that. One rank
gets the rows of all ranks for it, and so each rank an equal share of what would else be gathered by all, as tensors are that several
dimensions of a mesh divide, or one in unequal columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend.registry import Backend
from ..communicator.communicator import Communicator
from .exchange import all_reduce, all_to_all, fresh

if TYPE_CHECKING:
    from .parts import ShardArray

_TOGETHER = 1 << 22
"""Elements of a rank that are sent at once for the sake of norms."""


def sums_of_squares(F: Backend, arrays: Sequence[ShardArray]) -> Any:
    """The sum of those of the tensors that `arrays` are rows of, as `F.sums_of_squares` adds them up. Collective."""
    found, chunks = _all_squares(F, arrays)
    return found.sum() if chunks else _in_order(found)


def root_of_squares(F: Backend, arrays: Sequence[ShardArray], dtype: Any) -> Any:
    """The root of that sum, as `F.root_of_squares` takes it. Collective."""
    found, chunks = _all_squares(F, arrays)
    return F.root_of_sum(found, dtype) if chunks else F.asarray(_in_order(found) ** 0.5, dtype)


def _in_order(found: Any) -> Any:
    """The sum of an array, added up as one rank does."""
    return sum(found.tolist(), 0.0) if isinstance(found, np.ndarray) else sum(list(found), 0.0)


def _all_squares(F: Backend, arrays: Sequence[ShardArray]) -> tuple[Any, bool]:
    """The squares of all the tensors, added up by tensor or, if the second is True, by chunk."""
    first, dtypes = arrays[0].array, {x.dtype for x in arrays}
    sizes = [prod(_layout(x).shape) for x in arrays]
    # Numbers that the sum of one tensor consists of. Where it is not a single one, all are added up at once.
    counts = F.counts_of_squares(first, sizes) if len(dtypes) == 1 else None
    ends = np.cumsum(counts or [1] * len(arrays)).tolist()
    places = [slice(start, stop) for start, stop in zip([0, *ends], ends, strict=False)]
    found = _zeros(first, ends[-1])
    meshes: dict[Any, list[int]] = {}
    for i, x in enumerate(arrays):
        layout = _layout(x)
        if layout.is_shard and layout.simple:
            meshes.setdefault((layout.communicator, x.dtype), []).append(i)
        elif sizes[i] or counts is None:
            whole = x.array if layout.is_replicated else layout.whole(x.array, "squares of gradients")
            found[places[i]] = _squares(F, whole, counts is None)
    for (communicator, _), indices in meshes.items():
        mine, together, size = _zeros(first, len(found)), [], 0
        for i in indices:
            together.append(i)
            size += _layout(arrays[i]).part_size
            if size > _TOGETHER or i == indices[-1]:
                whole = _own_wholes(F, communicator, [arrays[j] for j in together])
                for place, array in whole.items():
                    if array.size or counts is None:
                        mine[places[together[place]]] = _squares(F, array, counts is None)
                together, size = [], 0
        all_reduce(communicator, mine, "sum", "squares of gradients")  # of zeros and one number each
        found += mine
    return found, counts is not None


def _zeros(like: Any, n: int) -> Any:
    numbers = fresh(like, n, np.float64)
    numbers[...] = 0
    return numbers


def _layout(x: ShardArray) -> Any:
    assert x.layout is not None
    return x.layout


def _squares(F: Backend, array: Any, single: bool) -> Any:
    """What the sum of the squares of `array` consists of, or is."""
    return F.sum_of_squares(array) if single else F.squares([array.reshape(-1)])


def _own_wholes(F: Backend, communicator: Communicator, arrays: Sequence[ShardArray]) -> dict[int, Any]:
    """Those tensors that fall to this rank, whole and flat, by place in `arrays`. Collective."""
    layouts = [_layout(x) for x in arrays]
    sizes = [layout.part_size for layout in layouts]
    load = [0] * communicator.size
    dealt: list[list[int]] = [[] for _ in load]
    for place, size in enumerate(sizes):
        rank = load.index(min(load))
        load[rank] += size
        dealt[rank].append(place)
    sent, at = F.new_zeros(arrays[0].array, (sum(sizes),)), 0
    for place in (place for places in dealt for place in places):
        sent[at : at + arrays[place].size] = arrays[place].array.reshape(-1)
        at += sizes[place]
    parts, at, found = all_to_all(communicator, sent, load), 0, {}
    for place in dealt[communicator.rank]:
        whole = F.cat([part[at : at + sizes[place]] for part in parts], 0)
        found[place] = layouts[place].joined(whole[: prod(layouts[place].shape)]).reshape(-1)
        at += sizes[place]
    return found


def unscale_(F: Backend, arrays: Sequence[ShardArray], factor: Any) -> Any:
    """Whether an element of any rank's part of `arrays` is not finite. Collective."""
    meshes: dict[Any, list[Any]] = {}
    for x in arrays:
        layout = _layout(x)
        divided = [d for d, p in enumerate(layout.placements) if not p.is_replicate()]
        lines = tuple([layout.mesh.get_group(d).communicator for d in divided or [0]])
        meshes.setdefault(lines, []).extend([x.array] if x.size else [])
    bad = fresh(arrays[0].array, 1, np.uint8)
    bad[...] = 0
    for lines, parts in meshes.items():
        if parts:
            bad |= F.asarray(F.unscale_(parts, factor), np.uint8)
        for communicator in lines:
            all_reduce(communicator, bad, "max", "whether gradients are finite")
    return bad.reshape(()) != 0

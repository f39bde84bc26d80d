"""How the operands of a function are to lie for each rank to compute its part of the result.

What a function does is told by *labels*: for each operand, one for each of its dimensions. Dimensions with the same label
belong together, and a function computes each place along them by itself, so that ranks may have different ones. A dimension
without a label (None) is needed whole. A label that a result does not have is one over which the function sums: a rank
that has some of the places finds a part of the sum, and the result is `Partial`. So
`matmul` is (i, k), (k, j) -> (i, j); a softmax (i, None) -> (i, None); the sum of rows (i, j) -> (j).

Each dimension of a mesh is settled by itself: of the ways in which operands lie already the one is taken that moves the
fewest elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .layout import REPLICATE, AnyShard, Partial, Placement, Shard, _StridedShard, layout_of
from .mesh_array import MeshArray, first_of

Array = Any
Label = Any
Labels = Sequence[Label]

_ALL = object()  # the choice that every rank computes all


class _Sum(NamedTuple):
    """The choice that operands which are sums stay so, and the result is one. of_all: the others become sums, too."""

    kind: Partial
    of_all: bool


def spread(
    compute: Callable[..., Any],
    operands: Sequence[Any],
    labels: Sequence[Labels],
    outs: Sequence[Labels],
    reduces: str = "sum",
    linear: str = "",
    last: bool = False,
) -> Any:
    """`compute(*parts)` of every rank's parts, where `operands` are arrays that lie anyhow, ordinary ones on all ranks alike.

    outs: labels of the results, of which there are several if there are several of these. reduces: how parts of a result
    make up the whole where a label is missing in it. linear: "each" if the function of sums is the sum of the functions of
    all operands' parts, "one" if it is so in one of them while others stay as they are, "move" if elements only change
    their places. last: of ways that move as much the one of the last operand is taken, as PyTorch does elementwise.
    """
    like = first_of(operands)
    assert like is not None
    mesh = like.mesh
    for x in operands:
        if isinstance(x, MeshArray) and x.mesh is not mesh and x.mesh != mesh:
            raise RuntimeError(
                f"tensors on different meshes were given, {mesh} and {x.mesh}: redistribute one of them"
            )
    extents: dict[Label, int] = {}
    for x, own in zip(operands, labels, strict=True):
        for label, n in zip(own, getattr(x, "shape", ()), strict=True):
            if label is not None:
                extents[label] = n
    choices = [_choice(d, operands, labels, outs[0], linear, last) for d in range(mesh.ndim)]
    factors = [_factor(d, operands, labels, choices, mesh) for d in range(mesh.ndim)]
    parts = [
        _part(x, [_need(x, own, choices[d], d, factors[d]) for d in range(mesh.ndim)], mesh)
        for x, own in zip(operands, labels, strict=True)
    ]
    found = compute(*parts)
    if not isinstance(found, (tuple, list)):
        return _result(like, found, outs[0], choices, factors, extents, reduces)
    made = [
        one if one is None else _result(like, one, own, choices, factors, extents, reduces)
        for one, own in zip(found, [outs[0]] * len(found) if len(outs) == 1 else outs, strict=True)
    ]
    return type(found)(made) if type(found) in (list, tuple) else made


def _placement(x: Any, d: int) -> Placement:
    return x.layout.placements[d] if isinstance(x, MeshArray) else REPLICATE


def _shard(dim: int, factor: int) -> Placement:
    return Shard(dim) if factor == 1 else _StridedShard(dim, split_factor=factor)


def _factor(
    d: int, operands: Sequence[Any], labels: Sequence[Labels], choices: Sequence[Any], mesh: Any
) -> int:
    """The split factor of what mesh dimension `d` divides: that of an operand which later ones divide as it does."""
    label = choices[d]
    for x, own in zip(operands, labels, strict=True):
        p = _placement(x, d)
        if isinstance(p, AnyShard) and p.split_factor > 1 and own[p.dim] == label:
            later = [e for e in range(d + 1, mesh.ndim) if _placement(x, e).divides(p.dim)]
            if later == [e for e in range(d + 1, mesh.ndim) if choices[e] == label]:
                return p.split_factor
    return 1


def _need(x: Any, own: Labels, choice: Any, d: int, factor: int = 1) -> Placement:
    """How `x` has to lie along mesh dimension `d`."""
    if isinstance(choice, _Sum):
        return choice.kind if choice.of_all and isinstance(x, MeshArray) else _placement(x, d)
    return REPLICATE if choice is _ALL or choice not in own else _shard(own.index(choice), factor)


def _choice(
    d: int, operands: Sequence[Any], labels: Sequence[Labels], out: Labels, linear: str, last: bool
) -> Any:
    """The label that is divided along mesh dimension `d`, or one of the two other ways."""
    found: list[Any] = []
    sums = 0
    for x, own in list(zip(operands, labels, strict=True))[:: -1 if last else 1]:
        p = _placement(x, d)
        if isinstance(p, AnyShard):
            label = own[p.dim]
            if label is not None and label not in found:
                found.append(label)
        elif isinstance(p, Partial):
            sums += 1
    if sums and linear and (stays := _stays_sum(d, operands, linear, sums)) is not None:
        return stays
    if not found:
        return _ALL
    found.sort(key=lambda label: label not in out)  # what leaves no sums first
    found.append(_ALL)
    costs = [
        sum(
            _cost(x, _placement(x, d), _need(x, own, choice, d))
            for x, own in zip(operands, labels, strict=True)
        )
        for choice in found
    ]
    return found[costs.index(min(costs))]


def _stays_sum(d: int, operands: Sequence[Any], linear: str, sums: int) -> _Sum | None:
    kinds = {p for x in operands if isinstance(p := _placement(x, d), Partial)}
    kind = next(iter(kinds))
    if len(kinds) > 1 or (linear != "move" and kind.reduce_op not in ("sum", "avg")):
        return None
    arrays = [x for x in operands if hasattr(x, "shape")]
    others = [p for x in arrays if not isinstance(p := _placement(x, d), Partial)]
    if any(not p.is_replicate() for p in others) or (linear == "one" and sums > 1):
        return None
    return _Sum(kind, linear == "each")


def _cost(x: Any, now: Placement, need: Placement) -> float:
    """About how many elements a rank gets for it."""
    if now == need or now.is_replicate() or (isinstance(now, AnyShard) and need.divides(now.dim)):
        return 0
    size = x.size if isinstance(x, MeshArray) else 0
    if now.is_partial():
        return size if need.is_shard() else 2 * size
    return size


def _part(x: Any, placements: Sequence[Placement], mesh: Any) -> Any:
    if isinstance(x, MeshArray):
        return x.placed(placements).part
    if not getattr(x, "shape", ()):
        return x
    index = layout_of(mesh, placements, x.shape).index
    return x if index is ... else x[index]


def _result(
    like: MeshArray,
    part: Any,
    own: Labels,
    choices: Sequence[Any],
    factors: Sequence[int],
    extents: dict[Label, int],
    reduces: str,
) -> MeshArray:
    if not isinstance(part, np.ndarray) and part.__class__ is not like.part.__class__:
        part = np.asarray(part)
    shape = [n if label is None else extents[label] for label, n in zip(own, part.shape, strict=True)]
    placements: list[Placement] = []
    for choice, factor in zip(choices, factors, strict=True):
        if choice is _ALL:
            placements.append(REPLICATE)
        elif isinstance(choice, _Sum):
            placements.append(choice.kind)
        elif choice in own:
            placements.append(_shard(own.index(choice), factor))
        else:
            placements.append(Partial(reduces))
    return like.of(part, placements, shape)


def elementwise(compute: Callable[..., Any], operands: Sequence[Any], linear: str = "") -> Any:
    """`compute(*parts)`, which treats every element by itself and broadcasts its operands."""
    shape = np.broadcast_shapes(*[x.shape for x in operands if hasattr(x, "shape")])
    rank = len(shape)
    labels = []
    for x in operands:
        own = getattr(x, "shape", ())
        lead = rank - len(own)
        labels.append([lead + i if n == shape[lead + i] else None for i, n in enumerate(own)])
    return spread(compute, operands, labels, [list(range(rank))], linear=linear, last=True)

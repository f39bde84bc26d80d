"""How a tensor lies along one dimension of a mesh.

Source of names: https://pytorch.org/docs/stable/distributed.tensor.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

from ..device_mesh import DeviceMesh


class Placement:
    """How a tensor lies along one dimension of a mesh."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether the ranks have a part each, along `dim` if that is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def divides(self, dim: int | None = None) -> bool:
        """As `is_shard`, in whatever order the dimensions of the mesh divide, which PyTorch's `is_shard` does not say."""
        return isinstance(self, AnyShard) and dim in (None, self.dim)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the whole is a sum of what the ranks have, or what else `reduce_op` says if that is given."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)

    def is_replicate(self) -> bool:
        """Whether every rank has all of it."""
        return isinstance(self, Replicate)


class AnyShard(Placement):
    """Every rank has a part along dimension `dim`, as `torch.chunk` makes them: the last ranks may have less, or nothing.

    split_factor: in how many parts later dimensions of the mesh have divided it before this one does.
    """

    dim: int
    split_factor: Any

    def at(self, dim: int) -> Self:
        """The same along another dimension."""
        return self if dim == self.dim else replace(self, dim=dim)  # type: ignore[type-var]


@dataclass(frozen=True)
class Shard(AnyShard):
    """Every rank has a part along dimension `dim`, of what earlier dimensions of the mesh have left."""

    dim: int = 0
    split_factor = 1  # without an annotation, so that it is no argument

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class _StridedShard(AnyShard):
    """Every rank has a part along dimension `dim`, of what later dimensions of the mesh have left.

    `fully_shard` divides so what is divided by tensor parallelism: [_StridedShard(0, split_factor=2), Shard(0)] is the second
    dimension's two parts, each divided along the first.
    """

    dim: int
    _: KW_ONLY
    split_factor: int = 1

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Every rank has all of it."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """Every rank has a tensor of the whole's shape, and the whole is their sum: or "avg", "max", "min", "product"."""

    reduce_op: str = "sum"

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


REPLICATE = Replicate()


def inside(placement: Placement, shape: tuple[int, ...]) -> Placement:
    """The placement with its dimension counted from 0."""
    if not isinstance(placement, AnyShard):
        return placement
    if not shape:
        raise ValueError("a tensor without dimensions has no rows to shard: make it one of shape [1]")
    if not -len(shape) <= placement.dim < len(shape):
        raise IndexError(f"{placement!r} is out of range for a tensor of shape {list(shape)}")
    if placement.split_factor == 1 and not isinstance(placement, Shard):
        placement = Shard(placement.dim)
    return placement.at(placement.dim % len(shape))


def divisions(placements: Sequence[Placement], mesh: DeviceMesh) -> dict[int, list[int]]:
    """By dimension of the tensor, the dimensions of the mesh that divide it, in their order.

    Each stands behind as many later ones as its split factor is the product of; without one it comes before all of them.
    """
    found: dict[int, list[int]] = {}
    for d, p in reversed(list(enumerate(placements))):
        if not isinstance(p, AnyShard):
            continue
        order, parts, place = found.setdefault(p.dim, []), 1, 0
        while parts < p.split_factor and place < len(order):
            parts *= mesh.size(order[place])
            place += 1
        if parts != p.split_factor:
            raise NotImplementedError(
                f"{list(placements)}: the split factor {p.split_factor} is not the number of parts that later dimensions of a mesh "
                f"of shape {mesh.shape} divide dimension {p.dim} into"
            )
        order.insert(place, d)
    return found


def spans_of(
    placements: Sequence[Placement], shape: Sequence[int], mesh: DeviceMesh, rank: Any = None
) -> list[tuple[int, int]]:
    """Where the part of a rank begins and ends in each dimension. rank: its coordinate in `mesh`; this one's by default."""
    spans = [(0, n) for n in shape]
    for axis, order in divisions(placements, mesh).items():
        start, stop = spans[axis]
        for d in order:
            size, here = mesh.size(d), mesh.get_local_rank(d) if rank is None else rank[d]
            chunk = -(-(stop - start) // size)
            start, stop = min(start + here * chunk, stop), min(start + (here + 1) * chunk, stop)
        spans[axis] = start, stop
    return spans

"""How a tensor lies along one dimension of a mesh.

Source of names: https://pytorch.org/docs/stable/distributed.tensor.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..device_mesh import DeviceMesh


class Placement:
    """How a tensor lies along one dimension of a mesh."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether the ranks have a part each, along `dim` if that is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the whole is a sum of what the ranks have, or what else `reduce_op` says if that is given."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)

    def is_replicate(self) -> bool:
        """Whether every rank has all of it."""
        return isinstance(self, Replicate)


@dataclass(frozen=True)
class Shard(Placement):
    """Every rank has a part along dimension `dim`, as `torch.chunk` makes them: the last ranks may have less, or nothing."""

    dim: int = 0

    def __str__(self) -> str:
        return f"S({self.dim})"


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
    if not isinstance(placement, Shard):
        return placement
    if not shape:
        raise ValueError("a tensor without dimensions has no rows to shard: make it one of shape [1]")
    if not -len(shape) <= placement.dim < len(shape):
        raise IndexError(f"{placement!r} is out of range for a tensor of shape {list(shape)}")
    return placement if placement.dim >= 0 else Shard(placement.dim + len(shape))


def spans_of(
    placements: Sequence[Placement], shape: Sequence[int], mesh: DeviceMesh, rank: Any = None
) -> list[tuple[int, int]]:
    """Where the part of a rank begins and ends in each dimension. rank: its coordinate in `mesh`; this one's by default."""
    spans = [(0, n) for n in shape]
    for d, p in enumerate(placements):
        if isinstance(p, Shard):
            size, here = mesh.size(d), mesh.get_local_rank(d) if rank is None else rank[d]
            start, stop = spans[p.dim]
            chunk = -(-(stop - start) // size)
            spans[p.dim] = (min(start + here * chunk, stop), min(start + (here + 1) * chunk, stop))
    return spans

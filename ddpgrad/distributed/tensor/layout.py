"""How a tensor lies on the ranks of a mesh.

Source of names: https://pytorch.org/docs/stable/distributed.tensor.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..communicator.communicator import Communicator
from ..device_mesh import DeviceMesh
from .exchange import fresh, start_all_gather


class Placement:
    """How a tensor lies along one dimension of a mesh."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether the ranks have a part each, along `dim` if that is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

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


class Layout:
    """A tensor of `shape` on the ranks of `mesh`, placed by `Shard(0)` along one dimension, or none, and `Replicate()` along others.

    dim: of the mesh, along which rows are dealt; None: every rank has all. communicator: this rank's line along it.
    chunk: the rows of a rank that has a full part. NotImplementedError for what else there is in PyTorch.
    """

    __slots__ = ("chunk", "communicator", "dim", "mesh", "placements", "shape")

    def __init__(self, mesh: DeviceMesh, placements: Sequence[Placement], shape: Sequence[int]) -> None:
        dealt = [d for d, p in enumerate(placements) if p == Shard(0)]
        others = [p for p in placements if p not in (Shard(0), Replicate())]
        if len(dealt) > 1 or others or len(placements) != mesh.ndim:
            raise NotImplementedError(
                f"the placements of a tensor are [Shard(0)] or [Replicate()] here, and on a mesh of several dimensions [Shard(0)] "
                f"along one at most; got {list(placements)} for {mesh}"
            )
        ranks = mesh.mesh.numpy()
        if mesh.ndim > 1 and not all((np.diff(ranks, axis=d) > 0).all() for d in range(mesh.ndim)):
            raise NotImplementedError(
                f"the ranks of a mesh of several dimensions have to ascend along each, got {mesh}"
            )
        self.mesh, self.placements, self.shape = mesh, tuple(placements), tuple(shape)
        self.dim = dealt[0] if dealt else None
        self.communicator: Communicator = mesh.get_group(self.dim or 0).communicator
        if self.is_shard and not self.shape:
            raise ValueError("a tensor without dimensions has no rows to shard: make it one of shape [1]")
        self.chunk = -(-self.shape[0] // self.communicator.size) if self.is_shard else 0

    @property
    def is_shard(self) -> bool:
        return self.dim is not None

    @property
    def is_first(self) -> bool:
        """Whether this rank is the first of those that have the same part."""
        return not any(self.mesh.get_local_rank(d) for d in range(self.mesh.ndim) if d != self.dim)

    @property
    def part_size(self) -> int:
        """Elements of a rank that has a full part."""
        return self.chunk * prod(self.shape[1:])

    def rows(self, rank: int | None = None) -> slice:
        """The rows of `rank`, by default of this one."""
        if not self.is_shard:
            return slice(None)
        rank = self.communicator.rank if rank is None else rank
        n = self.shape[0]
        return slice(min(rank * self.chunk, n), min((rank + 1) * self.chunk, n))

    def fits(self, other: Any) -> bool:
        """Whether `other` lies alike, so that elements of one place belong together."""
        return (
            isinstance(other, Layout)
            and (self.shape, self.placements) == (other.shape, other.placements)
            and self.mesh.get_all_groups() == other.mesh.get_all_groups()
        )

    def whole(self, part: Any, label: str) -> Any:
        """All rows, of which this rank has `part`, on the same device. Collective."""
        if not self.is_shard:
            return part.copy()
        sent = fresh(part, (self.chunk, *self.shape[1:]), part.dtype)
        sent[: len(part)] = part
        sent[len(part) :] = 0
        rows = start_all_gather(self.communicator, sent, label, background=False)()
        return rows.reshape(-1, *self.shape[1:])[: self.shape[0]]

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
from .exchange import all_reduce, fresh, start_all_gather


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


class Layout:
    """A tensor of `shape` on the ranks of `mesh`, placed by `Shard` or `Partial` along one dimension, or none, else by `Replicate()`.

    dim: of the mesh, along which parts are dealt; None: every rank has all. communicator: this rank's line along it.
    axis: the tensor's dimension that is divided; another one than 0 by equal parts. chunk: its length in a full part.
    op: of a Partial. NotImplementedError for what else there is in PyTorch.
    """

    __slots__ = ("axis", "chunk", "communicator", "dim", "mesh", "op", "placements", "shape")

    def __init__(self, mesh: DeviceMesh, placements: Sequence[Placement], shape: Sequence[int]) -> None:
        dealt = [d for d, p in enumerate(placements) if isinstance(p, Shard)]
        sums = [d for d, p in enumerate(placements) if isinstance(p, Partial)]
        others = [p for p in placements if not isinstance(p, (Shard, Partial, Replicate))]
        if len(dealt + sums) > 1 or others or len(placements) != mesh.ndim:
            raise NotImplementedError(
                f"the placements of a tensor are [Shard(dim)], [Partial()] or [Replicate()] here, and on a mesh of several dimensions "
                f"one of them at most is not Replicate(); got {list(placements)} for {mesh}"
            )
        ranks = mesh.mesh.numpy()
        if mesh.ndim > 1 and not all((np.diff(ranks, axis=d) > 0).all() for d in range(mesh.ndim)):
            raise NotImplementedError(
                f"the ranks of a mesh of several dimensions have to ascend along each, got {mesh}"
            )
        self.mesh, self.shape = mesh, tuple(shape)
        self.dim, self.axis = dealt[0] if dealt else None, 0
        placed = list(placements)
        told: Any = placements[sums[0]] if sums else None
        self.op: str | None = told.reduce_op if sums else None
        self.communicator: Communicator = mesh.get_group((dealt + sums + [0])[0]).communicator
        if self.is_shard and not self.shape:
            raise ValueError("a tensor without dimensions has no rows to shard: make it one of shape [1]")
        if self.dim is not None:
            told = placements[self.dim]
            if not -len(self.shape) <= told.dim < len(self.shape):
                raise IndexError(f"{told} is out of range for a tensor of shape {list(self.shape)}")
            self.axis = told.dim % len(self.shape)
            placed[self.dim] = Shard(self.axis)
            if self.axis and self.shape[self.axis] % self.communicator.size:
                raise NotImplementedError(
                    f"a tensor of shape {list(self.shape)} cannot be divided along dimension {self.axis} into "
                    f"{self.communicator.size} equal parts: only along dimension 0 may parts differ"
                )
        self.placements = tuple(placed)
        self.chunk = -(-self.shape[self.axis] // self.communicator.size) if self.is_shard else 0

    @property
    def is_shard(self) -> bool:
        return self.dim is not None

    @property
    def is_replicated(self) -> bool:
        """Whether each rank has the whole."""
        return self.dim is None and self.op is None

    @property
    def is_first(self) -> bool:
        """Whether this rank is the first of those that have the same part."""
        return not any(self.mesh.get_local_rank(d) for d in range(self.mesh.ndim) if d != self.dim)

    @property
    def part_size(self) -> int:
        """Elements of a rank that has a full part."""
        return self.chunk * prod(self.shape[: self.axis]) * prod(self.shape[self.axis + 1 :])

    @property
    def part_shape(self) -> tuple[int, ...]:
        """Of what this rank has."""
        if not self.is_shard:
            return self.shape
        return (*self.shape[: self.axis], len(self.span), *self.shape[self.axis + 1 :])

    @property
    def span(self) -> range:
        """What this rank has along the dimension that is divided; all of dimension 0 if none is."""
        n = self.shape[self.axis] if self.shape else 0
        if not self.is_shard:
            return range(n)
        rank = self.communicator.rank
        return range(min(rank * self.chunk, n), min((rank + 1) * self.chunk, n))

    @property
    def index(self) -> Any:
        """The index of this rank's part in the whole."""
        if not self.is_shard:
            return ...
        return (*[slice(None)] * self.axis, slice(self.span.start, self.span.stop))

    def by_ranks(self, whole: Any) -> Any:
        """The elements of `whole`, flat, those of one rank after those of another."""
        if self.axis:
            a, n = self.axis, self.communicator.size
            apart = whole.reshape(*self.shape[:a], n, self.chunk, *self.shape[a + 1 :])
            whole = apart.transpose(a, *range(a), *range(a + 1, apart.ndim))
        return whole.reshape(-1)

    def joined(self, flat: Any) -> Any:
        """The inverse of `by_ranks`."""
        if self.axis:
            a, n = self.axis, self.communicator.size
            apart = flat.reshape(n, *self.shape[:a], self.chunk, *self.shape[a + 1 :])
            flat = apart.transpose(*range(1, a + 1), 0, *range(a + 1, apart.ndim))
        return flat.reshape(self.shape)

    def fits(self, other: Any) -> bool:
        """Whether `other` lies alike, so that elements of one place belong together."""
        return (
            isinstance(other, Layout)
            and (self.shape, self.placements) == (other.shape, other.placements)
            and self.mesh.get_all_groups() == other.mesh.get_all_groups()
        )

    def whole(self, part: Any, label: str) -> Any:
        """All of it, of which this rank has `part`, on the same device. Collective."""
        if not self.is_shard:
            whole = part.copy()
            if self.op is not None:
                all_reduce(self.communicator, whole, self.op, label)
            return whole
        sent = fresh(part, self.part_size, part.dtype)
        sent[: part.size] = part.reshape(-1)
        sent[part.size :] = 0
        parts = start_all_gather(self.communicator, sent, label, background=False)()
        return self.joined(parts.reshape(-1)[: prod(self.shape)])

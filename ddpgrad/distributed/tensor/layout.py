"""How a tensor of one shape lies on the ranks of a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..communicator.communicator import Communicator
from ..device_mesh import DeviceMesh
from .moves import moved
from .placements import (
    REPLICATE,
    AnyShard,
    Partial,
    Placement,
    Replicate,
    Shard,
    _StridedShard,
    inside,
    spans_of,
)


class Layout:
    """A tensor of `shape` on the ranks of `mesh`, placed along each of its dimensions.

    spans: where this rank's part begins and ends, by dimension. axis: the first of the tensor's dimensions that is divided.
    communicator: this rank's line along the dimension of the mesh that divides it, or adds it up.
    Where several dimensions of the mesh divide one of the tensor, each divides what the ones before it left; `_StridedShard` is what
    comes after later ones.
    """

    __slots__ = (
        "axis", "chunk", "communicator", "dim", "index", "is_replicated", "is_shard", "mesh", "part_shape",
        "placements", "shape", "simple", "spans",
    )  # fmt: skip

    def __init__(self, mesh: DeviceMesh, placements: Sequence[Placement], shape: Sequence[int]) -> None:
        if len(placements) != mesh.ndim:
            raise ValueError(
                f"`placements` must have the same length as `device_mesh.ndim`! Found placements length: {len(placements)}, and "
                f"device_mesh.ndim: {mesh.ndim}."
            )
        others = [p for p in placements if not isinstance(p, (AnyShard, Partial, Replicate))]
        if others:
            raise TypeError(f"placements are Shard(dim), Partial() and Replicate(), got {others[0]!r}")
        if not mesh.ascends:
            raise NotImplementedError(
                f"the ranks of a mesh of several dimensions have to ascend along each, got {mesh}"
            )
        self.mesh, self.shape = mesh, tuple(shape)
        self.placements = tuple([inside(p, self.shape) for p in placements])
        parts = [d for d, p in enumerate(self.placements) if not isinstance(p, Replicate)]
        dealt = [d for d in parts if self.placements[d].divides()]
        self.is_shard, self.is_replicated = bool(dealt), not parts
        self.dim = dealt[0] if len(dealt) == 1 else None
        self.axis: int = self.placements[dealt[0]].dim if dealt else 0  # type: ignore[attr-defined]
        self.communicator: Communicator = mesh.get_group((dealt + parts + [0])[0]).communicator
        self.spans = spans_of(self.placements, self.shape, mesh)
        self.part_shape = tuple([stop - start for start, stop in self.spans])
        self.index: Any = tuple([slice(*span) for span in self.spans]) if dealt else ...
        size = self.communicator.size
        self.chunk = -(-self.shape[self.axis] // size) if len(dealt) == 1 else 0
        self.simple = len(parts) < 2 and (not self.axis or not self.shape[self.axis] % size)

    @property
    def op(self) -> str | None:
        """How the ranks' parts make up the whole, where they are no parts of it in some dimension of the mesh."""
        return next((p.reduce_op for p in self.placements if isinstance(p, Partial)), None)

    @property
    def is_first(self) -> bool:
        """Whether this rank is the first of those that have the same part."""
        return not any(self.mesh.get_local_rank(d) for d, p in enumerate(self.placements) if not p.divides())

    @property
    def part_size(self) -> int:
        """Elements of a rank that has a full part, where one dimension is divided once."""
        return self.chunk * prod(self.shape[: self.axis]) * prod(self.shape[self.axis + 1 :])

    @property
    def span(self) -> range:
        """What this rank has along the dimension that is divided; all of dimension 0 if none is."""
        return range(*self.spans[self.axis]) if self.shape else range(0)

    def require_equal_parts(self) -> Layout:
        """Itself; NotImplementedError where another dimension than the first is divided in unequal parts."""
        if not self.simple:
            raise NotImplementedError(
                f"a tensor of shape {list(self.shape)} cannot be divided along dimension {self.axis} into "
                f"{self.communicator.size} equal parts: only along dimension 0 may parts differ here"
            )
        return self

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
            and (self.mesh is other.mesh or self.mesh.get_all_groups() == other.mesh.get_all_groups())
        )

    def placed(self, placements: Sequence[Placement]) -> Layout:
        """The same tensor placed otherwise."""
        return self if tuple(placements) == self.placements else layout_of(self.mesh, placements, self.shape)

    def moved(self, part: Any, placements: Sequence[Placement], label: str) -> Any:
        """This rank's part of the same tensor placed otherwise: `part` itself where nothing changes. Collective."""
        return moved(part, self, layout_of(self.mesh, placements, self.shape).placements, label)

    def whole(self, part: Any, label: str) -> Any:
        """All of it, of which this rank has `part`, on the same device and in memory of its own. Collective."""
        whole = self.moved(part, (REPLICATE,) * self.mesh.ndim, label)
        return part.copy() if whole is part else whole


def layout_of(mesh: DeviceMesh, placements: Sequence[Placement], shape: Sequence[int]) -> Layout:
    """The layout, made once for a mesh."""
    key = (tuple(placements), tuple(shape))
    found = mesh.layouts.get(key)
    if found is None:
        found = mesh.layouts[key] = Layout(mesh, placements, shape)
    return found


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(the shape of this rank's part, where it begins in the whole)."""
    layout = layout_of(mesh, placements, global_shape)
    return layout.part_shape, tuple([start for start, _ in layout.spans])


__all__ = [
    "REPLICATE", "AnyShard", "Layout", "Partial", "Placement", "Replicate", "Shard", "_StridedShard",
    "compute_local_shape_and_global_offset", "layout_of", "spans_of",
]  # fmt: skip

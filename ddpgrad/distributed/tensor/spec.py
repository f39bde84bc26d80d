"""What `torch.distributed.tensor._dtensor_spec` has: how a DTensor lies, and what is known of the whole, as one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from ...core.size import Size
from ..device_mesh import DeviceMesh
from .layout import AnyShard, Partial, Placement, Replicate, Shard


class ShardOrderEntry(NamedTuple):
    """The dimensions of the mesh that divide one of the tensor, in their order."""

    tensor_dim: int
    mesh_dims: tuple[int, ...]


class TensorMeta(NamedTuple):
    """The shape, stride and dtype of the whole."""

    shape: Size
    stride: tuple[int, ...]
    dtype: Any


@dataclass
class DTensorSpec:
    """How a DTensor lies on `mesh`: a placement for each of its dimensions. tensor_meta: of the whole, if it is known."""

    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    tensor_meta: TensorMeta | None = None

    def __post_init__(self) -> None:
        self.placements = tuple(self.placements)

    def __hash__(self) -> int:
        meta = self.tensor_meta
        known = None if meta is None else (tuple(meta.shape), tuple(meta.stride), meta.dtype)
        return hash((self.mesh, self.placements, known))

    @property
    def device_mesh(self) -> DeviceMesh:
        return self.mesh

    @property
    def shape(self) -> Size:
        return self._meta().shape

    @property
    def stride(self) -> tuple[int, ...]:
        return self._meta().stride

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def num_shards(self) -> int:
        """How many parts there are in all."""
        return prod(self.num_shards_map)

    @property
    def num_shards_map(self) -> list[int]:
        """By dimension, in how many parts it is divided."""
        parts = [1] * self.ndim
        for size, p in zip(self.mesh.shape, self.placements, strict=True):
            if isinstance(p, AnyShard):
                parts[p.dim] *= size
        return parts

    @property
    def dim_map(self) -> list[int]:
        """By dimension, the one of the mesh that divides it; -1 where none does, ValueError where several do."""
        found = [-1] * self.ndim
        for d, p in enumerate(self.placements):
            if isinstance(p, AnyShard):
                if found[p.dim] >= 0:
                    raise ValueError(
                        f"Tensor dim {p.dim} is already sharded on mesh dim {found[p.dim]}, and several have no dim_map"
                    )
                found[p.dim] = d
        return found

    @property
    def sums(self) -> list[int]:
        """The dimensions of the mesh over which the parts are to be added up."""
        return [d for d, p in enumerate(self.placements) if p.is_partial()]

    @classmethod
    def from_dim_map(
        cls,
        mesh: DeviceMesh,
        dim_map: Sequence[int],
        sums: Sequence[int],
        tensor_meta: TensorMeta | None = None,
    ) -> DTensorSpec:
        """What has this `dim_map` and these `sums`."""
        placements: list[Placement] = [Partial() if d in sums else Replicate() for d in range(mesh.ndim)]
        for dim, d in enumerate(dim_map):
            if d < 0:
                continue
            if placements[d] != Replicate():
                raise RuntimeError(
                    f"DeviceMesh dimension {d} cannot be both {placements[d]} and {Shard(dim)}"
                )
            placements[d] = Shard(dim)
        return cls(mesh, tuple(placements), tensor_meta)

    def is_replicated(self) -> bool:
        """Whether every rank has all."""
        return all(p.is_replicate() for p in self.placements)

    def is_sharded(self) -> bool:
        """Whether a dimension is divided."""
        return any(p.divides() for p in self.placements)

    def shallow_copy_with_tensor_meta(self, tensor_meta: TensorMeta | None) -> DTensorSpec:
        """The same with what is known of another tensor."""
        return DTensorSpec(self.mesh, self.placements, tensor_meta)

    def _meta(self) -> TensorMeta:
        if self.tensor_meta is None:
            raise ValueError("tensor_meta is not set")
        return self.tensor_meta


def spec_of(tensor: Any) -> DTensorSpec:
    """That of a DTensor."""
    meta = TensorMeta(tensor.shape, tensor.stride(), tensor.dtype)
    return DTensorSpec(tensor.device_mesh, tensor.placements, meta)


def compute_global_tensor_shape(
    shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]
) -> Size:
    """The shape of the whole of which each rank of `mesh`, which has one dimension, has a part of `shape`. Collective."""
    if len(placements) != 1:
        raise NotImplementedError("compute_global_tensor_shape only supports 1 placement for now.")
    placement = placements[0]
    if placement.is_replicate():
        return Size(shape)
    if not isinstance(placement, Shard):
        raise NotImplementedError(f"Placement type {type(placement)} not supported.")
    parts = mesh.get_group().communicator.all_gather_object(list(shape))
    if any(
        n != m
        for part in parts
        for d, (n, m) in enumerate(zip(part, shape, strict=True))
        if d != placement.dim
    ):
        raise RuntimeError("Non-sharded dimensions should have identical size across ranks.")
    whole = list(shape)
    whole[placement.dim] = sum(part[placement.dim] for part in parts)
    return Size(whole)


def normalize_to_torch_size(size: Any) -> Size:
    """A size given as numbers, or as a sequence of them."""
    if isinstance(size, int):
        return Size([size])
    return Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)

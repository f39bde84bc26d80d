"""Ranks arranged in a grid, with a process group for each row, column and so on.

Source of names: https://pytorch.org/docs/stable/distributed.html#devicemesh. Data-parallel programs use
one dimension, or two: replicas within a host and between hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor, wrap
from . import process_group
from .process_group import ProcessGroup


class DeviceMesh:
    """A grid of ranks. mesh: their numbers in the world, as a nested list or Tensor; the same on all ranks.

    Every rank of the world makes the same meshes in the same order. mesh_dim_names: names of
    the dimensions, by which `mesh["name"]` selects.
    """

    def __init__(
        self, device_type: str, mesh: Any, *, mesh_dim_names: Sequence[str] | None = None, **options: Any
    ) -> None:
        if not process_group.is_initialized():
            process_group.init_process_group()
        self.device_type = device_type
        self._ranks = np.asarray(mesh.numpy(force=True) if isinstance(mesh, Tensor) else mesh, np.int64)
        self.mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names else None
        if self.mesh_dim_names and len(self.mesh_dim_names) != self._ranks.ndim:
            raise RuntimeError(
                f"mesh_dim_names must have one name a dimension: {len(self.mesh_dim_names)} names for shape {self.shape}"
            )
        groups = []
        for dim in range(self._ranks.ndim):
            lines = np.moveaxis(self._ranks, dim, -1).reshape(-1, self._ranks.shape[dim]).tolist()
            mine, _ = process_group.new_subgroups_by_enumeration(lines)
            groups.append(mine)
        self._groups: list[ProcessGroup | None] = groups

    @classmethod
    def from_group(cls, group: ProcessGroup, device_type: str) -> DeviceMesh:
        """The mesh of one dimension that `group` is. Not collective."""
        mesh = cls.__new__(cls)
        mesh.device_type, mesh.mesh_dim_names = device_type, None
        mesh._ranks = np.asarray(group.ranks, np.int64)
        mesh._groups = [group]
        return mesh

    @property
    def mesh(self) -> Tensor:
        """The ranks' numbers in the world."""
        return wrap(self._ranks)

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions."""
        return self._ranks.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._ranks.ndim

    def size(self, mesh_dim: int | None = None) -> int:
        """The number of ranks, in all or along a dimension."""
        return self._ranks.size if mesh_dim is None else self._ranks.shape[mesh_dim]

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of this rank's line along `mesh_dim`, which may be left out where there is only one."""
        found = self._groups[self._dim("get_group", mesh_dim)]
        if found is None:
            raise RuntimeError(
                f"rank {process_group.get_rank()} is not part of the mesh {self._ranks.tolist()}"
            )
        return found

    def get_all_groups(self) -> list[ProcessGroup]:
        """The groups of this rank's lines, by dimension."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def get_rank(self) -> int:
        """This rank's number in the world."""
        return process_group.get_rank()

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This rank's place along `mesh_dim`."""
        return self.get_group(self._dim("get_local_rank", mesh_dim)).rank()

    def get_coordinate(self) -> list[int] | None:
        """This rank's place in each dimension; None outside the mesh."""
        place = np.argwhere(self._ranks == self.get_rank())
        return place[0].tolist() if len(place) else None

    def __getitem__(self, name: str) -> DeviceMesh:
        """The line of this rank along the dimension `name`, as a mesh of one dimension."""
        dim = self._dim("mesh[...]", name)
        here = self.get_coordinate()
        index = tuple(slice(None) if d == dim else at for d, at in enumerate(here or [0] * self.ndim))
        line = DeviceMesh.__new__(DeviceMesh)
        line.device_type, line.mesh_dim_names = self.device_type, (name,)
        line._ranks, line._groups = self._ranks[index], [self._groups[dim]]
        return line

    def _dim(self, caller: str, mesh_dim: int | str | None) -> int:
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise KeyError(f"Invalid mesh_dim_name {mesh_dim!r}; this mesh has {self.mesh_dim_names}")
            return (self.mesh_dim_names or ()).index(mesh_dim)
        if mesh_dim is None and self.ndim > 1:
            raise RuntimeError(f"{caller}(): say which of the {self.ndim} dimensions, as mesh_dim")
        return mesh_dim or 0

    def __repr__(self) -> str:
        names = f", mesh_dim_names={self.mesh_dim_names}" if self.mesh_dim_names else ""
        return f"DeviceMesh({self.device_type!r}, {self._ranks.tolist()}{names})"


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    **options: Any,
) -> DeviceMesh:
    """The first ranks of the world as a grid of `mesh_shape`, row by row. Every rank calls it."""
    if not process_group.is_initialized():
        process_group.init_process_group()
    size, wanted = process_group.get_world_size(), int(np.prod(mesh_shape))
    if wanted > size:
        raise RuntimeError(
            f"Mesh should not be bigger than default world size {size}, but found {wanted} ranks in the shape "
            f"{tuple(mesh_shape)}"
        )
    return DeviceMesh(
        device_type, np.arange(wanted).reshape(tuple(mesh_shape)), mesh_dim_names=mesh_dim_names
    )

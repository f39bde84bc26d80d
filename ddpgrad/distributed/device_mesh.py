"""Ranks arranged in a grid, with a process group for each row, column and so on.

Source of names: https://pytorch.org/docs/stable/distributed.html#devicemesh. Data-parallel programs use
one dimension, or two: replicas within a host and between hosts.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import cached_property
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

    _root: DeviceMesh | None = None  # of which this one is a part
    _along: tuple[tuple[int, ...], ...] | None = (
        None  # the root's dimensions that each of this one's goes over
    )

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
                f"mesh_shape and mesh_dim_names should have same length! Found len(mesh_dim_names): {len(self.mesh_dim_names)} and "
                f"len(mesh_shape):{self.ndim}."
            )
        if self.mesh_dim_names and len(set(self.mesh_dim_names)) < len(self.mesh_dim_names):
            raise RuntimeError(
                f"Each mesh_dim_name must be unique. Found repeated mesh_dim_name in mesh_dim_names {self.mesh_dim_names}"
            )
        if len(np.unique(self._ranks)) != self._ranks.size:
            raise RuntimeError(f"a mesh has each rank once, got {self._ranks.tolist()}")
        self._parts: dict[int, Any] = {}
        self._groups: list[ProcessGroup | None] = [
            _line(np.moveaxis(self._ranks, dim, -1).reshape(-1, length))
            for dim, length in enumerate(self.shape)
        ]

    @classmethod
    def from_group(
        cls,
        group: ProcessGroup | Sequence[ProcessGroup],
        device_type: str,
        mesh: Any = None,
        *,
        mesh_dim_names: Sequence[str] | None = None,
        **options: Any,
    ) -> DeviceMesh:
        """The mesh of one dimension that `group` is, or of several: this rank's groups along them. Not collective.

        mesh: the numbers of all ranks; it may be left out where there is one dimension.
        """
        groups = [group] if isinstance(group, ProcessGroup) else list(group)
        if mesh is None and not isinstance(group, ProcessGroup):
            raise ValueError("Must pass mesh if passing multiple ProcessGroups")
        ranks = np.asarray(groups[0].ranks if mesh is None else mesh, np.int64)
        if ranks.ndim != len(groups) or (mesh_dim_names and len(mesh_dim_names) != ranks.ndim):
            raise ValueError(
                f"DeviceMesh.from_group: one group, and one name, for each of the {ranks.ndim} dimensions; got {len(groups)} "
                f"groups and mesh_dim_names={mesh_dim_names}"
            )
        made = _mesh(cls, device_type, ranks, groups, mesh_dim_names)
        here = made.get_coordinate()
        for dim, one in enumerate(groups):
            index: Any = None if here is None else (*here[:dim], slice(None), *here[dim + 1 :])
            if index is None or sorted(ranks[index].tolist()) != sorted(one.ranks):
                raise ValueError(
                    f"DeviceMesh.from_group: the group along dimension {dim} has the ranks {list(one.ranks)}, which are not the line "
                    f"of rank {made.get_rank()} in {ranks.tolist()}"
                )
        return made

    @cached_property
    def ascends(self) -> bool:
        """Whether the ranks ascend along each dimension, as they do in the groups, where there are several."""
        return self.ndim < 2 or all((np.diff(self._ranks, axis=d) > 0).all() for d in range(self.ndim))

    @cached_property
    def layouts(self) -> dict[Any, Any]:
        """How tensors lie on it, by placements and shape (`tensor/layout.py`)."""
        return {}

    @property
    def mesh(self) -> Tensor:
        """The ranks' numbers in the world."""
        return wrap(self._ranks.astype(np.int32))

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

    def get_coordinate(self) -> tuple[int, ...] | None:
        """This rank's place in each dimension; None outside the mesh."""
        place = np.argwhere(self._ranks == self.get_rank())
        return tuple(place[0].tolist()) if len(place) else None

    def __getitem__(self, name: str | Sequence[str]) -> DeviceMesh:
        """The part of this rank along the dimension `name`, or along several; `_flatten` gives names to several as one."""
        if not self.mesh_dim_names:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        names = (name,) if isinstance(name, str) else tuple(name)
        root, flat, own = self._get_root_mesh(), self._get_root_mesh().flats, self._dims_of_root()
        along, groups = [], []
        for one in names:
            if one not in self.mesh_dim_names and one not in flat:
                known = [*self.mesh_dim_names, *flat]
                raise KeyError(f"Invalid mesh_dim_name {one!r} specified. Valid mesh_dim_names are {known}.")
            place = self.mesh_dim_names.index(one) if one in self.mesh_dim_names else None
            along.append(flat[one][0] if place is None else own[place])
            groups.append(flat[one][1] if place is None else self._groups[place])
        dims = [d for part in along for d in part]
        if len(set(dims)) < len(dims):
            raise RuntimeError(f"Slicing overlapping dim_names {names} is not allowed.")
        if dims != sorted(dims):
            raise KeyError(
                f"Invalid mesh_dim_names {names} specified. Mesh dim indices should be in ascending order."
            )
        here = root.get_coordinate() or (0,) * root.ndim
        ranks = root._ranks[tuple([slice(None) if d in dims else at for d, at in enumerate(here)])]
        shape = [math.prod(root.shape[d] for d in part) for part in along]
        return _mesh(DeviceMesh, self.device_type, ranks.reshape(shape), groups, names, root, along)

    @cached_property
    def flats(self) -> dict[str, tuple[tuple[int, ...], ProcessGroup | None]]:
        """By names that `_flatten` gave in this mesh, as the root: its dimensions that are one, and their group."""
        return {}

    def _get_root_mesh(self) -> DeviceMesh:
        """The mesh that this one is a part of, or itself."""
        return self._root or self

    def _dims_of_root(self) -> tuple[tuple[int, ...], ...]:
        return tuple([(d,) for d in range(self.ndim)]) if self._along is None else self._along

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """The same ranks along one dimension, by whose name the root has it, too. All of them call it, the first time together.

        ValueError where the root has that name for other ranks.
        """
        if self.ndim == 1:
            return self
        root, along = self._get_root_mesh(), tuple([d for part in self._dims_of_root() for d in part])
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ())
        if name in (root.mesh_dim_names or ()) or root.flats.get(name, (along,))[0] != along:
            raise ValueError(
                f"'{name}' already exists for a submesh of {root}: give the flattened mesh another name"
            )
        group = next((group for dims, group in root.flats.values() if dims == along), None)
        if group is None:
            group = _line(self._ranks.reshape(1, -1), use_local_synchronization=True)
        root.flats[name] = along, group
        return _mesh(
            DeviceMesh, self.device_type, self._ranks.reshape(-1), [group], name and (name,), root, [along]
        )

    def _is_beside(self, other: DeviceMesh) -> bool:
        """Whether both are parts of one mesh, along different dimensions of it."""
        own = {d for part in self._dims_of_root() for d in part}
        apart = own.isdisjoint(d for part in other._dims_of_root() for d in part)
        return apart and self._get_root_mesh() == other._get_root_mesh()

    @staticmethod
    def _concatenate(meshes: Sequence[DeviceMesh]) -> DeviceMesh:
        """The mesh that has the dimensions of all `meshes`, one after another."""
        if not all(mesh._is_beside(other) for n, mesh in enumerate(meshes) for other in meshes[:n]):
            raise RuntimeError(
                f"Cannot concatenate DeviceMeshes that are not different dimensions of one mesh: {list(meshes)}"
            )
        root = meshes[0]._get_root_mesh()
        along = [part for mesh in meshes for part in mesh._dims_of_root()]
        dims = [d for part in along for d in part]
        here = root.get_coordinate() or (0,) * root.ndim
        ranks = root._ranks[tuple([slice(None) if d in dims else at for d, at in enumerate(here)])]
        kept = sorted(dims)
        ranks = ranks.transpose([kept.index(d) for d in dims])
        shape = [math.prod(root.shape[d] for d in part) for part in along]
        named = all(mesh.mesh_dim_names for mesh in meshes)
        names = [name for mesh in meshes for name in mesh.mesh_dim_names or ()] if named else None
        groups = [group for mesh in meshes for group in mesh._groups]
        return _mesh(DeviceMesh, meshes[0].device_type, ranks.reshape(shape), groups, names, root, along)

    def _unflatten(
        self, dim: int | str, mesh_sizes: Sequence[int], mesh_dim_names: Sequence[str], **options: Any
    ) -> DeviceMesh:
        """The same ranks with `dim` as several dimensions of these lengths and names. All of them call it."""
        place = self._dim("_unflatten", dim)
        shape, names = list(self.shape), list(self.mesh_dim_names or [])
        shape[place : place + 1] = mesh_sizes
        names[place : place + 1] = mesh_dim_names
        return DeviceMesh(self.device_type, self._ranks.reshape(shape), mesh_dim_names=names)

    def _divided(self, size: int) -> ProcessGroup:
        """This rank's group of `size` neighbours along the last dimension. All ranks call it, the first time together."""
        if size not in self._parts:
            lines = self._ranks.reshape(-1, size)
            self._parts[size] = _line(lines, use_local_synchronization=True)
        return self._parts[size]

    def _with_one(self) -> DeviceMesh:
        """The same ranks with a last dimension of one rank. All of them call it, the first time together."""
        groups, along = [*self._groups, self._divided(1)], [*self._dims_of_root(), ()]
        return _mesh(
            DeviceMesh, self.device_type, self._ranks[..., None], groups, None, self._get_root_mesh(), along
        )

    def __eq__(self, other: object) -> bool:
        """Whether `other` has the same ranks in the same places, by the same names."""
        return (
            isinstance(other, DeviceMesh)
            and np.array_equal(self._ranks, other._ranks)
            and (self.device_type, self.mesh_dim_names) == (other.device_type, other.mesh_dim_names)
        )

    def __hash__(self) -> int:
        return hash((self._ranks.tobytes(), self.shape, self.device_type, self.mesh_dim_names))

    def _dim(self, caller: str, mesh_dim: int | str | None) -> int:
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise KeyError(
                    f"Mesh dimension '{mesh_dim}' does not exist. Available mesh dimensions are: "
                    f"mesh_dim_names={self.mesh_dim_names}"
                )
            return (self.mesh_dim_names or ()).index(mesh_dim)
        if mesh_dim is None and self.ndim > 1:
            raise RuntimeError(
                f"{caller}(): Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` needs to be specified when "
                "device_mesh.ndim > 1."
            )
        return mesh_dim or 0

    def __enter__(self) -> DeviceMesh:
        """Let it be the mesh of what is made in this block without one."""
        _entered.meshes = (*_entered.meshes, self)
        return self

    def __exit__(self, *error: object) -> None:
        _entered.meshes = _entered.meshes[:-1]

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceMesh:
        return self  # as its groups

    def __reduce__(self) -> Any:
        return mesh_again, (self.device_type, self._ranks.tolist(), self.mesh_dim_names)

    def __repr__(self) -> str:
        names = f", mesh_dim_names={self.mesh_dim_names}" if self.mesh_dim_names else ""
        return f"DeviceMesh({self.device_type!r}, {self._ranks.tolist()}{names})"


class _Entered(threading.local):
    meshes: tuple[DeviceMesh, ...] = ()


_entered = _Entered()


def current_mesh() -> DeviceMesh:
    """The mesh of the innermost `with` block of this thread."""
    if not _entered.meshes:
        raise RuntimeError(
            "No device mesh is currently active! Pass device_mesh=, which init_device_mesh(...) makes"
        )
    return _entered.meshes[-1]


def _line(lines: np.ndarray, **options: Any) -> ProcessGroup | None:
    """The group of that of `lines` in which this rank is; the default group where that is all ranks."""
    if lines.size == lines.shape[1] == process_group.get_world_size():
        return process_group.default_group()
    return process_group.new_subgroups_by_enumeration(lines.tolist(), **options)[0]


def _mesh(
    cls: type[DeviceMesh],
    device_type: str,
    ranks: np.ndarray,
    groups: Sequence[ProcessGroup | None],
    names: Sequence[str] | str | None,
    root: DeviceMesh | None = None,
    along: Sequence[tuple[int, ...]] | None = None,
) -> DeviceMesh:
    """The mesh whose groups are there already."""
    mesh = cls.__new__(cls)
    mesh.device_type, mesh.mesh_dim_names = device_type, tuple(names) if names else None
    mesh._ranks, mesh._groups, mesh._parts = ranks, list(groups), {}
    mesh._root, mesh._along = root, None if along is None else tuple(along)
    return mesh


def mesh_again(device_type: str, ranks: Any, names: Sequence[str] | None) -> DeviceMesh:
    """A mesh that was pickled, with the groups that this rank has along its dimensions. Not collective."""
    made = _mesh(DeviceMesh, device_type, np.asarray(ranks, np.int64), [], names)
    here, known = made.get_coordinate(), process_group.groups.get()
    for dim in range(made.ndim):
        line = None if here is None else made._ranks[(*here[:dim], slice(None), *here[dim + 1 :])]
        found = (
            None
            if line is None
            else next((g for g in known if g.ranks == tuple(sorted(line.tolist()))), None)
        )
        if line is not None and found is None:
            raise RuntimeError(
                f"a DeviceMesh of the ranks {ranks} is loaded, and rank {made.get_rank()} has no process group of {line.tolist()}: make "
                "the mesh before, on all ranks together, by init_device_mesh or DeviceMesh"
            )
        made._groups.append(found)
    return made


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    **options: Any,
) -> DeviceMesh:
    """The first ranks of the world as a grid of `mesh_shape`, row by row. Every rank calls it."""
    if ":" in device_type:
        raise RuntimeError(
            f"Device type with index is not supported but got {device_type}. The device is that of each rank; "
            f"pass {device_type.partition(':')[0]!r}"
        )
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

"""How a tensor lies on the ranks of a mesh: placements, and the raw array of one rank's rows.

Source of names: https://pytorch.org/docs/stable/distributed.tensor.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ...backend.device import CPU
from ...backend.registry import Backend, Kernel, add_backend, backend_of
from ..communicator.communicator import Communicator
from ..device_mesh import DeviceMesh


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

    def whole(self, part: np.ndarray, label: str) -> np.ndarray:
        """All rows, of which this rank has `part`. Collective."""
        if not self.is_shard:
            return np.array(part)
        sent = np.zeros((self.chunk, *self.shape[1:]), part.dtype)
        sent[: len(part)] = part
        rows, work = self.communicator.start_all_gather(sent, label, background=False)
        work.wait()
        return rows.reshape(-1, *self.shape[1:])[: self.shape[0]]


WHY_NOT = (
    "not defined for a DTensor, of which this rank has a part only: call full_tensor(), on all ranks together, or to_local() "
    "for this rank's part. Under fully_shard call the module that was sharded: its forward() and its parts have no whole "
    "parameters by themselves"
)


class ShardArray(np.ndarray):
    """The rows of one rank: an array for the kernels of optimizers, and for no others (see `_KERNELS`).

    Written to as a whole (`a[...] = value`) it takes its rows of a value that has all of them.
    """

    layout: Layout | None = None

    def __array_ufunc__(self, function: Any, *args: Any, **options: Any) -> Any:
        """NumPy's functions do not know that there are more rows: where a kernel's first argument is an ordinary array."""
        raise NotImplementedError(f"{function.__name__}: {WHY_NOT}")

    def __array_function__(self, function: Any, *args: Any, **options: Any) -> Any:
        raise NotImplementedError(f"{function.__name__}: {WHY_NOT}")

    def __setitem__(self, index: Any, value: Any) -> None:
        layout = self.layout
        if layout is not None:
            if index is not Ellipsis and index != (Ellipsis,):
                raise NotImplementedError(f"writing by index: {WHY_NOT}")
            if getattr(value, "shape", None) == layout.shape and not isinstance(value, ShardArray):
                value = value[layout.rows()]
        super().__setitem__(index, value)

    def placed_at(self, memory: np.ndarray) -> ShardArray:
        """`memory`, which has this shape, in the place of this array."""
        return placed(memory, self.layout)

    def plain(self) -> np.ndarray:
        """The same memory as an ordinary array."""
        return self.view(np.ndarray)


def placed(array: np.ndarray, layout: Layout | None) -> ShardArray:
    """`array` as this rank's part of a tensor that lies as `layout` says. Memory is shared."""
    part = array.view(ShardArray)
    part.layout = layout
    return part


def _plain(value: Any) -> Any:
    if isinstance(value, ShardArray):
        return value.plain()
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _on_parts(name: str) -> Kernel:
    """The CPU's kernel of that name, which treats every element by itself, on this rank's part."""

    def kernel(*args: Any, **options: Any) -> Any:
        return getattr(backend_of("cpu"), name)(*[_plain(value) for value in args], **options)

    return kernel


def _new_zeros(like: ShardArray, shape: Sequence[int]) -> ShardArray:
    return placed(np.zeros(shape, like.dtype), like.layout if tuple(shape) == like.shape else None)


def _sums_of_squares(arrays: Sequence[ShardArray]) -> float:
    """The sum of those of `arrays`, in their order. Collective.

    Each is found in the order of the whole tensor, so that it has the bits that one rank finds for that. One rank gets the
    rows of all ranks for it, and so each rank an equal share of what would else be gathered by all.
    """
    found = np.zeros(len(arrays))
    meshes: dict[Any, list[int]] = {}
    for i, x in enumerate(arrays):
        assert x.layout is not None
        if x.layout.is_shard:
            meshes.setdefault((x.layout.communicator, x.dtype), []).append(i)
        else:
            found[i] = backend_of("cpu").sum_of_squares(x.plain())
    for (communicator, _), indices in meshes.items():
        mine, together, size = np.zeros(len(arrays)), [], 0
        for i in indices:
            together.append(i)
            size += arrays[i].layout.part_size  # type: ignore[union-attr]
            if size > _TOGETHER or i == indices[-1]:
                for place, square in _own_squares(communicator, [arrays[j] for j in together]).items():
                    mine[together[place]] = square
                together, size = [], 0
        communicator.all_reduce(mine, "sum", "squares of gradients")  # of zeros and one number each
        found += mine
    return sum(found.tolist(), 0.0)


_TOGETHER = 1 << 22
"""Elements of a rank that are sent at once for the sake of norms."""


def _own_squares(communicator: Communicator, arrays: Sequence[ShardArray]) -> dict[int, float]:
    """The sums of squares of those tensors that fall to this rank, by place in `arrays`. Collective."""
    layouts: list[Layout] = [x.layout for x in arrays]  # type: ignore[misc]
    sizes = [layout.part_size for layout in layouts]
    load = [0] * communicator.size
    dealt: list[list[int]] = [[] for _ in load]
    for place, size in enumerate(sizes):
        rank = load.index(min(load))
        load[rank] += size
        dealt[rank].append(place)
    sent, at = np.zeros(sum(sizes), arrays[0].dtype), 0
    for place in (place for places in dealt for place in places):
        sent[at : at + arrays[place].size] = arrays[place].plain().reshape(-1)
        at += sizes[place]
    parts, at, found = communicator.all_to_all(sent, load), 0, {}
    for place in dealt[communicator.rank]:
        whole = np.concatenate([part[at : at + sizes[place]] for part in parts])
        found[place] = backend_of("cpu").sum_of_squares(whole[: prod(layouts[place].shape)])
        at += sizes[place]
    return found


def _unscale_(arrays: Sequence[ShardArray], factor: Any) -> np.ndarray:
    """Whether an element of any rank's part of `arrays` is not finite. Collective."""
    meshes: dict[Any, list[np.ndarray]] = {}
    for x in arrays:
        assert x.layout is not None
        meshes.setdefault(x.layout.communicator, []).append(x.plain())
    bad = np.zeros(1, np.uint8)
    for communicator, parts in meshes.items():
        bad |= np.uint8(backend_of("cpu").unscale_(parts, factor))
        communicator.all_reduce(bad, "max", "whether gradients are finite")
    return bad.reshape(()) != 0


_KERNELS: dict[str, Callable[..., Any]] = {
    "asarray": _on_parts("asarray"),
    "contiguous": lambda x: x if x.flags.c_contiguous else placed(np.ascontiguousarray(x.plain()), x.layout),
    "new_zeros": _new_zeros,
    "scale_": _on_parts("scale_"),
    "sum_of_squares": lambda x: _sums_of_squares([x]),
    "sums_of_squares": _sums_of_squares,
    "unscale_": _unscale_,
    "update_": _on_parts("update_"),
}


class PartialBackend(Backend):
    """A class of arrays with these kernels; all others are errors that say `why`."""

    def __init__(self, array_type: type, kernels: Mapping[str, Kernel], why: str) -> None:
        super().__init__("cpu", array_type, kernels, {}, lambda array: CPU)
        self._why = why

    def find(self, name: str) -> Kernel:
        def refuse(*args: Any, **options: Any) -> Any:
            raise NotImplementedError(f"{name}: {self._why}")

        return self._elementary.get(name, refuse)


add_backend(
    PartialBackend(
        ShardArray,
        _KERNELS,
        WHY_NOT,
    )
)

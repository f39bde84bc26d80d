"""`ddpgrad.distributed` as PyTorch users call it: process groups and collectives on Tensors.

Source of names and arguments: https://pytorch.org/docs/stable/distributed.html. The group is
local to a rank (see `rank_local`), so that several ranks of one process have one each.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from .._tensor import Tensor
from ..backend import device as devices
from ..backend.registry import backend_for, to_device
from ..errors import LaunchError
from ..rank_local import RankLocal
from . import world
from .communicator import Communicator
from .communicator import Work as ArrayWork

# PyTorch's names for what carries collectives, and ours for the same purpose.
_BACKENDS = {None: None, "gloo": None, "virtual": "virtual", "shm": "shm", "mpi": "mpi", "nccl": None}


class ReduceOp:
    """How an all-reduce combines the ranks' elements."""

    SUM, AVG, PRODUCT, MIN, MAX = "sum", "avg", "product", "min", "max"
    BAND, BOR, BXOR = "band", "bor", "bxor"


class ProcessGroup:
    """The ranks that take part in collectives; `communicator` carries them."""

    def __init__(self, communicator: Communicator, local_rank: int) -> None:
        self.communicator = communicator
        self.local_rank = local_rank

    def rank(self) -> int:
        return self.communicator.rank

    def size(self) -> int:
        return self.communicator.size

    def __repr__(self) -> str:
        c = self.communicator
        return f"ProcessGroup(rank={c.rank}, size={c.size}, transport={c.transport!r})"


_default: RankLocal[list[ProcessGroup]] = RankLocal(list)


def is_available() -> bool:
    """True: every installation can communicate."""
    return True


def is_initialized() -> bool:
    """True when this rank has called `init_process_group`."""
    return bool(_default.get())


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    **options: Any,
) -> None:
    """Meet the other ranks. Who they are is what ddprun, mpirun or Slurm said; alone, one rank.

    backend: None chooses: threads in this process, shared memory on one host, MPI between
    hosts; 'virtual', 'shm' and 'mpi' insist. 'gloo' and 'nccl' are accepted as None: this
    version reduces GPU gradients through host memory. timeout: seconds (or a timedelta) that
    a collective may wait. world_size, rank: only checked against the launcher's.
    """
    if is_initialized():
        raise ValueError("trying to initialize the default process group twice!")
    name = backend.partition(":")[0].lower() if backend else None
    if name not in _BACKENDS:
        known = ", ".join(str(b) for b in _BACKENDS if b)
        raise ValueError(f"init_process_group: unknown backend {backend!r}; expected one of {known}, or None")
    member = world.current()
    for what, given, actual in (("world_size", world_size, member.world_size), ("rank", rank, member.rank)):
        if given not in (-1, actual):
            raise LaunchError(
                f"init_process_group({what}={given}): the launcher says {what} {actual}. Start the ranks with "
                f"`ddprun -n {world_size if world_size > 0 else 'N'} script.py` or mpirun, and leave {what} out."
            )
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    communicator = member.communicator(_BACKENDS[name], seconds)
    devices.set_local_rank(member.local_rank)
    _default.get().append(ProcessGroup(communicator, member.local_rank))


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Leave the group; `init_process_group` may be called again."""
    _group(group).communicator.close()
    _default.get().clear()


def default_group() -> ProcessGroup:
    """This rank's group; `ValueError` before `init_process_group`."""
    groups = _default.get()
    if not groups:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call init_process_group."
        )
    return groups[0]


def _group(group: ProcessGroup | None) -> ProcessGroup:
    return default_group() if group is None else group


def get_rank(group: ProcessGroup | None = None) -> int:
    """This rank's number in the group."""
    return _group(group).rank()


def get_world_size(group: ProcessGroup | None = None) -> int:
    """The number of ranks in the group."""
    return _group(group).size()


def get_local_rank(group: ProcessGroup | None = None) -> int:
    """This rank's index among those on its host."""
    return _group(group).local_rank


def get_backend(group: ProcessGroup | None = None) -> str:
    """The transport in use: 'virtual', 'shm' or 'mpi'."""
    return _group(group).communicator.transport


class Work:
    """A collective under way on a Tensor; `wait()` before using the tensor."""

    def __init__(self, work: ArrayWork, tensor: Tensor, host: np.ndarray) -> None:
        self._work = work
        self._tensor = tensor
        self._host = host
        self._done = False

    def wait(self) -> bool:
        """Return when the result is in the tensor."""
        self._work.wait()
        self._finish()
        return True

    def is_completed(self) -> bool:
        """True when the result is in the tensor; does not wait."""
        if not self._done and self._work.poll():
            self._finish()
        return self._done

    def _finish(self) -> None:
        if not self._done:
            self._done = True
            give_back(self._tensor, self._host)


def on_host(tensor: Tensor) -> np.ndarray:
    """The tensor's array where transports can read it: itself on a CPU, else a copy."""
    backend = backend_for(tensor._array)
    return tensor._array if backend.kind == "cpu" else backend.to_host(tensor._array)


def give_back(tensor: Tensor, host: np.ndarray) -> None:
    """Put what a collective left in `host` into the tensor."""
    if host is not tensor._array:
        tensor._array[...] = to_device(host, tensor.device)
    tensor._versions[0] += 1


def _check(name: str, tensor: Any) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}(): expected a Tensor, got {type(tensor).__name__}")
    return tensor


def _in_place(name: str, tensor: Tensor, async_op: bool, start: Any) -> Work | None:
    host = on_host(_check(name, tensor))
    work = start(host)
    if async_op:
        return Work(work, tensor, host)
    work.wait()
    give_back(tensor, host)
    return None


def all_reduce(
    tensor: Tensor,
    op: str = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    label: str = "",
) -> Work | None:
    """Combine `tensor` over all ranks, in place, in a fixed order. label: a name for error messages."""
    c = _group(group).communicator
    return _in_place("all_reduce", tensor, async_op, lambda a: c.all_reduce(a, op, label, True))


def broadcast(
    tensor: Tensor, src: int = 0, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Overwrite `tensor` on every rank with that of rank `src`."""
    c = _group(group).communicator
    return _in_place("broadcast", tensor, async_op, lambda a: c.broadcast(a, src, "", True))


def reduce(tensor: Tensor, dst: int = 0, op: str = ReduceOp.SUM, group: ProcessGroup | None = None) -> None:
    """Combine `tensor` over all ranks into that of rank `dst`; the others keep theirs."""
    c = _group(group).communicator
    mine = on_host(_check("reduce", tensor))
    total = mine.copy()
    c.all_reduce(total, op)
    if c.rank == dst:
        mine[...] = total
        give_back(tensor, mine)


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: ProcessGroup | None = None) -> None:
    """Fill `tensor_list` with the tensors of all ranks, by rank."""
    c = _group(group).communicator
    if len(tensor_list) != c.size:
        raise ValueError(
            f"all_gather(): tensor_list must have {c.size} tensors, one a rank, got {len(tensor_list)}"
        )
    for out, row in zip(tensor_list, c.all_gather(on_host(_check("all_gather", tensor))), strict=True):
        _store("all_gather", out, row)


def _store(name: str, out: Tensor, row: np.ndarray) -> None:
    if out._array.shape != row.shape or out._array.dtype != row.dtype:
        raise ValueError(
            f"{name}(): an output has shape {list(out.shape)} and dtype {out.dtype.name}, but a rank sent shape "
            f"{list(row.shape)} of {row.dtype}"
        )
    out._array[...] = to_device(row, out.device)
    out._versions[0] += 1


def all_gather_into_tensor(output: Tensor, tensor: Tensor, group: ProcessGroup | None = None) -> None:
    """Fill `output` with the tensors of all ranks, one after the other along the first dimension."""
    rows = _group(group).communicator.all_gather(on_host(_check("all_gather_into_tensor", tensor)))
    _store("all_gather_into_tensor", output, np.concatenate(rows).reshape(output._array.shape))


def gather(
    tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int = 0, group: ProcessGroup | None = None
) -> None:
    """Fill `gather_list` on rank `dst` with the tensors of all ranks."""
    c = _group(group).communicator
    rows = c.gather(on_host(_check("gather", tensor)), dst)
    if rows is not None:
        if gather_list is None or len(gather_list) != c.size:
            raise ValueError(f"gather(): rank {dst} must pass gather_list with {c.size} tensors")
        for out, row in zip(gather_list, rows, strict=True):
            _store("gather", out, row)


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int = 0,
    group: ProcessGroup | None = None,
) -> None:
    """Overwrite `tensor` with this rank's tensor of rank `src`'s `scatter_list`."""
    c = _group(group).communicator
    mine = on_host(_check("scatter", tensor))
    c.scatter(mine, None if scatter_list is None else [on_host(t) for t in scatter_list], src)
    give_back(tensor, mine)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: str = ReduceOp.SUM, group: ProcessGroup | None = None
) -> None:
    """This rank's part, along the first dimension, of `input` combined over all ranks."""
    part = _group(group).communicator.reduce_scatter(on_host(_check("reduce_scatter_tensor", input)), op)
    _store("reduce_scatter_tensor", output, part.reshape(output._array.shape))


def all_gather_object(object_list: list[Any], obj: Any, group: ProcessGroup | None = None) -> None:
    """Fill `object_list` with the plain data (numbers, strings, lists, dicts, bytes) of all ranks."""
    object_list[:] = _group(group).communicator.all_gather_object(obj)


def broadcast_object_list(object_list: list[Any], src: int = 0, group: ProcessGroup | None = None) -> None:
    """Overwrite the plain data in `object_list` with that of rank `src`."""
    c = _group(group).communicator
    object_list[:] = c.broadcast_object(list(object_list) if c.rank == src else None, src)


def barrier(group: ProcessGroup | None = None) -> None:
    """Return when all ranks have called."""
    _group(group).communicator.barrier()

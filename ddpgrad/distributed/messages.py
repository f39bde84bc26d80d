"""Messages from one rank to another, and objects instead of Tensors, with PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor, wrap
from .communicator.gathered import gather_objects
from .objects import pack, unpack
from .process_group import ProcessGroup, get_rank, resolve
from .protocol import plain_data
from .tensor_work import Work, collective, give_back, host_of, root_of


@collective("tensor")
def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work:
    """Begin to send `tensor` to rank `dst` of the world; it may be changed after the work's `wait`."""
    g = resolve(group)
    if dst is None and group_dst is None:
        raise ValueError("isend(): say to which rank, as dst or group_dst")
    work = g.communicator.send(host_of("isend", tensor), root_of(g, "isend", dst, group_dst), tag)
    return Work(work, lambda: None, [tensor])


@collective("tensor")
def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work:
    """Begin to receive into `tensor` from rank `src` of the world, or from any."""
    g = resolve(group)
    anyone = src is None and group_src is None
    host = host_of("irecv", tensor)
    work, message = g.communicator.recv(host, None if anyone else root_of(g, "irecv", src, group_src), tag)
    return Work(work, lambda: give_back(tensor, host), [tensor], lambda: g.ranks[message.source])


@collective("")
def send(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send `tensor` to rank `dst`. A tensor of up to 64 KiB is copied; for a larger one `dst` must receive."""
    isend(tensor, dst, resolve(group), tag, group_dst).wait()


@collective("", -1)
def recv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive into `tensor` from rank `src`, or from any; returns the rank that it came from."""
    return irecv(tensor, src, resolve(group), tag, group_src).source_rank()


class P2POp:
    """One send or receive of `batch_isend_irecv`. op: `isend` or `irecv`; peer: a rank of the world."""

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Tensor,
        peer: int | None = None,
        group: ProcessGroup | None = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``."
            )
        g = resolve(group)
        if peer is None and group_peer is None:
            raise ValueError("P2POp(): say with which rank, as peer or group_peer")
        self.op, self.tensor, self.group, self.tag = op, tensor, group, tag
        self.peer = g.ranks[group_peer] if peer is None and group_peer is not None else peer
        self.group_peer = g.ranks.index(self.peer) if self.peer in g.ranks else group_peer

    def __repr__(self) -> str:
        ends = (self.group_peer, get_rank(self.group))
        source, target = ends if self.op is irecv else ends[::-1]
        return (
            f"P2POp({self.op.__name__}, group_src={source}, group_dst={target}, {list(self.tensor.shape)}, "
            f"{self.tensor.dtype})"
        )


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Begin all sends and receives of the list; wait for each of the works."""
    if (
        not isinstance(p2p_op_list, list)
        or not all(isinstance(p, P2POp) for p in p2p_op_list)
        or not p2p_op_list
    ):
        raise ValueError(
            "Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``. It must be a list "
            "of at least one."
        )
    if any(p.group is not p2p_op_list[0].group for p in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    works = [p.op(p.tensor, p.peer, p.group, p.tag) for p in p2p_op_list]
    return [work for work in works if work is not None]


@collective("")
def all_gather_object(object_list: list[Any], obj: Any, group: ProcessGroup | None = None) -> None:
    """Fill `object_list` with the objects of all ranks: numbers, texts, bytes, lists, tuples, dicts, sets, arrays, Tensors.

    Other objects only after `allow_pickle`; else TypeError. The same holds for the functions below.
    """
    c = resolve(group).communicator
    if len(object_list) < c.size:
        raise IndexError(
            f"all_gather_object(): object_list must have room for {c.size} objects, got {len(object_list)}"
        )
    object_list[: c.size] = map(unpack, c.all_gather_object(pack(obj)))


@collective("")
def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    group_dst: int | None = None,
) -> None:
    """Fill `object_gather_list` on rank `dst` with the objects of all ranks."""
    g = resolve(group)
    root = root_of(g, "gather_object", dst, group_dst)
    if g.rank() == root and object_gather_list is None:
        raise ValueError(f"gather_object(): rank {root}, which receives, must pass object_gather_list")
    everyone = gather_objects(g.communicator, pack(obj), root)
    if everyone is not None and object_gather_list is not None:
        object_gather_list[:] = map(unpack, everyone)


@collective("")
def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Overwrite the objects in `object_list`, which has as many on all ranks, with those of rank `src`."""
    g = resolve(group)
    root = root_of(g, "broadcast_object_list", src, group_src)
    mine = pack(list(object_list)) if g.rank() == root else None
    what = f"{len(object_list)} objects"
    object_list[:] = unpack(g.communicator.broadcast_object(mine, root, what))


@collective("")
def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    group_src: int | None = None,
) -> None:
    """The first entry of the output list becomes this rank's entry of rank `src`'s input list."""
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError(
            "Expected argument scatter_object_output_list to be a list of size at least 1. "
            "Its first entry is replaced by this rank's object."
        )
    g = resolve(group)
    root = root_of(g, "scatter_object_list", src, group_src)
    mine = g.rank() == root
    if mine and (scatter_object_input_list is None or len(scatter_object_input_list) != g.size()):
        raise ValueError(f"scatter_object_list(): rank {root} must pass a list of {g.size()} objects")
    packed = [pack(obj) for obj in scatter_object_input_list or ()] if mine else None
    everyone = g.communicator.broadcast_object(packed, root)
    scatter_object_output_list[0] = unpack(everyone[g.rank()])


@collective("")
def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: ProcessGroup | None = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send the objects in `object_list` to rank `dst`, which calls `recv_object_list` with a list as long."""
    group = resolve(group)
    data = np.frombuffer(plain_data.encode(pack(list(object_list))), np.uint8).copy()
    send(wrap(np.array([data.size, len(object_list)])), dst, group, group_dst=group_dst)
    send(wrap(data), dst, group, group_dst=group_dst)


@collective("", -1)
def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Overwrite `object_list` with the objects that rank `src`, or any, sent; returns the rank it came from."""
    group = resolve(group)
    sizes = wrap(np.empty(2, np.int64))
    source = recv(sizes, src, group, group_src=group_src)
    size, count = sizes.tolist()
    if count != len(object_list):
        raise ValueError(
            f"recv_object_list(): rank {source} sent {count} objects for a list of {len(object_list)}"
        )
    data = np.empty(size, np.uint8)
    recv(wrap(data), source, group)
    object_list[:] = unpack(plain_data.decode(data.tobytes()))
    return source

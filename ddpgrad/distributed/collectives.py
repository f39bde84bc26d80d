"""The collectives of `ddpgrad.distributed` on Tensors, with PyTorch's names and arguments.

Source: https://pytorch.org/docs/stable/distributed.html. `src` and `dst` are ranks of the
world also when `group` is smaller; `group_src` and `group_dst` are ranks of the group. With
`async_op` a `Work` is returned, and the result is there after its `wait`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np

from ..backend.registry import SparseArray
from ..core.tensor import Tensor
from .communicator.communicator import ArrayWork, Communicator
from .process_group import ProcessGroup, resolve
from .reduce_op import PremulSum, ReduceOp
from .tensor_work import (
    Several,
    Work,
    collective,
    give_back,
    host_of,
    listed,
    one_dtype,
    room_in,
    root_of,
    run,
    store,
    sum_sparse,
)


@collective("tensor")
def all_reduce(
    tensor: Tensor,
    op: Any = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    label: str = "",
) -> Work | None:
    """Combine `tensor`, which may be sparse, over all ranks, in place, in a fixed order. label: for error messages."""
    c = resolve(group).communicator
    if isinstance(getattr(tensor, "_array", None), SparseArray):
        return sum_sparse(tensor, op, c, async_op, label)
    host = host_of("all_reduce", tensor, c)
    plain = op.plain if type(op) is ReduceOp else _prepared(host, op)
    work = c.all_reduce(host, plain, label, async_op)
    if async_op:
        return run(work, lambda: give_back(tensor, host), [tensor], True)
    return give_back(tensor, host)


def _prepared(host: np.ndarray, op: Any) -> str:
    """The plain reduction that is left after `op` has changed this rank's part."""
    if type(op) is not ReduceOp:
        if not isinstance(op, PremulSum):
            return ReduceOp(op).plain
        host *= op.factor.numpy(force=True) if isinstance(op.factor, Tensor) else op.factor
        return "sum"
    return op.plain


@collective("tensors")
def all_reduce_coalesced(
    tensors: Sequence[Tensor],
    op: Any = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Combine each of `tensors` over all ranks, in place."""
    c = resolve(group).communicator
    listed("all_reduce_coalesced", "tensors", tensors)
    one_dtype("all_reduce_coalesced", *tensors, pairs=True)
    hosts = [host_of("all_reduce_coalesced", t, c) for t in tensors]
    works = [c.all_reduce(h, _prepared(h, op), f"tensor {i}", True) for i, h in enumerate(hosts)]

    def finish() -> None:
        for t, host in zip(tensors, hosts, strict=True):
            give_back(t, host)

    return run(Several(works), finish, list(tensors), async_op)


@collective("tensor")
def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Overwrite `tensor` on every rank with that of rank `src`."""
    g = resolve(group)
    c = g.communicator
    host = host_of("broadcast", tensor, c)
    work = c.broadcast(host, root_of(g, "broadcast", src, group_src), "", async_op)
    return run(work, lambda: give_back(tensor, host), [tensor], async_op)


@collective("tensor")
def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Combine `tensor` over all ranks into that of rank `dst`; the others keep theirs."""
    g = resolve(group)
    root = root_of(g, "reduce", dst, group_dst)
    c = g.communicator
    total = host_of("reduce", tensor, c).copy()
    work = c.all_reduce(total, _prepared(total, op), f"reduce to {root}", async_op)

    def finish() -> None:
        if g.rank() == root:
            give_back(tensor, total)

    return run(work, finish, [tensor], async_op)


@collective("tensor")
def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Fill `tensor_list` with the tensors of all ranks, by rank."""
    c = resolve(group).communicator
    listed("all_gather", "tensor_list", tensor_list)
    if len(tensor_list) != c.size:
        raise ValueError(
            f"all_gather(): tensor_list must have {c.size} tensors, one a rank, got {len(tensor_list)}"
        )
    host = host_of("all_gather", tensor, c)
    one_dtype("all_gather", tensor, *tensor_list)
    rows, work = c.start_all_gather(host, "", async_op)

    def finish() -> None:
        for out, row in zip(tensor_list, rows, strict=True):
            store("all_gather", out, row)

    return run(work, finish, tensor_list, async_op)


@collective("input_tensor_list")
def all_gather_coalesced(
    output_tensor_lists: Sequence[list[Tensor]],
    input_tensor_list: Sequence[Tensor],
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Fill `output_tensor_lists[r]` with the inputs of rank r: a list a rank, each as long as `input_tensor_list`."""
    c = resolve(group).communicator
    lengths = [len(outputs) for outputs in output_tensor_lists]
    if lengths != [len(input_tensor_list)] * c.size:
        raise ValueError(
            f"all_gather_coalesced(): {len(input_tensor_list)} inputs on {c.size} ranks need {c.size} output lists of that "
            f"many tensors, got lists of {lengths}"
        )
    outputs = [out for outputs in output_tensor_lists for out in outputs]
    listed("all_gather_coalesced", "input_tensor_list", [*input_tensor_list, *outputs])
    one_dtype("all_gather_coalesced", *input_tensor_list, *outputs)
    begun = [c.start_all_gather(host_of("all_gather_coalesced", t, c)) for t in input_tensor_list]

    def finish() -> None:
        for i, (rows, _) in enumerate(begun):
            for outputs, row in zip(output_tensor_lists, rows, strict=True):
                store("all_gather_coalesced", outputs[i], row)

    return run(Several([work for _, work in begun]), finish, outputs, async_op)


@collective("input_tensor")
def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Fill `output_tensor` with the elements of all ranks, one rank after the other, in whatever shape it has."""
    c = resolve(group).communicator
    host, shape = host_of("all_gather_into_tensor", input_tensor, c), output_tensor._array.shape
    if output_tensor._array.size != c.size * host.size:
        raise ValueError(
            f"all_gather_into_tensor(): the output must have {c.size * host.size} elements for inputs of shape "
            f"{list(host.shape)} from {c.size} ranks, got shape {list(shape)}"
        )
    room = room_in(output_tensor, host)
    rows, work = c.start_all_gather(host, "", async_op, room)
    shaped = rows if room is not None else rows.reshape(shape)
    finish = partial(store, "all_gather_into_tensor", output_tensor, shaped, room is not None)
    return run(work, finish, [output_tensor], async_op)


@collective("tensor")
def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Fill `gather_list` on rank `dst` with the tensors of all ranks."""
    g = resolve(group)
    c, root = g.communicator, root_of(g, "gather", dst, group_dst)
    mine = c.rank == root
    listed("gather", "gather_list", [] if gather_list is None else gather_list)
    if mine and (gather_list is None or len(gather_list) != c.size):
        raise ValueError(f"gather(): rank {root} must pass gather_list with {c.size} tensors")
    if not mine and gather_list:
        raise ValueError(f"gather(): only rank {root}, which receives, may pass gather_list")
    host = host_of("gather", tensor, c)
    one_dtype("gather", tensor, *(gather_list or ()))
    rows, work = c.start_gather(host, root, "", async_op)

    def finish() -> None:
        if mine:
            for out, row in zip(gather_list or (), rows, strict=True):
                store("gather", out, row)

    return run(work, finish, gather_list or [], async_op)


@collective("scatter_list")
def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Overwrite `tensor` with this rank's tensor of rank `src`'s `scatter_list`."""
    g = resolve(group)
    c, root = g.communicator, root_of(g, "scatter", src, group_src)
    host = host_of("scatter", tensor, c)
    listed("scatter", "scatter_list", [] if scatter_list is None else scatter_list)
    if c.rank != root and scatter_list:
        raise ValueError(f"scatter(): only rank {root}, which sends, may pass scatter_list")
    one_dtype("scatter", tensor, *(scatter_list or ()))
    chunks = [host_of("scatter", t, c) for t in scatter_list or ()]
    work = c.start_scatter(host, chunks, root, "", async_op)
    return run(work, lambda: give_back(tensor, host), [tensor], async_op)


@collective("input")
def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: Any = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """This rank's part, along the first dimension, of `input` combined over all ranks."""
    c = resolve(group).communicator
    host = host_of("reduce_scatter_tensor", input, c)
    if host.size != output._array.size * c.size:
        raise ValueError(
            f"reduce_scatter_tensor(): the input must have {c.size} times (once a rank) as many elements as the "
            f"output of shape {list(output.shape)}, got shape {list(input.shape)}"
        )
    room = room_in(output, host)
    part, work = _start_reduce_scatter(c, host, op, async_op, room)
    shaped = part if room is not None else part.reshape(output._array.shape)
    finish = partial(store, "reduce_scatter_tensor", output, shaped, room is not None)
    return run(work, finish, [output], async_op)


def _start_reduce_scatter(
    c: Communicator, host: np.ndarray, op: Any, async_op: bool, room: np.ndarray | None = None
) -> tuple[np.ndarray, ArrayWork]:
    if isinstance(op, PremulSum):
        host = host.copy()
    plain = _prepared(host, op)
    return c.start_reduce_scatter(host.reshape(c.size, -1), plain, "", async_op, room)


@collective("input_list")
def reduce_scatter(
    output: Tensor,
    input_list: Sequence[Tensor],
    op: Any = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """`output` is the sum, over all ranks, of their `input_list[this rank]`; sizes may differ between entries."""
    c = resolve(group).communicator
    listed("reduce_scatter", "input_list", input_list)
    if len(input_list) != c.size:
        raise ValueError(f"reduce_scatter(): input_list must have {c.size} tensors, got {len(input_list)}")
    host_of("reduce_scatter", output, c)
    one_dtype("reduce_scatter", output, *input_list)
    parts = [host_of("reduce_scatter", t, c) for t in input_list]
    total = np.concatenate([part.reshape(-1) for part in parts])
    if len({part.size for part in parts}) == 1:
        part, equal = _start_reduce_scatter(c, total, op, async_op)
        return run(
            equal,
            lambda: store("reduce_scatter", output, part.reshape(parts[c.rank].shape)),
            [output],
            async_op,
        )
    work = c.all_reduce(total, _prepared(total, op), "reduce_scatter", async_op)
    start = sum(part.size for part in parts[: c.rank])

    def finish() -> None:
        mine = parts[c.rank]
        store("reduce_scatter", output, total[start : start + mine.size].reshape(mine.shape))

    return run(work, finish, [output], async_op)


@collective("input")
def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Rows of `input` go to the ranks in turn, `input_split_sizes` to each; `output` gets what they have for this one.

    Without split sizes every rank gets as many rows.
    """
    c = resolve(group).communicator
    array, splits = host_of("all_to_all_single", input, c), input_split_sizes or None
    one_dtype("all_to_all_single", output, input)
    expected = output_split_sizes or None
    if expected and splits is None:  # equal parts on one side only
        splits = [array.shape[0] // c.size] * c.size
    room = room_in(output, array) if splits is None and output._array.shape == array.shape else None
    rows, work = c.start_all_to_all(array, splits, async_op, room)
    got = [len(part) for part in rows]
    if expected and list(expected) != got:
        raise ValueError(
            f"all_to_all_single(): output_split_sizes {list(expected)} on rank {c.rank}, but the ranks sent {got} rows"
        )

    def finish() -> None:
        store("all_to_all_single", output, np.concatenate(rows) if room is None else room, room is not None)

    return run(work, finish, [output], async_op)


@collective("input_tensor_list")
def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: Sequence[Tensor],
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """`output_tensor_list[r]` becomes what rank r has for this one: its `input_tensor_list[this rank]`.

    Shapes may differ, dtypes not.
    """
    c = resolve(group).communicator
    listed("all_to_all", "output_tensor_list", output_tensor_list)
    listed("all_to_all", "input_tensor_list", input_tensor_list)
    one_dtype("all_to_all", *output_tensor_list, *input_tensor_list)
    if len(input_tensor_list) != c.size or len(output_tensor_list) != c.size:
        raise ValueError(
            f"all_to_all(): both lists must have {c.size} tensors, one a rank, got {len(input_tensor_list)} inputs and "
            f"{len(output_tensor_list)} outputs"
        )
    flat = [host_of("all_to_all", t, c).reshape(-1) for t in input_tensor_list]
    rows, work = c.start_all_to_all(np.concatenate(flat), [part.size for part in flat], async_op)
    for rank, (out, row) in enumerate(zip(output_tensor_list, rows, strict=True)):
        if row.size != out.numel():
            raise ValueError(
                f"all_to_all(): output {rank} has shape {list(out.shape)}, but rank {rank} sent {row.size} elements"
            )

    def finish() -> None:
        for out, row in zip(output_tensor_list, rows, strict=True):
            store("all_to_all", out, row.reshape(out._array.shape))

    return run(work, finish, output_tensor_list, async_op)


@collective("device_ids")
def barrier(
    group: ProcessGroup | None = None,
    async_op: bool = False,
    device_ids: Sequence[int] | None = None,
    timeout: timedelta | float | None = None,
) -> Work | None:
    """Return when all ranks have called. timeout: StallError where some have not by then; None for the group's."""
    c = resolve(group).communicator
    if timeout is None and not async_op:
        c.barrier()
        return None
    work = Work(c.start_barrier(), lambda: None, [])
    if async_op:
        return work
    work.wait(timeout)
    return None

"""The collectives of `ddpgrad.distributed` on Tensors, with PyTorch's names and arguments.

Source: https://pytorch.org/docs/stable/distributed.html. `src` and `dst` are ranks of the
world also when `group` is smaller; `group_src` and `group_dst` are ranks of the group. With
`async_op` a `Work` is returned, and the result is there after its `wait`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._tensor import Tensor
from .communicator import Communicator
from .communicator import Work as ArrayWork
from .process_group import ProcessGroup, resolve
from .tensor_work import Work, give_back, host_of, root_of, run, store


class ReduceOp:
    """How a reduction combines the ranks' elements."""

    SUM, AVG, PRODUCT, MIN, MAX = "sum", "avg", "product", "min", "max"
    BAND, BOR, BXOR = "band", "bor", "bxor"
    PREMUL_SUM = "premul_sum"


class PremulSum:
    """The sum of what each rank has, times its own `factor` (a number or a Tensor)."""

    def __init__(self, factor: float | Tensor) -> None:
        self.factor = factor


def make_premul_sum(factor: float | Tensor) -> PremulSum:
    """The reduction that multiplies by `factor` before it sums."""
    return PremulSum(factor)


def all_reduce(
    tensor: Tensor,
    op: Any = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    label: str = "",
) -> Work | None:
    """Combine `tensor` over all ranks, in place, in a fixed order. label: a name for error messages."""
    c = resolve(group).communicator
    host = host_of("all_reduce", tensor)
    work = c.all_reduce(host, _prepared(host, op), label, True)
    return run(work, lambda: give_back(tensor, host), [tensor], async_op)


def _prepared(host: np.ndarray, op: Any) -> str:
    """The plain reduction that is left after `op` has changed this rank's part."""
    if isinstance(op, PremulSum):
        host *= op.factor.numpy(force=True) if isinstance(op.factor, Tensor) else op.factor
        return ReduceOp.SUM
    return op


def all_reduce_coalesced(
    tensors: Sequence[Tensor],
    op: Any = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Combine each of `tensors` over all ranks, in place."""
    works = [all_reduce(t, op, group, True, f"tensor {i}") for i, t in enumerate(tensors)]
    return _all(works, list(tensors), async_op)


class _Several:
    """Works that are waited for together."""

    def __init__(self, works: Sequence[Work | None]) -> None:
        self._works = [work for work in works if work is not None]

    def wait(self) -> None:
        for work in self._works:
            work.wait()

    def poll(self) -> bool:
        return all(work.is_completed() for work in self._works)


def _all(works: Sequence[Work | None], result: list[Tensor], async_op: bool) -> Work | None:
    return run(_Several(works), lambda: None, result, async_op)  # type: ignore[arg-type]


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Overwrite `tensor` on every rank with that of rank `src`."""
    g = resolve(group)
    host = host_of("broadcast", tensor)
    work = g.communicator.broadcast(host, root_of(g, "broadcast", src, group_src), "", True)
    return run(work, lambda: give_back(tensor, host), [tensor], async_op)


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
    total = host_of("reduce", tensor).copy()
    work = g.communicator.all_reduce(total, _prepared(total, op), f"reduce to {root}", True)

    def finish() -> None:
        if g.rank() == root:
            give_back(tensor, total)

    return run(work, finish, [tensor], async_op)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Fill `tensor_list` with the tensors of all ranks, by rank."""
    c = resolve(group).communicator
    if len(tensor_list) != c.size:
        raise ValueError(
            f"all_gather(): tensor_list must have {c.size} tensors, one a rank, got {len(tensor_list)}"
        )
    rows, work = c.start_all_gather(host_of("all_gather", tensor))

    def finish() -> None:
        for out, row in zip(tensor_list, rows, strict=True):
            store("all_gather", out, row)

    return run(work, finish, tensor_list, async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Fill `output_tensor` with the tensors of all ranks: one after the other along the first dimension, or stacked."""
    c = resolve(group).communicator
    host = host_of("all_gather_into_tensor", input_tensor)
    shape = tuple(output_tensor.shape)
    joined = (c.size * host.shape[0], *host.shape[1:]) if host.ndim else (c.size,)
    if shape not in (joined, (c.size, *host.shape)):
        raise ValueError(
            f"all_gather_into_tensor(): the output must have shape {list(joined)} or {[c.size, *host.shape]} for "
            f"inputs of shape {list(host.shape)} from {c.size} ranks, got {list(shape)}"
        )
    rows, work = c.start_all_gather(host)
    return run(
        work,
        lambda: store("all_gather_into_tensor", output_tensor, rows.reshape(shape)),
        [output_tensor],
        async_op,
    )


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
    if mine and (gather_list is None or len(gather_list) != c.size):
        raise ValueError(f"gather(): rank {root} must pass gather_list with {c.size} tensors")
    if not mine and gather_list:
        raise ValueError(f"gather(): only rank {root}, which receives, may pass gather_list")
    rows, work = c.start_all_gather(host_of("gather", tensor), f"gather to {root}")

    def finish() -> None:
        if mine:
            for out, row in zip(gather_list or (), rows, strict=True):
                store("gather", out, row)

    return run(work, finish, gather_list or [], async_op)


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
    host = host_of("scatter", tensor)
    if c.rank != root and scatter_list:
        raise ValueError(f"scatter(): only rank {root}, which sends, may pass scatter_list")
    rows = np.empty((c.size, *host.shape), host.dtype)
    if c.rank == root:
        parts = [host_of("scatter", t) for t in scatter_list or ()]
        shapes = [part.shape for part in parts]
        if shapes != [host.shape] * c.size:
            raise ValueError(
                f"scatter(): rank {root} must pass {c.size} tensors of shape {list(host.shape)}, got "
                f"{[list(shape) for shape in shapes]}"
            )
        np.stack(parts, out=rows)
    work = c.broadcast(rows, root, "scatter", True)

    def finish() -> None:
        host[...] = rows[c.rank]
        give_back(tensor, host)

    return run(work, finish, [tensor], async_op)


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: Any = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """This rank's part, along the first dimension, of `input` combined over all ranks."""
    c = resolve(group).communicator
    host = host_of("reduce_scatter_tensor", input)
    if host.size != output._array.size * c.size:
        raise ValueError(
            f"reduce_scatter_tensor(): the input must have {c.size} times (once a rank) as many elements as the "
            f"output of shape {list(output.shape)}, got shape {list(input.shape)}"
        )
    part, work = _start_reduce_scatter(c, host, op)
    return run(
        work,
        lambda: store("reduce_scatter_tensor", output, part.reshape(output._array.shape)),
        [output],
        async_op,
    )


def _start_reduce_scatter(c: Communicator, host: np.ndarray, op: Any) -> tuple[np.ndarray, ArrayWork]:
    if isinstance(op, PremulSum):
        host = host.copy()
    plain = _prepared(host, op)
    return c.start_reduce_scatter(host.reshape(c.size, -1), plain)


def reduce_scatter(
    output: Tensor,
    input_list: Sequence[Tensor],
    op: Any = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """`output` is the sum, over all ranks, of their `input_list[this rank]`; sizes may differ between entries."""
    c = resolve(group).communicator
    if len(input_list) != c.size:
        raise ValueError(f"reduce_scatter(): input_list must have {c.size} tensors, got {len(input_list)}")
    parts = [host_of("reduce_scatter", t) for t in input_list]
    total = np.concatenate([part.reshape(-1) for part in parts])
    if len({part.size for part in parts}) == 1:
        part, equal = _start_reduce_scatter(c, total, op)
        return run(
            equal,
            lambda: store("reduce_scatter", output, part.reshape(parts[c.rank].shape)),
            [output],
            async_op,
        )
    work = c.all_reduce(total, _prepared(total, op), "reduce_scatter", True)
    start = sum(part.size for part in parts[: c.rank])

    def finish() -> None:
        mine = parts[c.rank]
        store("reduce_scatter", output, total[start : start + mine.size].reshape(mine.shape))

    return run(work, finish, [output], async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Rows of `input` go to the ranks in turn, `input_split_sizes` to each; `output` gets what they have for this one.

    Without split sizes every rank gets as many rows. Complete when it returns.
    """
    c = resolve(group).communicator
    rows = _exchange(c, host_of("all_to_all_single", input), input_split_sizes, output_split_sizes)
    store("all_to_all_single", output, np.concatenate(rows))
    return _all([], [output], True) if async_op else None


def _exchange(
    c: Communicator, array: np.ndarray, splits: Sequence[int] | None, expected: Sequence[int] | None
) -> list[np.ndarray]:
    if (splits is None) != (expected is None):  # equal parts on one side only
        splits = splits or [array.shape[0] // c.size] * c.size
    rows = c.all_to_all(array, splits or None)
    got = [len(part) for part in rows]
    if expected and list(expected) != got:
        raise ValueError(
            f"all_to_all_single(): output_split_sizes {list(expected)} on rank {c.rank}, but the ranks sent {got} rows"
        )
    return rows


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: Sequence[Tensor],
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """`output_tensor_list[r]` becomes what rank r has for this one: its `input_tensor_list[this rank]`.

    Shapes may differ, dtypes not. Complete when it returns.
    """
    c = resolve(group).communicator
    if len(input_tensor_list) != c.size or len(output_tensor_list) != c.size:
        raise ValueError(
            f"all_to_all(): both lists must have {c.size} tensors, one a rank, got {len(input_tensor_list)} inputs and "
            f"{len(output_tensor_list)} outputs"
        )
    flat = [host_of("all_to_all", t).reshape(-1) for t in input_tensor_list]
    rows = c.all_to_all(np.concatenate(flat), [part.size for part in flat])
    for rank, (out, row) in enumerate(zip(output_tensor_list, rows, strict=True)):
        if row.size != out.numel():
            raise ValueError(
                f"all_to_all(): output {rank} has shape {list(out.shape)}, but rank {rank} sent {row.size} elements"
            )
        store("all_to_all", out, row.reshape(out._array.shape))
    return _all([], output_tensor_list, True) if async_op else None


def barrier(
    group: ProcessGroup | None = None, async_op: bool = False, device_ids: Sequence[int] | None = None
) -> Work | None:
    """Return when all ranks have called."""
    resolve(group).communicator.barrier()
    return _all([], [], True) if async_op else None


def monitored_barrier(
    group: ProcessGroup | None = None, timeout: Any = None, wait_all_ranks: bool = False
) -> None:
    """Return when all ranks have called. Every collective here names the ranks that are missing; so does this one."""
    resolve(group).communicator.barrier()

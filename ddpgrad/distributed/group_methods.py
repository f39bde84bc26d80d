"""Collectives as methods of a process group, as communication hooks and older programs call them: `group.allreduce(...)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from ..core import upcalls
from ..core.missing import nearest
from ..core.tensor import Tensor
from . import collectives as c
from .messages import irecv, isend
from .monitored_barrier import monitored_barrier
from .process_group import ProcessGroup
from .tensor_work import Work


class Options:
    """Options of a method, as attributes that may be set later: `reduceOp`, and `rootRank`, a rank of the group. Others change nothing."""

    reduceOp: Any = c.ReduceOp.SUM
    rootRank = 0
    rootTensor = 0
    timeout: timedelta | None = None
    asyncOp = True
    device_ids: Sequence[int] = ()


AllreduceOptions = AllreduceCoalescedOptions = AllToAllOptions = BarrierOptions = BroadcastOptions = Options
GatherOptions = ReduceOptions = ReduceScatterOptions = ScatterOptions = Options


def _list(tensors: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _option(given: Any, name: str, default: Any) -> Any:
    """A method's option: the value itself, or that of an object that has it among others; None for the default."""
    return default if given is None else getattr(given, name, given)


def _allreduce(g: ProcessGroup, tensors: Tensor | Sequence[Tensor], opts: Any = None) -> Work | None:
    return c.all_reduce_coalesced(_list(tensors), _option(opts, "reduceOp", c.ReduceOp.SUM), g, async_op=True)


def _broadcast(
    g: ProcessGroup, tensors: Tensor | Sequence[Tensor], opts: Any = None, root: int = 0
) -> Work | None:
    (tensor,) = _list(tensors)
    return c.broadcast(tensor, group=g, async_op=True, group_src=_option(opts, "rootRank", root))


def _reduce(
    g: ProcessGroup, tensors: Tensor | Sequence[Tensor], root: Any = 0, op: Any = c.ReduceOp.SUM
) -> Work | None:
    (tensor,) = _list(tensors)
    op = _option(getattr(root, "reduceOp", None), "reduceOp", op)
    return c.reduce(tensor, op=op, group=g, async_op=True, group_dst=_option(root, "rootRank", 0))


def _allgather(
    g: ProcessGroup, outputs: Any, tensors: Tensor | Sequence[Tensor], opts: Any = None
) -> Work | None:
    (tensor,), into = _list(tensors), outputs if isinstance(outputs[0], Tensor) else outputs[0]
    return c.all_gather(into, tensor, g, async_op=True)


def _gather(
    g: ProcessGroup, outputs: Any, tensors: Tensor | Sequence[Tensor], opts: Any = None, root: int = 0
) -> Work | None:
    (tensor,) = _list(tensors)
    into = outputs[0] if outputs and not isinstance(outputs[0], Tensor) else outputs
    return c.gather(tensor, into or None, group=g, async_op=True, group_dst=_option(opts, "rootRank", root))


def _scatter(
    g: ProcessGroup, outputs: Tensor | Sequence[Tensor], tensors: Any, opts: Any = None, root: int = 0
) -> Work | None:
    (output,) = _list(outputs)
    parts = tensors[0] if tensors and not isinstance(tensors[0], Tensor) else tensors
    return c.scatter(output, parts or None, group=g, async_op=True, group_src=_option(opts, "rootRank", root))


def _reduce_scatter(
    g: ProcessGroup, outputs: Tensor | Sequence[Tensor], tensors: Any, opts: Any = None
) -> Work | None:
    (output,) = _list(outputs)
    parts = tensors if isinstance(tensors[0], Tensor) else tensors[0]
    return c.reduce_scatter(output, parts, _option(opts, "reduceOp", c.ReduceOp.SUM), g, async_op=True)


def _reduce_scatter_base(g: ProcessGroup, output: Tensor, tensor: Tensor, opts: Any = None) -> Work | None:
    return c.reduce_scatter_tensor(
        output, tensor, _option(opts, "reduceOp", c.ReduceOp.SUM), g, async_op=True
    )


def _alltoall_base(
    g: ProcessGroup,
    output: Tensor,
    tensor: Tensor,
    output_split_sizes: Sequence[int] = (),
    input_split_sizes: Sequence[int] = (),
    opts: Any = None,
) -> Work | None:
    return c.all_to_all_single(
        output, tensor, list(output_split_sizes), list(input_split_sizes), g, async_op=True
    )


def _send(g: ProcessGroup, tensors: Tensor | Sequence[Tensor], rank: int, tag: int = 0) -> Work:
    (tensor,) = _list(tensors)
    return isend(tensor, group=g, tag=tag, group_dst=rank)


def _recv(g: ProcessGroup, tensors: Tensor | Sequence[Tensor], rank: int, tag: int = 0) -> Work:
    (tensor,) = _list(tensors)
    return irecv(tensor, group=g, tag=tag, group_src=rank)


_METHODS: dict[str, Callable[..., Any]] = {
    "_allgather_base": lambda g, output, tensor, opts=None: c.all_gather_into_tensor(
        output, tensor, g, async_op=True
    ),
    "_reduce_scatter_base": _reduce_scatter_base,
    "allgather": _allgather,
    "allreduce": _allreduce,
    "allreduce_coalesced": _allreduce,
    "alltoall": lambda g, outputs, tensors, opts=None: c.all_to_all(outputs, tensors, g, async_op=True),
    "alltoall_base": _alltoall_base,
    "barrier": lambda g, opts=None: c.barrier(g, async_op=True),
    "broadcast": _broadcast,
    "gather": _gather,
    "monitored_barrier": monitored_barrier,
    "recv": _recv,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "scatter": _scatter,
    "send": _send,
}


# What all members call it; there is no device that a group is bound to.
_ATTRIBUTES: dict[str, Callable[[ProcessGroup], Any]] = {
    "group_name": lambda g: getattr(g.communicator, "name", "0"),
    "bound_device_id": lambda g: None,
}


@upcalls.group_method.register
def method(group: ProcessGroup, name: str) -> Any:
    """The method `name` of `group`; its ranks are counted within the group. AttributeError for what is none."""
    if name in _ATTRIBUTES:
        return _ATTRIBUTES[name](group)
    if name not in _METHODS:
        raise AttributeError(
            f"'ProcessGroup' object has no attribute '{name}'{nearest(name, _METHODS)}", name=name
        )
    return partial(_METHODS[name], group)

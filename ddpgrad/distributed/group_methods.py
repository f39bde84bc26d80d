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


def _list(tensors: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _option(given: Any, name: str, default: Any) -> Any:
    """A method's option: the value itself, or that of an object that has it among others; None for the default."""
    return default if given is None else getattr(given, name, given)


def _allreduce(g: ProcessGroup, tensors: Tensor | Sequence[Tensor], opts: Any = None) -> Work | None:
    return c.all_reduce_coalesced(_list(tensors), _option(opts, "reduceOp", c.ReduceOp.SUM), g, async_op=True)


def _broadcast(g: ProcessGroup, tensors: Tensor | Sequence[Tensor], opts: Any = None) -> Work | None:
    (tensor,) = _list(tensors)
    return c.broadcast(tensor, group=g, async_op=True, group_src=_option(opts, "rootRank", 0))


def _reduce(
    g: ProcessGroup, tensors: Tensor | Sequence[Tensor], root: int = 0, op: Any = "sum"
) -> Work | None:
    (tensor,) = _list(tensors)
    return c.reduce(tensor, op=op, group=g, async_op=True, group_dst=root)


def _allgather(g: ProcessGroup, outputs: Any, tensors: Tensor | Sequence[Tensor]) -> Work | None:
    (tensor,), into = _list(tensors), outputs if isinstance(outputs[0], Tensor) else outputs[0]
    return c.all_gather(into, tensor, g, async_op=True)


def _send(g: ProcessGroup, tensors: Tensor | Sequence[Tensor], rank: int, tag: int = 0) -> Work:
    (tensor,) = _list(tensors)
    return isend(tensor, group=g, tag=tag, group_dst=rank)


def _recv(g: ProcessGroup, tensors: Tensor | Sequence[Tensor], rank: int, tag: int = 0) -> Work:
    (tensor,) = _list(tensors)
    return irecv(tensor, group=g, tag=tag, group_src=rank)


def _barrier(g: ProcessGroup, opts: Any = None) -> Work | None:
    return c.barrier(g, async_op=True)


def _monitored(
    g: ProcessGroup, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
) -> None:
    monitored_barrier(g, timeout, wait_all_ranks)


_METHODS: dict[str, Callable[..., Any]] = {
    "allgather": _allgather,
    "allreduce": _allreduce,
    "barrier": _barrier,
    "broadcast": _broadcast,
    "monitored_barrier": _monitored,
    "recv": _recv,
    "reduce": _reduce,
    "send": _send,
}


@upcalls.group_method.register
def method(group: ProcessGroup, name: str) -> Callable[..., Any]:
    """The method `name` of `group`; its ranks are counted within the group. AttributeError for what is none."""
    if name not in _METHODS:
        raise AttributeError(
            f"'ProcessGroup' object has no attribute '{name}'{nearest(name, _METHODS)}", name=name
        )
    return partial(_METHODS[name], group)

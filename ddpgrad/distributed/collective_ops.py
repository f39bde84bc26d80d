"""`torch.ops.c10d_functional` and its like: the names of PyTorch's collectives, by which they are counted."""

from __future__ import annotations

from typing import NoReturn

from ..core.missing import nearest

_COALESCED = "all_reduce_coalesced all_gather_into_tensor_coalesced reduce_scatter_tensor_coalesced"
_FUNCTIONAL = f"all_gather_into_tensor all_reduce all_to_all_single broadcast reduce_scatter_tensor wait_tensor {_COALESCED}"
_NAMES = {
    "c10d": "_allgather_base_ _reduce_scatter_base_ allgather_ allgather_coalesced_ allgather_into_tensor_coalesced_ allreduce_ "
    "allreduce_coalesced_ alltoall_ alltoall_base_ broadcast_ gather_ scatter_ reduce_ reduce_scatter_ "
    "reduce_scatter_tensor_coalesced_",
    "c10d_functional": _FUNCTIONAL,
    "_c10d_functional": f"{_FUNCTIONAL} _wrap_tensor_autograd all_gather_into_tensor_out all_reduce_ all_reduce_coalesced_",
    "_c10d_functional_autograd": "all_gather_into_tensor all_to_all_single reduce_scatter_tensor",
    "_dtensor": "shard_dim_alltoall",
}


class CollectiveOp:
    """Stands for one of PyTorch's collectives; what calls them here are the functions of `torch.distributed`."""

    def __init__(self, full: str) -> None:
        self._full = full
        self.__name__ = full.partition(".")[2]
        self.default = self  # its only overload

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f"torch.ops.{self._full} is a name here, by which CommDebugMode counts: call the function of torch.distributed, or of "
            "torch.distributed._functional_collectives"
        )

    def __repr__(self) -> str:
        return self._full


class _Namespace:
    def __init__(self, name: str) -> None:
        self._name = name
        vars(self).update({one: CollectiveOp(f"{name}.{one}") for one in _NAMES[name].split()})

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"'torch.ops.{self._name}' has no attribute '{name}'{nearest(name, vars(self))}")


NAMESPACES = {name: _Namespace(name) for name in _NAMES}


def op(full: str) -> CollectiveOp:
    """The op of that name, `"c10d.allreduce_"`."""
    namespace, _, name = full.partition(".")
    return getattr(NAMESPACES[namespace], name)

"""Calls from a lower layer to a higher one, all in one place.

The higher layer registers its function when it is loaded; a call before that loads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from ..autograd.nodes import Edge, Node
    from .tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")


class Upcall(Generic[P, R]):
    """A function that the module `home`, below this package, registers."""

    def __init__(self, home: str) -> None:
        self._home = f"{__name__.partition('.')[0]}.{home}"
        self._function: Callable[P, R] | None = None

    def register(self, function: Callable[P, R]) -> Callable[P, R]:
        """Make `function` the one that is called; a decorator."""
        self._function = function
        return function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._function is None:
            import_module(self._home)
        assert self._function is not None, f"{self._home} registers nothing here"
        return self._function(*args, **kwargs)


declare_all_ops: Upcall[[], None] = Upcall("ops")
"""Load every module that declares ops: for who asks for one by name that is not declared yet."""

new_tensor: Upcall[[Any], Tensor] = Upcall("ops")
"""A raw array as a Tensor, which has all of its methods."""

tensor_vocabulary: Upcall[[], Any] = Upcall("ops")
"""The ops as attributes: what gradient rules are given instead of kernels when they run on Tensors."""

tell_method: Upcall[[str, Any], Any] = Upcall("core.dispatching")
"""What those who are told of ops make of a method of a tensor, by its name; NotImplemented where there is nobody."""

run_node: Upcall[[Node, Sequence[Any]], Any] = Upcall("autograd.engine")
"""Run one node on the gradients of its outputs, which are Tensors."""

at_once: Upcall[[], bool] = Upcall("core.modes")
"""Whether this thread runs a function once for all examples of a vmap."""

summed: Upcall[[Edge, Any, Any], Edge] = Upcall("autograd.crossing")
"""Where the gradient of a tensor goes, by its array, that took part in an array of examples of a vmap."""

seed_of_examples: Upcall[[Any, Tensor, bool], Tensor] = Upcall("autograd.crossing")
"""A gradient of a result within a vmap, from which a walk there begins."""

room_for_examples: Upcall[[Tensor, Tensor], Tensor] = Upcall("autograd.crossing")
"""The first tensor, which is new, with memory for each of the examples that the second one has."""

for_each_example: Upcall[..., Sequence[Any]] = Upcall("autograd.each_example")
"""What gradient rules return for all examples of a vmap, by a call for each."""

pack_kept: Upcall[[Node, Callable[[Tensor], Any], Callable[[Any], Tensor]], None] = Upcall(
    "ops.dispatch.packed"
)
"""Let a node of an op keep what a hook makes of its tensors; another hook takes that back."""

saved_attribute: Upcall[[Node, str], Any] = Upcall("ops.dispatch.packed")
"""`node._saved_...`: what a node of an op keeps, by name."""

load_bytes: Upcall[[bytes], Any] = Upcall("files.serialization")
"""What lies in the bytes of a file of PyTorch's."""

gpu_count: Upcall[[], int] = Upcall("backend.cuda.library")
"""The number of GPUs of this host, at least 1; `DeviceError` where there is none."""

group_method: Upcall[[Any, str], Callable[..., Any]] = Upcall("distributed.group_methods")
"""A collective as a method of a process group, by PyTorch's name of that; AttributeError for what is none."""

attach_sparse: Upcall[[], None] = Upcall("sparse.methods")
"""Give the class Tensor the methods of sparse tensors."""

sparse_coo_tensor: Upcall[..., Tensor] = Upcall("sparse.construct")
"""A sparse tensor of indices, values and size, or of a size only."""

sparse_zeros: Upcall[..., Tensor] = Upcall("sparse.compressed")
"""A sparse tensor without elements, of a shape, layout, dtype and device."""

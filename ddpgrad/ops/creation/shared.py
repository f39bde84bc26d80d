"""Memory that several processes share: `share_memory_`, and how such tensors come to another process.

The memory is that of a file without a name. What `multiprocessing` sends (arguments of a process, items of a queue)
holds a descriptor of the file instead of the elements; any other pickle holds the elements.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from typing import Any

import numpy as np

from ...backend.elementary.shape import address_of
from ...core.size import strided
from ...core.tensor import Tensor, wrap


class SharedMemory(mmap.mmap):
    """A file without a name, mapped; `descriptor` opens it again, here or in another process."""

    descriptor: int


def share(self: Tensor) -> Tensor:
    """`share_memory_`."""
    if self.is_meta or self.layout is not strided:
        kind = "on meta" if self.is_meta else "sparse"
        raise RuntimeError(
            f"share_memory_(): only available for dense tensors on CPU, and the tensor is {kind}"
        )
    if not self.is_shared():
        array = self._array
        like = np.empty_like(array)  # of the same order
        size = max(array.nbytes, 1)
        shared = np.ndarray(array.shape, array.dtype, _mapped(_new_file(size), size), 0, like.strides)
        shared[...] = array
        self._array = shared
    _register(type(self))
    return self


def memory_of(tensor: Tensor) -> SharedMemory | None:
    """The shared memory that `tensor` lies in, if it does."""
    memory = tensor._array
    while isinstance(memory, np.ndarray):
        memory = memory.base
    return memory if isinstance(memory, SharedMemory) else None


def _new_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ddpgrad", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _mapped(descriptor: int, size: int) -> SharedMemory:
    memory = SharedMemory(descriptor, size)
    memory.descriptor = descriptor
    weakref.finalize(memory, os.close, descriptor)
    return memory


def _register(kind: type) -> None:
    """Let `multiprocessing` send tensors of this class by `_sent`."""
    from multiprocessing.reduction import ForkingPickler  # here, as few programs share memory

    for known in (Tensor, kind):
        ForkingPickler.register(known, _sent)


def _sent(tensor: Tensor) -> Any:
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing "
            "process boundaries. If you just want to transfer the data, call detach() on the tensor before serializing "
            "(e.g., putting it on the queue)."
        )
    memory = memory_of(tensor)
    if memory is None:
        return tensor.__reduce_ex__(2)
    from multiprocessing.reduction import DupFd

    array = tensor._array
    start = address_of(array) - address_of(np.frombuffer(memory, np.uint8))
    place = array.dtype, array.shape, start, array.strides
    return _received, (
        type(tensor), DupFd(memory.descriptor), len(memory), place, tensor.requires_grad, dict(tensor.__dict__),
    )  # fmt: skip


def _received(
    kind: type, descriptor: Any, size: int, place: Any, requires_grad: bool, attributes: dict[str, Any]
) -> Tensor:
    dtype, shape, start, strides = place
    whole = np.ndarray(size // dtype.itemsize, dtype, _mapped(descriptor.detach(), size))
    out = wrap(np.ndarray(shape, dtype, whole, start, strides), kind)
    out._requires_grad = requires_grad
    out.__dict__.update(attributes)
    _register(kind)
    return out

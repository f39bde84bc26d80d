"""`torch._utils`: gradients of many tensors flattened into one, and back, for old programs; errors of other processes."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NoReturn

from .. import cuda
from ..backend.dtype import DType
from ..core.face import below
from ..core.tensor import Tensor
from ..files.torch_names import LANGUAGE
from ..ops.shape.stacking import cat
from ..utils.data.pool import KeyErrorMessage
from .aliases import ROOT


def __getattr__(name: str) -> Any:
    """The functions that Python's own `pickle.load` calls for tensors that PyTorch pickled: `_rebuild_tensor_v2` and others."""
    rebuild = LANGUAGE.names.get(f"torch._utils.{name}")
    return below(sys.modules[__name__], name) if rebuild is None else rebuild


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements of the tensors, one after the other, in one dimension."""
    return cat([tensor.reshape(-1) for tensor in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of `flat` with the shapes of `tensors`, in their order: the inverse of `_flatten_dense_tensors`."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    return tuple(part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True))


def _take_tensors(tensors: Sequence[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Groups of one dtype, each as soon as it has more than `size_limit` bytes with its next tensor."""
    groups: dict[Any, tuple[list[Tensor], int]] = {}
    for tensor in tensors:
        group, size = groups.get(tensor.dtype, ([], 0))
        bytes = tensor.numel() * tensor.element_size()
        if size + bytes > size_limit and size:
            yield group
            group, size = [], 0
        groups[tensor.dtype] = ([*group, tensor], size + bytes)
    yield from (group for group, _ in groups.values() if group)


def _element_size(dtype: DType) -> int:
    """The bytes of one element."""
    return dtype.itemsize


def _get_available_device_type() -> str | None:
    """The kind of GPU that can be used: `"cuda"`, or None."""
    return "cuda" if cuda.is_available() else None


def _get_device_module(device_type: str) -> ModuleType:
    """The module of a kind of device, `torch.cuda` for `"cuda"`."""
    module = getattr(sys.modules[ROOT], device_type, None)
    if module is None:
        raise RuntimeError(
            f"Device '{device_type}' does not have a corresponding module registered as 'torch.{device_type}'."
        )
    return module


class ExceptionWrapper:
    """An exception and its traceback in words, to be sent to another thread or process and raised there.

    exc_info: as `sys.exc_info()` gives it, by default the exception that is being handled. where: what was running.
    """

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        exc_info = sys.exc_info() if exc_info is None else exc_info
        self.exc_type = exc_info[0]
        self.exc_msg = "".join(traceback.format_exception(*exc_info))
        self.where = where

    def reraise(self) -> NoReturn:
        """Raise the exception again, with the traceback in its message; RuntimeError where it takes other arguments."""
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        try:
            error = self.exc_type(KeyErrorMessage(message) if self.exc_type is KeyError else message)
        except Exception:
            raise RuntimeError(message) from None
        raise error

"""Turns what a kernel raised into an error that names the op, the shapes and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import DdpgradError, DeviceError
from ..tensor import Tensor

if TYPE_CHECKING:
    from .declare import Op


def explain(op: Op, args: Sequence[Any], error: Exception) -> Exception:
    """The exception to raise instead of `error`: same kind where PyTorch has the same kind."""
    if isinstance(error, (DdpgradError, NotImplementedError, MemoryError)):
        return error
    tensors = [a for a in _flatten(args) if isinstance(a, Tensor)]
    devices = sorted({str(t.device) for t in tensors})
    if len(devices) > 1:
        return DeviceError(
            f"{op.name}(): expected all tensors to be on the same device, but found at least two devices, "
            f"{' and '.join(devices)}. Move them with Tensor.to(device) first."
        )
    shapes = ", ".join(f"{list(t.shape)} {t.dtype.name}" for t in tensors)
    text = f"{op.name}({shapes}): {_hint(op, tensors) or error}"
    if isinstance(error, IndexError):
        return IndexError(text)
    if isinstance(error, TypeError):
        return TypeError(text)
    return RuntimeError(text)


def _flatten(args: Sequence[Any]) -> list[Any]:
    return [x for a in args for x in (a if isinstance(a, (list, tuple)) else (a,))]


def _hint(op: Op, tensors: Sequence[Tensor]) -> str | None:
    """For two tensors that do not broadcast: which dimension disagrees, as PyTorch says it."""
    if len(tensors) != 2 or op.promotion is None:
        return None
    a, b = tensors[0].shape, tensors[1].shape
    for back in range(1, min(len(a), len(b)) + 1):
        if a[-back] != b[-back] and 1 not in (a[-back], b[-back]):
            return (
                f"The size of tensor a ({a[-back]}) must match the size of tensor b ({b[-back]}) at "
                f"non-singleton dimension {max(len(a), len(b)) - back}"
            )
    return None

"""`torch._utils`: gradients of many tensors flattened into one, and back, for old programs."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.tensor import Tensor
from ..ops.shape.stacking import cat


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements of the tensors, one after the other, in one dimension."""
    return cat([tensor.reshape(-1) for tensor in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of `flat` with the shapes of `tensors`, in their order: the inverse of `_flatten_dense_tensors`."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    return tuple(part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True))

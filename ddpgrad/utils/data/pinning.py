"""Batches in page-locked memory, from which GPUs copy faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.tensor import Tensor
from .collate import in_kind_of, like


def pin_memory(data: Any, device: Any = None) -> Any:
    """`data` with its tensors in page-locked memory, in the same mappings and sequences.

    What is of another kind is asked for its own `pin_memory()`, and returned as it is if it has none.
    """
    if isinstance(data, Tensor) or hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        return like(data, {key: pin_memory(value) for key, value in data.items()})
    if isinstance(data, Sequence):
        return in_kind_of(data, [pin_memory(value) for value in data])
    return data


__all__ = ["pin_memory"]

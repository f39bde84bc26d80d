"""`torch.utils._foreach_utils`: tensors sorted by device and dtype, for optimizers that libraries write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend.device import Device
from ..backend.dtype import DType
from ..core.tensor import Tensor

Lists = list[list[Any]]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False
) -> dict[tuple[Device, DType], tuple[Lists, list[int]]]:
    """(device, dtype) of the first list's tensors -> the parts of all lists that go with them, and their places if asked.

    An empty list stays empty in every group.
    """
    groups: dict[tuple[Device, DType], tuple[Lists, list[int]]] = {}
    for place, tensor in enumerate(tensorlistlist[0]):
        parts, places = groups.setdefault((tensor.device, tensor.dtype), ([[] for _ in tensorlistlist], []))
        for part, whole in zip(parts, tensorlistlist, strict=True):
            if whole:
                part.append(whole[place])
        if with_indices:
            places.append(place)
    return groups


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Kinds of devices, other than the CPU, on which functions take lists of tensors."""
    return ["cuda"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """Kinds of devices on which one kernel updates many parameters."""
    return ["cuda", "cpu"]


def _device_has_foreach_support(device: Device) -> bool:
    """Whether functions take lists of tensors there."""
    return device.type in ("cpu", "cuda")


def _has_foreach_support(tensors: Sequence[Tensor | None], device: Device) -> bool:
    """Whether functions take lists of these tensors: of no subclass of Tensor."""
    return _device_has_foreach_support(device) and all(t is None or type(t) is Tensor for t in tensors)

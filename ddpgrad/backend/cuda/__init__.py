"""The CUDA backend: CuPy for the elementary kernels, kernels in CUDA C++ and cuBLAS for the others.

Kernels run on the current GPU of the calling rank (`ddpgrad.cuda.set_device`), on CuPy's
current stream, and never wait for the GPU.
"""

from __future__ import annotations

from typing import Any

from ..device import Device
from ..elementary import elementary
from ..registry import Backend
from .library import cupy_and_count

# Modules of kernels, loaded when one of their names is first used.
_FAMILIES = {
    "activation": (
        "gelu", "gelu_backward", "softmax", "softmax_backward", "log_softmax", "log_softmax_backward",
    ),
    "attention": ("scaled_dot_product_attention", "attention_backward"),
    "dropout": ("dropout", "dropout_backward"),
    "loss": ("cross_entropy", "cross_entropy_backward"),
    "matmul": ("matmul",),
    "norm": ("layer_norm", "layer_norm_backward"),
    "optimizer": ("update_",),
    "scatter": ("embedding", "embedding_backward", "index_put_add", "scatter_add"),
}  # fmt: skip

_devices: dict[int, Device] = {}


def _device_of(array: Any) -> Device:
    index = array.data.device_id
    device = _devices.get(index)
    if device is None:
        device = _devices[index] = Device("cuda", index)
    return device


def load() -> Backend:
    """The CUDA backend; `DeviceError` with the remedy when CuPy or a GPU is missing."""
    cupy, _ = cupy_and_count()
    from .differences import differences

    families = {f"{__name__}.{name}": names for name, names in _FAMILIES.items()}
    return Backend("cuda", cupy.ndarray, elementary(cupy) | differences(), families, _device_of)

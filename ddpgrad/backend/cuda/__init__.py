"""The CUDA backend: CuPy for the elementary kernels, kernels in CUDA C++ and cuBLAS for the others.

Kernels run on the GPU of their arrays, new arrays are on the current GPU of the calling rank
(`ddpgrad.cuda.set_device`). They run on CuPy's current stream, and never wait for the GPU.
"""

from __future__ import annotations

from typing import Any

from ..device import Device
from ..elementary import elementary
from ..registry import Backend, kernels_in
from .library import cupy_and_count

# Modules of kernels, loaded when one of them is first used.
_FAMILIES = (
    "activation", "attention", "conv", "dropout", "loss", "norm", "optimizer", "philox", "reduce", "scatter",
)  # fmt: skip
# Those that have functions for other modules as well.
_MIXED_FAMILIES = {
    "half": ("by_a_number", "cast_together"),
    "matmul": ("linear", "matmul", "weight_gradient"),
}

_devices: dict[int, Device] = {}


def _device_of(array: Any) -> Device:
    index = array.data.device_id
    device = _devices.get(index)
    if device is None:
        device = _devices[index] = Device("cuda", index)
    return device


def load() -> Backend:
    """The CUDA backend; `DeviceError` with the remedy when CuPy or a GPU is missing."""
    cupy, count = cupy_and_count()
    from . import beside_sparse, half, own_gpu
    from .differences import differences

    half.install()
    beside_sparse.install()
    if count > 1:
        own_gpu.install()
    families = kernels_in(__name__, _FAMILIES)
    families |= {f"{__name__}.{module}": names for module, names in _MIXED_FAMILIES.items()}
    wrap = own_gpu.on_gpu_of_arguments if count > 1 else None
    return beside_sparse.CudaBackend(
        "cuda", cupy.ndarray, elementary(cupy) | differences(), families, _device_of, wrap, cupy
    )

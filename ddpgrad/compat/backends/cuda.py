"""`torch.backends.cuda`: switches of cuBLAS, of which `matmul.allow_tf32` has an effect, and of fused attention."""

from __future__ import annotations

from importlib.util import find_spec

from ...backend.device import float32_precision
from ...core.rank_local import RankLocal


class _Products:
    """Switches of cuBLAS. The others have no effect: half types are accumulated in float32."""

    allow_fp16_reduced_precision_reduction = False
    allow_bf16_reduced_precision_reduction = False
    allow_fp16_accumulation = False

    @property
    def allow_tf32(self) -> bool:
        """Whether operands of float32 products may be rounded to TF32: `set_float32_matmul_precision` by another name."""
        return float32_precision.get() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        float32_precision.set("high" if allowed else "highest")


matmul = _Products()

_sdp = RankLocal(lambda: {"flash": True, "mem_efficient": True, "math": True, "cudnn": False})


def is_built() -> bool:
    """Whether CuPy is installed, by which this package uses CUDA; `torch.cuda.is_available` says whether there is a GPU."""
    return find_spec("cupy") is not None


def flash_sdp_enabled() -> bool:
    return _sdp.get()["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    """Kept only: one fused kernel computes attention where it can, whatever is switched on."""
    _sdp.get()["flash"] = bool(enabled)


def mem_efficient_sdp_enabled() -> bool:
    return _sdp.get()["mem_efficient"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Kept only, as `enable_flash_sdp`."""
    _sdp.get()["mem_efficient"] = bool(enabled)


def math_sdp_enabled() -> bool:
    return _sdp.get()["math"]


def enable_math_sdp(enabled: bool) -> None:
    """Kept only, as `enable_flash_sdp`."""
    _sdp.get()["math"] = bool(enabled)


def cudnn_sdp_enabled() -> bool:
    return _sdp.get()["cudnn"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Kept only, as `enable_flash_sdp`."""
    _sdp.get()["cudnn"] = bool(enabled)


__all__ = [
    "cudnn_sdp_enabled", "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp",
    "flash_sdp_enabled", "is_built", "math_sdp_enabled", "matmul", "mem_efficient_sdp_enabled",
]  # fmt: skip

"""`torch.backends.cuda`: switches of cuBLAS, of which `matmul.allow_tf32` has an effect, and of fused attention."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
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

_sdp = RankLocal(
    lambda: {"flash": True, "mem_efficient": True, "math": True, "cudnn": False, "fp16_bf16": False}
)


def is_built() -> bool:
    """Whether CuPy is installed, by which this package uses CUDA; `torch.cuda.is_available` says whether there is a GPU."""
    return find_spec("cupy") is not None


def is_flash_attention_available() -> bool:
    """False: attention is one fused kernel of this package's own, not the one of that name."""
    return False


def _switch(name: str) -> tuple[Callable[[], bool], Callable[[bool], None]]:
    """What asks for, and what sets, one of PyTorch's kernels of attention."""

    def enabled() -> bool:
        return _sdp.get()[name]

    def enable(enabled: bool) -> None:
        """Kept only: one fused kernel computes attention where it can, whatever is switched on."""
        _sdp.get()[name] = bool(enabled)

    return enabled, enable


flash_sdp_enabled, enable_flash_sdp = _switch("flash")
mem_efficient_sdp_enabled, enable_mem_efficient_sdp = _switch("mem_efficient")
math_sdp_enabled, enable_math_sdp = _switch("math")
cudnn_sdp_enabled, enable_cudnn_sdp = _switch("cudnn")
fp16_bf16_reduction_math_sdp_allowed, allow_fp16_bf16_reduction_math_sdp = _switch("fp16_bf16")


@contextlib.contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:
    """The switches of attention's kernels for a block; the older form of `nn.attention.sdpa_kernel`."""
    warnings.warn(
        "torch.backends.cuda.sdp_kernel() is deprecated: use torch.nn.attention.sdpa_kernel()",
        FutureWarning,
        stacklevel=3,
    )
    before = dict(_sdp.get())
    _sdp.get().update(
        flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn
    )
    try:
        yield
    finally:
        _sdp.get().update(before)


__all__ = [
    "allow_fp16_bf16_reduction_math_sdp", "cudnn_sdp_enabled", "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp",
    "enable_mem_efficient_sdp", "flash_sdp_enabled", "fp16_bf16_reduction_math_sdp_allowed", "is_built",
    "is_flash_attention_available", "math_sdp_enabled", "matmul", "mem_efficient_sdp_enabled", "sdp_kernel",
]  # fmt: skip

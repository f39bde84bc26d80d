"""The CPU backend: NumPy for the elementary kernels, Numba for the fused ones."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from ... import environment
from .. import device
from ..elementary import elementary
from ..registry import Backend

# Modules of fused kernels, loaded when one of their names is first used.
_FAMILIES = {
    "activation": (
        "gelu", "gelu_backward", "silu", "silu_backward", "softmax", "softmax_backward",
        "log_softmax", "log_softmax_backward", "relu", "relu_backward",
    ),
    "attention": ("scaled_dot_product_attention", "attention_backward"),
    "conv": ("conv2d", "conv2d_input", "conv2d_weight"),
    "dropout": ("dropout", "dropout_backward"),
    "embedding": ("embedding_backward",),
    "loss": ("cross_entropy", "cross_entropy_backward"),
    "matmul": ("linear",),
    "norm": ("layer_norm", "layer_norm_backward", "batch_norm", "batch_norm_backward"),
    "optimizer": ("sgd_step_", "adam_step_", "sum_of_squares", "scale_"),
    "pool": ("max_pool2d", "max_pool2d_backward", "avg_pool2d", "avg_pool2d_backward"),
    "reduce": ("sum",),
    "special": ("erf",),
}  # fmt: skip


def _device_of(array: Any) -> device.Device:
    return device.CPU


def _portable_erf(input: Any) -> Any:
    return np.asarray(_math_erf(input), dtype=input.dtype)


_math_erf = np.vectorize(math.erf, otypes=[np.float64])


def load() -> Backend:
    """The CPU backend. Without Numba (DDPGRAD_NUMBA=0) every kernel is the portable one."""
    # Like PyTorch, say nothing of infinities and nans that arithmetic makes; only where ddpgrad computes.
    for text in ("divide by zero", "invalid value", "overflow", "underflow"):
        warnings.filterwarnings("ignore", f"{text} encountered", RuntimeWarning, module=r"ddpgrad\.")
    families = {f"{__name__}.{name}": names for name, names in _FAMILIES.items()}
    if not environment.numba_enabled():
        families = {}
    return Backend("cpu", np.ndarray, elementary(np) | {"erf": _portable_erf}, families, _device_of)

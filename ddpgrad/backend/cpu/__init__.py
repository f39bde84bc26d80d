"""The CPU backend: NumPy for the elementary kernels, Numba for the fused ones."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ...core import environment
from .. import device
from ..elementary import elementary
from ..registry import Backend
from .allocator import keep_freed_memory

# Modules of fused kernels, loaded when one of their names is first used.
_FAMILIES = {
    "activation": (
        "gelu", "gelu_backward", "silu", "silu_backward", "softmax", "softmax_backward",
        "log_softmax", "log_softmax_backward", "relu", "relu_backward",
    ),
    "attention": ("scaled_dot_product_attention", "attention_backward"),
    "conv": ("convolution", "convolution_input", "convolution_weight"),
    "ctc": ("ctc_alignments",),
    "dropout": ("dropout", "dropout_backward"),
    "embedding": ("embedding_backward",),
    "fold": ("im2col", "col2im"),
    "group_norm": ("rms_norm", "rms_norm_backward", "group_norm", "group_norm_backward"),
    "half": ("cast",),
    "loss": ("cross_entropy", "cross_entropy_backward", "nll_loss", "nll_loss_backward"),
    "matmul": ("linear", "matmul"),
    "norm": ("layer_norm", "layer_norm_backward", "batch_norm", "batch_norm_backward"),
    "optimizer": ("update_", "sum_of_squares", "scale_"),
    "places": ("take_places", "add_places"),
    "places_along": ("gather", "scatter_add"),
    "piecewise": (
        "leaky_relu", "leaky_relu_backward", "elu", "elu_backward", "softplus", "softplus_backward",
        "sigmoid", "sigmoid_backward",
        "hardshrink", "softshrink", "shrink_backward", "threshold", "threshold_backward", "clamp",
        "clamp_backward", "hardsigmoid", "hardsigmoid_backward", "hardswish", "hardswish_backward",
        "huber", "huber_backward",
    ),
    "pointwise": ("where",),
    "pool": ("max_pool", "largest_of_places"),
    "recurrent": (
        "lstm_sequence", "lstm_backward", "gru_sequence", "gru_backward", "rnn_sequence", "rnn_backward",
    ),
    "reduce": ("mean", "sum", "amax", "amin", "var", "std"),
    "resample": ("resample", "resample_transposed"),
    "shape": ("expand",),
    "special": ("erf",),
}  # fmt: skip
# Modules of kernels that need no Numba.
_PLAIN_FAMILIES = {"lapack": ("lu_factor", "solve_triangular", "ldl_factor", "ldl_solve")}


def _device_of(array: Any) -> device.Device:
    return device.CPU


def load() -> Backend:
    """The CPU backend. Without Numba (DDPGRAD_NUMBA=0) every kernel is the portable one."""
    if not environment.allocator_chosen():
        keep_freed_memory()
    # Like PyTorch, say nothing of infinities and nans that arithmetic makes; only where ddpgrad computes.
    for text in ("divide by zero", "invalid value", "overflow", "underflow"):
        warnings.filterwarnings("ignore", f"{text} encountered", RuntimeWarning, module=r"ddpgrad\.")
    modules = (_FAMILIES if environment.numba_enabled() else {}) | _PLAIN_FAMILIES
    families = {f"{__name__}.{name}": names for name, names in modules.items()}
    return Backend("cpu", np.ndarray, elementary(np), families, _device_of)

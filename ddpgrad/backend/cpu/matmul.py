"""The affine map of `nn.Linear` for the CPU: one matrix product and one pass for the bias."""

from __future__ import annotations

import numpy as np

from .vectormath import compiled_for


def linear(input: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """input (*, K) @ weight (N, K) transposed + bias (N,): a new array (*, N)."""
    if not compiled_for(input, weight) or (bias is not None and bias.dtype != input.dtype):
        return NotImplemented
    # One product over all leading dimensions: numpy.matmul would make one per matrix of a stack.
    rows = input.reshape(-1, input.shape[-1]) if input.size else input.reshape(0, weight.shape[1])
    out = np.matmul(rows, weight.T)
    if bias is not None:
        out += bias
    return out.reshape(*input.shape[:-1], weight.shape[0])

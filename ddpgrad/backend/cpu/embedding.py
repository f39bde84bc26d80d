"""Compiled gradient of the embedding look-up for the CPU, float32 and float64."""

from __future__ import annotations

import numpy as np

from .vectormath import compiled_for, kernel


def embedding_backward(
    g: np.ndarray, indices: np.ndarray, num_embeddings: int, padding_idx: int | None
) -> np.ndarray:
    """Add row i of g (*, D) to row indices[i] of the result (num_embeddings, D), in the order of i.

    Rows that meet `padding_idx` are left out. `indices` is int64 (*), each in [0, num_embeddings):
    the forward look-up has checked that.
    """
    if not compiled_for(g) or indices.dtype != np.int64:
        return NotImplemented
    width = g.shape[-1]
    out = np.zeros((num_embeddings, width), g.dtype)
    rows = np.ascontiguousarray(g).reshape(indices.size, width)
    _add_rows(
        rows, np.ascontiguousarray(indices).reshape(-1), -1 if padding_idx is None else padding_idx, out
    )
    return out


@kernel
def _add_rows(rows, indices, skipped, out):
    for i in range(indices.size):
        index = indices[i]
        if index != skipped:
            source, sink = rows[i], out[index]
            for j in range(source.size):
                sink[j] += source[j]

"""Lookup in a table of vectors, and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ..dispatch.declare import op, primitive
from ..dispatch.explain import require_one_kind
from ..indexing.raw_index import beside, index_array


@primitive(
    grads={
        "input": lambda F, g, indices, input_shape, padding_idx: F.embedding_backward(
            g, indices, input_shape[0], padding_idx
        )
    },
    adapt=lambda input, indices, padding_idx=None: (input, _indices(indices, input), padding_idx),
    samples=lambda rng: [((rng.standard_normal((5, 3)), np.array([[0, 4, 4], [2, 1, 0]])), {})],
    reference=lambda w, i: w[i],
    method=False,
    grad_name="EmbeddingBackward0",
)
def embedding_rows(F: Any, input: Tensor, indices: Any, padding_idx: int | None = None) -> Tensor:
    """Rows `indices` of the table `input` (rows, width); no gradient goes to row `padding_idx`."""
    ...


def _indices(indices: Any, table: Tensor) -> Any:
    array, rows = index_array(indices), table.shape[0]
    require_one_kind("embedding", table._array, array)
    if array.dtype.char not in "li":
        raise RuntimeError(
            f"Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but "
            f"got {array.dtype} instead (while checking arguments for embedding)"
        )
    if isinstance(array, np.ndarray) and array.size and (array.min() < 0 or array.max() >= rows):
        bad = array[(array < 0) | (array >= rows)][0]
        raise IndexError(f"embedding(): index out of range in self: {bad} with a table of {rows} rows")
    return array


@op(
    grads={"g": lambda F, g, indices, padding_idx: _embedding_again(F, g, indices, padding_idx)},
    adapt=lambda g, indices, num_embeddings, padding_idx=None: (
        g,
        beside(g, index_array(indices)),
        num_embeddings,
        padding_idx,
    ),
    samples=lambda rng: [((rng.standard_normal((2, 3, 4)), np.array([[0, 4, 4], [2, 1, 0]]), 5), {})],
    reference=lambda g, i, n: _np_embedding_backward(g, i, n),
    method=False,
)
def embedding_backward(
    F: Any, g: Tensor, indices: Any, num_embeddings: int, padding_idx: int | None = None
) -> Tensor:
    """The gradient of the table: rows of `g` (*, width) added up by index."""
    out = F.index_put_add(F.new_zeros(g, (num_embeddings, g.shape[-1])), indices, g)
    if padding_idx is not None:
        out[padding_idx] = 0
    return out


def _embedding_again(F: Any, g: Any, indices: Any, padding_idx: int | None) -> Any:
    if padding_idx is not None:
        g = F.index_put(g, padding_idx, 0.0)
    return F.embedding_rows(g, indices)


def _np_embedding_backward(g: Any, indices: Any, rows: int) -> Any:
    out = np.zeros((rows, g.shape[-1]))
    np.add.at(out, indices, g)
    return out

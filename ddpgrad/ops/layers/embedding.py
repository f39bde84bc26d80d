"""Lookup in a table of vectors, and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backend.elementary.indexing import numbered
from ...core.modes import mode
from ...core.tensor import Tensor
from ..dispatch.declare import composite, op, primitive
from ..dispatch.explain import require_one_kind
from ..indexing.raw_index import beside, index_array


# Of a row that gets no gradient there is a tangent, as in PyTorch.
@primitive(
    grads={
        "input": lambda F, g, indices, input_shape, padding_idx: F.embedding_backward(
            g, indices, input_shape[0], None if mode.transposing else padding_idx
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


@composite
def row_products(F: Any, table: Any, sums: Any, indices: Any, bounds: Any) -> Any:
    """(L,): the row of `table` that each index names times its bag's row of `sums` (bags, width)."""
    owners = numbered(bounds[1:] - bounds[:-1])[0]
    return F.sum(F.embedding_rows(table, indices, None) * F.embedding_rows(sums, owners, None), 1)


def _bags(rng: Any) -> tuple[Any, ...]:
    """Weights, indices and bounds of three bags, the second of them empty."""
    return rng.standard_normal(5), np.array([0, 4, 4, 2, 1]), np.array([0, 2, 2, 5])


@op(
    grads={
        "input": lambda F, g, input_shape, weights, indices, bounds: F.bag_sums_backward(
            g, weights, indices, bounds, input_shape[0]
        ),
        "weights": lambda F, g, input, indices, bounds: F.row_products(input, g, indices, bounds),
    },
    adapt=lambda input, weights, indices, bounds: (
        input,
        weights,
        _indices(indices, input),
        beside(input, index_array(bounds)),
    ),
    samples=lambda rng: [((rng.standard_normal((5, 3)), *_bags(rng)), {})],
    reference=lambda w, s, i, b: _np_embedding_backward(
        w[i] * s[:, None], numbered(np.diff(b))[0], len(b) - 1
    ),
    method=False,
    grad_name="EmbeddingBagBackward0",
)
def bag_sums(F: Any, input: Tensor, weights: Tensor, indices: Any, bounds: Any) -> Tensor:
    """(bags, width): the sums of `weights` (L,) times the rows `indices` (L,) of the table `input` (rows, width).

    bounds: int64 (bags + 1,), where the indices of each bag begin, and those of the last one end.
    """
    return F.compressed_product(bounds, indices, weights, input, len(bounds) - 1, True)


@op(
    grads={
        "sums": lambda F, g, weights, indices, bounds: F.bag_sums(g, weights, indices, bounds),
        "weights": lambda F, g, sums, indices, bounds: F.row_products(g, sums, indices, bounds),
    },
    adapt=lambda sums, weights, indices, bounds, num_embeddings: (
        sums,
        weights,
        beside(sums, index_array(indices)),
        beside(sums, index_array(bounds)),
        num_embeddings,
    ),
    samples=lambda rng: [((rng.standard_normal((3, 3)), *_bags(rng), 6), {})],
    reference=lambda g, s, i, b, n: _np_embedding_backward(g[numbered(np.diff(b))[0]] * s[:, None], i, n),
    method=False,
)
def bag_sums_backward(
    F: Any, sums: Tensor, weights: Tensor, indices: Any, bounds: Any, num_embeddings: int
) -> Tensor:
    """The gradient of the table: each bag's row of `sums` (bags, width) times a weight, added up by index."""
    return F.compressed_product(bounds, indices, weights, sums, num_embeddings, False)

"""Attention on the GPU: in 16 bits by tiles (`attention_tiles.py`), else a softmax kernel between products of cuBLAS.

The latter keeps the scores of some heads at a time, in the accumulator's type. Backward computes scores again from the rows'
log-sum-exp (Dao et al., "FlashAttention", 2022).
"""

from __future__ import annotations

import math
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]

from . import attention_tiles
from .matmul import product, readable, readable_together
from .source import WARP, accumulator, computes, elementwise

Array = Any

_SCORES = 256 << 20  # bytes of scores that are kept at once, unless one head alone has more

# One warp per row of scores; under a causal mask row t sees columns up to t. `out` may be `scores`:
# what other lanes read, the first column, they read before the warp's first exchange.
_softmax = elementwise(
    "raw A scores, int64 rows, int64 columns, bool causal, float64 scale",
    "raw T out, raw A lse",
    """
    const long long row = i / 32, reach = row % rows + 1;
    const long long seen = causal && reach < columns ? reach : columns;
    const A* x = &scores[row * columns];
    T* y = &out[row * columns];
    A top = x[0] * (A)scale;
    for (long long j = i % 32; j < seen; j += 32) top = larger(top, x[j] * (A)scale);
    top = warp_max(top);
    A total = 0;
    for (long long j = i % 32; j < seen; j += 32) total += exp(x[j] * (A)scale - top);
    total = warp_sum(total);
    const A share = (A)1 / total;
    for (long long j = i % 32; j < columns; j += 32) {
      y[j] = (T)(j < seen ? exp(x[j] * (A)scale - top) * share : (A)0);
    }
    if (i % 32 == 0) lse[row] = top + log(total);
    """,
    "attention_softmax",
)
_softmax_backward = elementwise(
    "raw A scores, raw A g, raw A lse, int64 rows, int64 columns, bool causal, float64 scale",
    "raw T probabilities, raw T grad",
    """
    const long long row = i / 32, reach = row % rows + 1;
    const long long seen = causal && reach < columns ? reach : columns;
    const A* x = &scores[row * columns];
    const A* dp = &g[row * columns];
    T* p = &probabilities[row * columns];
    T* dx = &grad[row * columns];
    const A shift = lse[row];
    A total = 0;
    for (long long j = i % 32; j < seen; j += 32) total += exp(x[j] * (A)scale - shift) * dp[j];
    total = warp_sum(total);
    for (long long j = i % 32; j < columns; j += 32) {
      const A v = j < seen ? exp(x[j] * (A)scale - shift) : (A)0;
      const A d = j < seen ? v * (dp[j] - total) * (A)scale : (A)0;
      p[j] = (T)v;
      dx[j] = (T)d;
    }
    """,
    "attention_softmax_backward",
)


def attention(
    query: Array, key: Array, value: Array, attn_mask: Array | None, is_causal: bool, scale: float
) -> tuple[Array, Array]:
    """softmax(query @ key^T * scale) @ value: (out (*, T, E), log-sum-exp of the scaled scores (*, T)).

    query (*, T, D), key (*, S, D), value (*, S, E) with equal leading dimensions.
    `NotImplemented` with `attn_mask`.
    """
    if attn_mask is not None or not _handles(query, key, value):
        return NotImplemented
    if attention_tiles.handles(query, key, value):
        return attention_tiles.forward(query, key, value, is_causal, scale)
    if halves := _halves(query, key):
        return _by_halves(
            lambda q, k, v: attention(q, k, v, None, is_causal, scale), halves, query, key, value
        )
    query, key, value = readable_together(query, key, value)
    scores = _scores(query, key)
    probabilities = scores if scores.dtype == query.dtype else cupy.empty(scores.shape, query.dtype)
    lse = cupy.empty(query.shape[:-1], scores.dtype)
    _softmax(scores, *scores.shape[-2:], is_causal, scale, probabilities, lse, size=lse.size * WARP)
    return product(probabilities, value), lse


def attention_backward(
    g: Array,
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None,
    is_causal: bool,
    scale: float,
    out: Array,
    lse: Array | None,
) -> tuple[Array, Array, Array]:
    """The gradients of `attention` for query, key and value."""
    if attn_mask is not None or lse is None or not computes(g, query) or not _handles(query, key, value):
        return NotImplemented
    if attention_tiles.handles(query, key, value):
        return attention_tiles.backward(g, query, key, value, is_causal, scale, out, lse)
    if halves := _halves(query, key):

        def gradients(g: Array, q: Array, k: Array, v: Array, out: Array, lse: Array) -> tuple[Array, ...]:
            return attention_backward(g, q, k, v, None, is_causal, scale, out, lse)

        return _by_halves(gradients, halves, g, query, key, value, out, lse)
    g = readable(g)  # which is in two products, as are query and key
    query, key, value = readable_together(query, key, value)
    scores, g_p = _scores(query, key), product(g, value.swapaxes(-1, -2), accumulator(query.dtype))
    same = scores.dtype == query.dtype
    p = scores if same else cupy.empty(scores.shape, query.dtype)
    g_scores = g_p if same else cupy.empty(scores.shape, query.dtype)
    _softmax_backward(
        scores, g_p, lse, *scores.shape[-2:], is_causal, scale, p, g_scores, size=lse.size * WARP
    )
    return (product(g_scores, key), product(g_scores.swapaxes(-1, -2), query), product(p.swapaxes(-1, -2), g))


def _handles(query: Array, key: Array, value: Array) -> bool:
    return (
        computes(query, key, value)
        and query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
        and math.prod((*key.shape, *value.shape)) > 0
    )


def _halves(query: Array, key: Array) -> tuple[tuple[slice, ...], ...] | None:
    """Indices of two halves, along the first leading dimension that can be split, where there are too many scores."""
    scores = math.prod(query.shape[:-1]) * key.shape[-2] * accumulator(query.dtype).itemsize
    axis = next((axis for axis, n in enumerate(query.shape[:-2]) if n > 1), None)
    if scores <= _SCORES or axis is None:
        return None
    half = query.shape[axis] // 2
    return tuple((slice(None),) * axis + (part,) for part in (slice(half), slice(half, None)))


def _by_halves(function: Any, halves: tuple[tuple[slice, ...], ...], *arrays: Array) -> Any:
    """What `function` returns of the arrays, by a call for each half."""
    found = [function(*[x[half] for x in arrays]) for half in halves]
    return tuple(cupy.concatenate(parts, len(halves[0]) - 1) for parts in zip(*found, strict=True))


def _scores(query: Array, key: Array) -> Array:
    return product(query, key.swapaxes(-1, -2), accumulator(query.dtype))

"""Attention for the CPU in cache-sized blocks of scores, float32 and float64.

BLAS multiplies (`numpy.matmul` writes straight into the results), compiled kernels do the
softmax in between. Only one block of scores exists at a time; backward computes it again
from the rows' log-sum-exp (Dao et al., "FlashAttention", 2022). Under a causal mask the
blocks above the diagonal are never computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .matmul import for_blas
from .threads import in_parts, threads
from .vectormath import compiled_for, exp_of_negative, from_ordered, kernel, to_ordered

Array = np.ndarray

# Scores of one block, for all its heads together: few enough to stay in cache, enough to feed BLAS.
_BLOCK = 128 * 1024
# Rows of a block under a causal mask: fewer skip more of the square, more make better matrix products.
_CAUSAL_ROWS = 64


def attention(
    query: Array, key: Array, value: Array, attn_mask: Array | None, is_causal: bool, scale: float
) -> tuple[Array, Array]:
    """softmax(query @ key^T * scale) @ value: (out (*, T, E), log-sum-exp of the scaled scores (*, T)).

    query (*, T, D), key (*, S, D), value (*, S, E) with equal leading dimensions, of any strides;
    `is_causal` lets row t see columns up to t. `out` lies in memory in the order of query's
    dimensions, so that heads transposed from (B, T, H, D) can be joined again without a copy.
    `NotImplemented` with a scale that is not positive.
    """
    if not _handles(query, key, value, scale):
        return NotImplemented
    mask = _lines(attn_mask, query, key)
    query, key, value = for_blas(query), for_blas(key), for_blas(value)
    out = _empty_in_order_of(query, (*query.shape[:-1], value.shape[-1]))
    lse = np.empty(query.shape[:-1], query.dtype)
    rows_of_lse = lse.reshape(-1, query.shape[-2])
    stacks = _stacks(query, key, mask, is_causal)

    def part(first: int, end: int) -> None:
        buffer = np.empty(0, query.dtype)
        for index, matrix in stacks[first:end]:
            q, k, v, o = query[index], key[index], value[index], out[index]
            for rows, columns in _blocks(query, key, is_causal):
                shape = (*q.shape[:-2], rows.stop - rows.start, columns)
                if buffer.size < math.prod(shape):
                    buffer = np.empty(math.prod(shape), query.dtype)
                scores = buffer[: math.prod(shape)].reshape(shape)
                np.matmul(q[..., rows, :], k[..., :columns, :].swapaxes(-1, -2), out=scores)
                stack = _one_stack(scores)
                factor = _masked(stack, mask, index, rows.start, scale)
                _softmax_(stack, factor, is_causal, mask is not None, rows.start, matrix, rows_of_lse)
                np.matmul(scores, v[..., :columns, :], out=o[..., rows, :])

    in_parts(part, len(stacks), lse.size * key.shape[-2], blas=True)
    return out, lse


def attention_backward(
    g: Array,
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None,
    is_causal: bool,
    scale: float,
    out: Array,
    lse: Array,
) -> tuple[Array, Array, Array]:
    """The gradients of `attention` for query, key and value, laid out as those are."""
    if lse is None or not _handles(query, key, value, scale) or not compiled_for(query, g, lse):
        return NotImplemented
    mask = _lines(attn_mask, query, key)
    g, query, key, value = for_blas(g), for_blas(query), for_blas(key), for_blas(value)
    g_query, g_key, g_value = (_empty_in_order_of(x, x.shape) for x in (query, key, value))
    rows_of_lse = np.ascontiguousarray(lse).reshape(-1, query.shape[-2])
    stacks = _stacks(query, key, mask, is_causal)

    def part(first: int, end: int) -> None:
        buffer = np.empty(0, query.dtype)
        for index, matrix in stacks[first:end]:
            g_q, g_k, g_v = g_query[index], g_key[index], g_value[index]
            for rows, columns in _blocks(query, key, is_causal):
                q, g_out = query[index][..., rows, :], g[index][..., rows, :]
                k, v = key[index][..., :columns, :], value[index][..., :columns, :]
                shape = (*q.shape[:-1], columns)
                size = math.prod(shape)
                if buffer.size < 2 * size:
                    buffer = np.empty(2 * size, query.dtype)
                p, g_scores = buffer[:size].reshape(shape), buffer[size : 2 * size].reshape(shape)
                np.matmul(q, k.swapaxes(-1, -2), out=p)
                np.matmul(g_out, v.swapaxes(-1, -2), out=g_scores)
                stacks_of = _one_stack(p), _one_stack(g_scores)
                factor = _masked(stacks_of[0], mask, index, rows.start, scale)
                _softmax_backward_(*stacks_of, factor, scale, is_causal, rows.start, matrix, rows_of_lse)
                np.matmul(g_scores, k, out=g_q[..., rows, :])
                # The first block of rows sets what further blocks add to.
                done = 0 if rows.start == 0 else min(rows.start, columns) if is_causal else columns
                _multiply_into(g_v, p, g_out, done)
                _multiply_into(g_k, g_scores, q, done)
                if is_causal and rows.stop == query.shape[-2]:
                    g_k[..., columns:, :] = 0  # keys that no query sees
                    g_v[..., columns:, :] = 0

    in_parts(part, len(stacks), lse.size * key.shape[-2], blas=True)
    return g_query, g_key, g_value


def _handles(query: Array, key: Array, value: Array, scale: float) -> bool:
    return (
        compiled_for(query, key, value)
        and query.ndim >= 2
        and query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
        and min(query.size, key.size, value.size) > 0
        and scale > 0  # what a causal mask hides is -inf before it is scaled
    )


def _lines(attn_mask: Array | None, query: Array, key: Array) -> Array | None:
    """A mask as (*, T or 1, S) with as many dimensions as query, bool or of query's dtype, each line in order."""
    if attn_mask is None:
        return None
    whole = attn_mask[(None,) * (query.ndim - attn_mask.ndim)]
    lines = np.broadcast_to(whole, (*whole.shape[:-1], key.shape[-2]))
    return np.ascontiguousarray(lines, bool if lines.dtype == bool else query.dtype)


def _masked(scores: Array, mask: Array | None, index: tuple[Any, ...], first_row: int, scale: float) -> float:
    """Scale and mask the scores of a block; by what they are still to be multiplied. index: of the block's matrices."""
    if mask is None:
        return scale
    *outer, heads = index
    if heads is None:
        own = mask[None]
    else:
        own = mask[tuple([n if size > 1 else 0 for n, size in zip(outer, mask.shape, strict=False)])]
        own = _one_stack(own[heads] if len(own) > 1 else own)
    if own.dtype == bool:
        _hide_(scores, own, scale, first_row)
    else:
        _add_mask_(scores, own, scale, first_row)
    return 1.0


def _empty_in_order_of(x: Array, shape: tuple[int, ...]) -> Array:
    """A new dense array of `shape` whose dimensions lie in memory in the order of those of x."""
    return np.empty_like(x, shape=shape)


def _one_stack(x: Array) -> Array:
    """(*, rows, columns) as (matrices, rows, columns), of elements in order."""
    return x.reshape(-1, *x.shape[-2:]) if x.ndim > 3 else x


def _stacks(
    query: Array, key: Array, mask: Array | None, is_causal: bool
) -> list[tuple[tuple[Any, ...], int]]:
    """(index that gives a stack (heads, *, *) or (batch, heads, *, *) of matrices, number of its first matrix)."""
    lead = list(query.shape[:-2])
    if not lead:
        return [((None,), 0)]
    inner = 1
    fits = _BLOCK // (_rows(query, key, is_causal) * key.shape[-2])
    count = lead.pop()
    if lead and fits >= 2 * count and (mask is None or math.prod(mask.shape[:-2]) == 1):
        inner, count = count, lead.pop()
    stack = max(1, min(fits // inner, -(-count // threads())))
    return [
        ((*outer, slice(first, first + stack)), (number * count + first) * inner)
        for number, outer in enumerate(np.ndindex(*lead))
        for first in range(0, count, stack)
    ]


def _rows(query: Array, key: Array, is_causal: bool) -> int:
    """The number of rows of a block."""
    return max(
        1, min(query.shape[-2], _CAUSAL_ROWS if is_causal else query.shape[-2], _BLOCK // key.shape[-2])
    )


def _blocks(query: Array, key: Array, is_causal: bool) -> Iterator[tuple[slice, int]]:
    """(rows, columns)."""
    t, s, step = query.shape[-2], key.shape[-2], _rows(query, key, is_causal)
    for start in range(0, t, step):
        stop = min(start + step, t)
        yield slice(start, stop), min(stop, s) if is_causal else s


def _multiply_into(sink: Array, left: Array, right: Array, done: int) -> None:
    """left^T @ right for each matrix of a stack, added to the first `done` rows of sink, stored in the others."""
    product = np.matmul(left.swapaxes(-1, -2), right)
    sink[..., :done, :] += product[..., :done, :]
    sink[..., done : product.shape[-2], :] = product[..., done:, :]


@kernel
def _hide_(scores, mask, scale, first_row):
    """Scores times `scale` where the mask (heads or 1, rows or 1, columns) lets them be seen, else -inf."""
    factor, low = scores.dtype.type(scale), scores.dtype.type(-np.inf)
    for m in range(scores.shape[0]):
        lines = mask[m if mask.shape[0] > 1 else 0]
        for i in range(scores.shape[1]):
            row, line = scores[m, i], lines[first_row + i if lines.shape[0] > 1 else 0]
            for j in range(row.size):
                value = row[j] * factor
                row[j] = value if line[j] else low


@kernel
def _add_mask_(scores, mask, scale, first_row):
    """Scores times `scale` and the mask (heads or 1, rows or 1, columns) added."""
    factor = scores.dtype.type(scale)
    for m in range(scores.shape[0]):
        lines = mask[m if mask.shape[0] > 1 else 0]
        for i in range(scores.shape[1]):
            row, line = scores[m, i], lines[first_row + i if lines.shape[0] > 1 else 0]
            for j in range(row.size):
                row[j] = row[j] * factor + line[j]


@kernel
def _softmax_(scores, scale, is_causal, masked, first_row, matrix, lse):
    """Scores to probabilities in place; the rows' log-sum-exp goes to lse[matrix:, first_row:]."""
    stack, rows, columns = scores.shape
    number = scores.dtype.type
    factor = number(scale)
    for m in range(stack):
        for i in range(rows):
            row = scores[m, i]
            seen = min(columns, first_row + i + 1) if is_causal else columns
            # Whole vectors: a little of what is not seen takes part, as -inf.
            width = min(columns, (seen + 31) // 32 * 32)
            row[seen:width] = number(-np.inf)
            row[width:] = number(0)
            key = to_ordered(row[0] * factor)
            for j in range(width):
                k = to_ordered(row[j] * factor)
                key = k if k > key else key
            top = from_ordered(key)
            if masked and top == number(-np.inf):  # nothing is seen, and nothing comes out
                row[:] = number(0)
                lse[matrix + m, first_row + i] = number(0)
                continue
            total = number(0)
            for j in range(width):
                e = exp_of_negative(row[j] * factor - top)
                row[j] = e
                total += e
            share = number(1) / total
            for j in range(width):
                row[j] *= share
            lse[matrix + m, first_row + i] = top + number(math.log(total))


@kernel
def _softmax_backward_(scores, g, scale, outer, is_causal, first_row, matrix, lse):
    """In place: scores to probabilities, g from the gradient of the probabilities to that of the scores.

    The scores are multiplied by `scale`, their gradient by `outer`.
    """
    stack, rows, columns = scores.shape
    number = scores.dtype.type
    factor, last = number(scale), number(outer)
    for m in range(stack):
        for i in range(rows):
            row, g_row = scores[m, i], g[m, i]
            seen = min(columns, first_row + i + 1) if is_causal else columns
            width = min(columns, (seen + 31) // 32 * 32)
            row[seen:width] = number(-np.inf)
            row[width:] = number(0)
            g_row[seen:] = number(0)
            shift = lse[matrix + m, first_row + i]
            dot = number(0)
            for j in range(width):
                p = exp_of_negative(row[j] * factor - shift)
                row[j] = p
                dot += p * g_row[j]
            for j in range(width):
                g_row[j] = row[j] * (g_row[j] - dot) * last

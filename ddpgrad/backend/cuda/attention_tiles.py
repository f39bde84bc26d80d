"""Attention in 16 bits by tensor cores, which never writes the scores to memory.

A block has 64 rows in shared memory and goes over the other side in tiles: queries over keys in `forward`
and in the gradient of the queries, keys over queries in the gradients of keys and values. So each gradient is summed in
one order, and has the same bits each time (Dao, "FlashAttention-2", 2023, adds the queries' by atomics instead). Scores are
float32, and probabilities are rounded to 16 bits for the second product.
"""

from __future__ import annotations

import math
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

from .tensor_cores import ROWS, THREADS, TYPES, available, kernel

Array = Any

_DEPTHS = (32, 64, 128)  # of the kernels; rows of fewer elements are filled up with zeros

_SHARED = r"""
// Where the rows of one head begin, and elements from one row to the next.
template <class P> struct Matrix {
  P* start; size step;
  __device__ Matrix(P* all, size of_batch, size of_head, size step, int heads, size which)
    : start(all + which / heads * of_batch + which % heads * of_head), step(step) {}
};
__device__ __forceinline__ unsigned whole(const float* x, int k) { return pair(x[k], x[k + 1]); }
// `count` rows from `first` on into shared memory; zeros where there is nothing.
__device__ void take(T* tile, const Matrix<const T>& m, int first, int count, int rows, int depth) {
  for (int i = threadIdx.x; i < count * (DEPTH / 8); i += blockDim.x) {
    const int row = i / (DEPTH / 8), column = i % (DEPTH / 8) * 8;
    uint4 eight = make_uint4(0, 0, 0, 0);
    if (first + row < rows && column < depth) eight = *(const uint4*)(m.start + (first + row) * m.step + column);
    *(uint4*)(tile + row * WIDTH + column) = eight;
  }
}
// The next tile of each of two matrices with as many rows, when all threads are done with the last.
__device__ void take_next(T* one, const Matrix<const T>& m, int depth, T* other, const Matrix<const T>& n, int width,
                          int start, int rows) {
  __syncthreads();
  take(one, m, start, TILE, rows, depth);
  take(other, n, start, TILE, rows, width);
  __syncthreads();
}
__device__ __forceinline__ bool hides(int row, int column, int columns, bool causal) {
  return column >= columns || (causal && column > row);
}
// x (16, DEPTH) += p (16, COUNT) in 16 bits @ the rows of `right`.
template <int COUNT> __device__ __forceinline__ void add_rows(float (*x)[4], const float (*p)[4], const T* right) {
  const int lane = threadIdx.x % 32;
  const T* of = right + lane % 16 * WIDTH + lane / 16 * 8;
  #pragma unroll
  for (int k = 0; k < COUNT / 16; k++) {
    const unsigned a[4] = {whole(p[2 * k], 0), whole(p[2 * k], 2), whole(p[2 * k + 1], 0), whole(p[2 * k + 1], 2)};
    unsigned b[4];
    #pragma unroll
    for (int n = 0; n < DEPTH / 8; n += 2) {
      warp_matrices_transposed(b, of + k * 16 * WIDTH + n * 8);
      warp_product(x[n], a, b, T());
      warp_product(x[n + 1], a, b + 2, T());
    }
  }
}
// The warp's rows of x (16, DEPTH), times a factor for each of the lane's two.
__device__ void give(const Matrix<T>& m, const float (*x)[4], const float* factor, int first, int rows, int depth) {
  #pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = first + ROW(2 * half);
    #pragma unroll
    for (int n = 0; n < DEPTH / 8; n++) {
      const int column = COLUMN(n, 0);
      if (row < rows && column < depth) {
        *(unsigned*)(m.start + row * m.step + column) =
            pair(x[n][2 * half] * factor[half], x[n][2 * half + 1] * factor[half]);
      }
    }
  }
}
// The sum, or the greatest, of what the four lanes of a row have.
__device__ __forceinline__ float row_sum(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}
__device__ __forceinline__ float row_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
#define HIDDEN __int_as_float(0xff800000) // minus infinity
#define MATRIX(P, name) Matrix<P>(name, name##_batch, name##_head, name##_row, heads, which)
"""


def _steps(*names: str) -> str:
    return ", ".join(f"size {name}_batch, size {name}_head, size {name}_row" for name in names)


# Exponents are taken to base 2: `scale` has the factor 1 / ln 2, lse has not.
_FORWARD = rf"""
extern "C" __global__ void __launch_bounds__({THREADS}) ddpgrad_attention_tiles(
    const T* q, const T* k, const T* v, T* out, float* lse, {_steps("q", "k", "v", "out")},
    int heads, int rows, int columns, int depth, int width, bool causal, float scale) {{
  extern __shared__ __align__(16) unsigned char memory[];
  T* queries = (T*)memory;
  T* keys = queries + {ROWS} * WIDTH;
  T* values = keys + TILE * WIDTH;
  const int blocks = (rows + {ROWS - 1}) / {ROWS};
  const size which = blockIdx.x / blocks;
  const int first = (blocks - 1 - blockIdx.x % blocks) * {ROWS}; // those with the most to do begin
  take(queries, MATRIX(const T, q), first, {ROWS}, rows, depth);
  float sum[DEPTH / 8][4] = {{}}, top[2] = {{HIDDEN, HIDDEN}}, total[2] = {{0, 0}};
  const int seen = causal ? min(columns, first + {ROWS}) : columns;
  for (int start = 0; start < seen; start += TILE) {{
    take_next(keys, MATRIX(const T, k), depth, values, MATRIX(const T, v), width, start, columns);
    float x[TILE / 8][4] = {{}};
    add_products<TILE>(x, queries, keys);
    float highest[2] = {{top[0], top[1]}};
    const bool edge = start + TILE > columns || (causal && start + TILE > first);
    #pragma unroll
    for (int n = 0; n < TILE / 8; n++) {{
      #pragma unroll
      for (int j = 0; j < 4; j++) {{
        const bool hidden = edge && hides(first + ROW(j), start + COLUMN(n, j), columns, causal);
        x[n][j] = hidden ? HIDDEN : x[n][j] * scale;
        highest[j / 2] = fmaxf(highest[j / 2], x[n][j]);
      }}
    }}
    #pragma unroll
    for (int half = 0; half < 2; half++) {{
      highest[half] = row_max(highest[half]);
      const float less = exp2f(top[half] - highest[half]);
      top[half] = highest[half];
      total[half] *= less;
      #pragma unroll
      for (int n = 0; n < DEPTH / 8; n++) sum[n][2 * half] *= less, sum[n][2 * half + 1] *= less;
    }}
    #pragma unroll
    for (int n = 0; n < TILE / 8; n++) {{
      #pragma unroll
      for (int j = 0; j < 4; j++) {{
        x[n][j] = exp2f(x[n][j] - top[j / 2]);
        total[j / 2] += x[n][j];
      }}
    }}
    add_rows<TILE>(sum, x, values);
  }}
  #pragma unroll
  for (int half = 0; half < 2; half++) {{
    total[half] = row_sum(total[half]);
    const int row = first + ROW(2 * half);
    if (threadIdx.x % 4 == 0 && row < rows) lse[which * rows + row] = top[half] * {math.log(2)!r}f + logf(total[half]);
    total[half] = 1 / total[half];
  }}
  give(MATRIX(T, out), sum, total, first, rows, width);
}}
"""

# The probabilities and the gradient of the scores, in place of the scores x and of g @ values^T, where lane's rows or columns
# have the log-sum-exp and `delta`, the sum of g * out.
_SCORES_BACKWARD = r"""
__device__ __forceinline__ void scores_backward(float& x, float& dx, bool hidden, float scale, float lse, float delta) {
  x = hidden ? 0 : exp2f(x * scale - lse);
  dx = hidden ? 0 : x * (dx - delta);
}
"""
_QUERIES = rf"""
{_SCORES_BACKWARD}
extern "C" __global__ void __launch_bounds__({THREADS}) ddpgrad_attention_tiles_queries(
    const T* q, const T* k, const T* v, const T* out, const T* g, const float* lse, T* dq, float* delta,
    {_steps("q", "k", "v", "out", "g", "dq")},
    int heads, int rows, int columns, int depth, int width, bool causal, float scale, float to_query) {{
  extern __shared__ __align__(16) unsigned char memory[];
  T* queries = (T*)memory;
  T* grads = queries + {ROWS} * WIDTH;
  T* keys = grads + {ROWS} * WIDTH;
  T* values = keys + TILE * WIDTH;
  const int blocks = (rows + {ROWS - 1}) / {ROWS};
  const size which = blockIdx.x / blocks;
  const int first = (blocks - 1 - blockIdx.x % blocks) * {ROWS};
  take(queries, MATRIX(const T, q), first, {ROWS}, rows, depth);
  take(grads, MATRIX(const T, g), first, {ROWS}, rows, width);
  const Matrix<const T> given = MATRIX(const T, g), result = MATRIX(const T, out);
  float shift[2], less[2];
  #pragma unroll
  for (int half = 0; half < 2; half++) {{
    const int row = first + ROW(2 * half);
    float part = 0;
    for (int c = threadIdx.x % 4; row < rows && c < width; c += 4) {{
      part += (float)given.start[row * given.step + c] * (float)result.start[row * result.step + c];
    }}
    less[half] = row_sum(part);
    shift[half] = row < rows ? lse[which * rows + row] * {1 / math.log(2)!r}f : 0;
    if (threadIdx.x % 4 == 0 && row < rows) delta[which * rows + row] = less[half];
  }}
  float sum[DEPTH / 8][4] = {{}};
  const int seen = causal ? min(columns, first + {ROWS}) : columns;
  for (int start = 0; start < seen; start += TILE) {{
    take_next(keys, MATRIX(const T, k), depth, values, MATRIX(const T, v), width, start, columns);
    float x[TILE / 8][4] = {{}}, dx[TILE / 8][4] = {{}};
    add_products<TILE>(x, queries, keys);
    add_products<TILE>(dx, grads, values);
    const bool edge = start + TILE > columns || (causal && start + TILE > first);
    #pragma unroll
    for (int n = 0; n < TILE / 8; n++) {{
      #pragma unroll
      for (int j = 0; j < 4; j++) {{
        const bool hidden = edge && hides(first + ROW(j), start + COLUMN(n, j), columns, causal);
        scores_backward(x[n][j], dx[n][j], hidden, scale, shift[j / 2], less[j / 2]);
      }}
    }}
    add_rows<TILE>(sum, dx, keys);
  }}
  const float factor[2] = {{to_query, to_query}};
  give(MATRIX(T, dq), sum, factor, first, rows, depth);
}}
"""
_KEYS = rf"""
{_SCORES_BACKWARD}
extern "C" __global__ void __launch_bounds__({THREADS}) ddpgrad_attention_tiles_keys(
    const T* q, const T* k, const T* v, const T* g, const float* lse, const float* delta, T* dk, T* dv,
    {_steps("q", "k", "v", "g", "dk", "dv")},
    int heads, int rows, int columns, int depth, int width, bool causal, float scale, float to_key) {{
  extern __shared__ __align__(16) unsigned char memory[];
  T* keys = (T*)memory;
  T* values = keys + {ROWS} * WIDTH;
  T* queries = values + {ROWS} * WIDTH;
  T* grads = queries + TILE * WIDTH;
  const int blocks = (columns + {ROWS - 1}) / {ROWS};
  const size which = blockIdx.x / blocks;
  const int first = blockIdx.x % blocks * {ROWS};
  take(keys, MATRIX(const T, k), first, {ROWS}, columns, depth);
  take(values, MATRIX(const T, v), first, {ROWS}, columns, width);
  float sum_k[DEPTH / 8][4] = {{}}, sum_v[DEPTH / 8][4] = {{}};
  for (int start = causal ? first / TILE * TILE : 0; start < rows; start += TILE) {{
    take_next(queries, MATRIX(const T, q), depth, grads, MATRIX(const T, g), width, start, rows);
    float x[TILE / 8][4] = {{}}, dx[TILE / 8][4] = {{}};
    add_products<TILE>(x, keys, queries);
    add_products<TILE>(dx, values, grads);
    #pragma unroll
    for (int n = 0; n < TILE / 8; n++) {{
      #pragma unroll
      for (int j = 0; j < 4; j++) {{
        const int row = start + COLUMN(n, j), column = first + ROW(j);
        const bool hidden = row >= rows || (causal && column > row);
        const float shift = hidden ? 0 : lse[which * rows + row] * {1 / math.log(2)!r}f;
        scores_backward(x[n][j], dx[n][j], hidden, scale, shift, hidden ? 0 : delta[which * rows + row]);
      }}
    }}
    add_rows<TILE>(sum_v, x, grads);
    add_rows<TILE>(sum_k, dx, queries);
  }}
  const float once[2] = {{1, 1}}, factor[2] = {{to_key, to_key}};
  give(MATRIX(T, dk), sum_k, factor, first, columns, depth);
  give(MATRIX(T, dv), sum_v, once, first, columns, width);
}}
"""


def _tile(depth: int) -> int:
    """Rows of the other side that are in shared memory at once: as many as registers for their scores are left."""
    return 64 if depth <= 64 else 32


def _made(body: str, name: str) -> dict[tuple[Any, int], Any]:
    """The kernel by type and depth."""
    return {
        (dtype, depth): kernel(f"{_SHARED}{body}", f"attention_tiles{name}", dtype, depth, _tile(depth))
        for dtype in TYPES
        for depth in _DEPTHS
    }


_forward = _made(_FORWARD, "")
_queries = _made(_QUERIES, "_queries")
_keys = _made(_KEYS, "_keys")


def handles(query: Array, key: Array, value: Array) -> bool:
    """Whether the kernels are made for arrays of this type, size and GPU."""
    return (
        query.dtype in TYPES
        and max(query.shape[-1], value.shape[-1]) <= _DEPTHS[-1]
        and query.shape[-1] % 8 == 0 == value.shape[-1] % 8
        and available()
    )


def forward(query: Array, key: Array, value: Array, is_causal: bool, scale: float) -> tuple[Array, Array]:
    """As `attention`, of what `handles` is true for."""
    q, k, v = _heads(query), _heads(key), _heads(value)
    out = _like(q, v.shape[-1])
    lse = cupy.empty(q.shape[:-1], np.float32)
    _launch(_forward, ROWS, (q, k, v, out, lse), is_causal, scale / math.log(2))
    return out.reshape(*query.shape[:-1], v.shape[-1]), lse.reshape(query.shape[:-1])


def backward(
    g: Array, query: Array, key: Array, value: Array, is_causal: bool, scale: float, out: Array, lse: Array
) -> tuple[Array, Array, Array]:
    """As `attention_backward`, of what `handles` is true for. lse: that of `forward`."""
    q, k, v, out, g = (_heads(x) for x in (query, key, value, out, g))
    dq, dk, dv = _like(q, q.shape[-1]), _like(k, k.shape[-1]), _like(v, v.shape[-1])
    lse, delta = cupy.ascontiguousarray(lse).reshape(-1), cupy.empty(q.shape[:-1], np.float32)
    base = scale / math.log(2)
    _launch(_queries, 2 * ROWS, (q, k, v, out, g, lse, dq, delta), is_causal, base, scale)
    _launch(_keys, 2 * ROWS, (q, k, v, g, lse, delta, dk, dv), is_causal, base, scale)
    return dq.reshape(query.shape), dk.reshape(key.shape), dv.reshape(value.shape)


def _heads(x: Array) -> Array:
    """(batch, heads, T, D) whose rows are read by 16 bytes: a view where that can be."""
    x = x.reshape(-1, *x.shape[-3:]) if x.ndim > 3 else x.reshape((1,) * (4 - x.ndim) + x.shape)
    aligned = x.data.ptr % 16 == 0 and all(step % 16 == 0 for step in x.strides[:-1])
    return x if aligned and x.strides[-1] == x.itemsize else cupy.ascontiguousarray(x)


def _like(x: Array, width: int) -> Array:
    """A new (batch, heads, T, width) array that lies as `x` does: heads beside one another where they do there."""
    batch, heads, rows, _ = x.shape
    if x.strides[1] < x.strides[2]:
        return cupy.empty((batch, rows, heads, width), x.dtype).swapaxes(1, 2)
    return cupy.empty((batch, heads, rows, width), x.dtype)


def _launch(kernels: Any, own: int, arrays: tuple[Array, ...], causal: bool, *scales: float) -> None:
    """A block for each 64 rows of each head. own: rows of these in shared memory, beside two tiles. arrays: q, k, v first."""
    q, k, v = arrays[:3]
    rows, columns, depth, width = q.shape[2], k.shape[2], q.shape[3], v.shape[3]
    made_for = next(size for size in _DEPTHS if size >= max(depth, width))
    chosen = kernels[q.dtype, made_for]
    steps = [np.int64(step // x.itemsize) for x in arrays if x.ndim == 4 for step in x.strides[:3]]
    sizes = [np.int32(n) for n in (q.shape[1], rows, columns, depth, width)]
    shared = (own + 2 * _tile(made_for)) * (made_for + 8) * q.itemsize
    if shared > 48 << 10:
        chosen.max_dynamic_shared_size_bytes = shared
    blocks = -(-(columns if kernels is _keys else rows) // ROWS) * q.shape[0] * q.shape[1]
    arguments = (*arrays, *steps, *sizes, np.bool_(causal), *map(np.float32, scales))
    chosen((blocks,), (THREADS,), arguments, shared_mem=shared)

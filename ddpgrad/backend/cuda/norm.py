"""Layer normalisation in CUDA kernels, for all floating-point types.

Variances are taken in a second pass, never as E[x^2] - E[x]^2, which loses all digits when
the mean is large.
"""

from __future__ import annotations

import math
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

from .source import NAMES, WARP, accumulator, computes, contiguous, elementwise, raw

Array = Any

# Rows of a block of backward, and its threads.
_ROWS = 32
_THREADS = 256

# One warp per row; weight and bias are read where their flags are set.
_layer_norm = elementwise(
    "raw T input, raw T weight, raw T bias, bool scaled, bool shifted, int64 columns, float64 eps",
    "raw T out, raw A mean, raw A rstd",
    """
    const long long row = i / 32;
    const T* x = &input[row * columns];
    T* y = &out[row * columns];
    A total = 0;
    for (long long j = i % 32; j < columns; j += 32) total += (A)x[j];
    const A middle = warp_sum(total) / (A)columns;
    A squares = 0;
    for (long long j = i % 32; j < columns; j += 32) squares += ((A)x[j] - middle) * ((A)x[j] - middle);
    const A inverse = (A)1 / sqrt(warp_sum(squares) / (A)columns + (A)eps);
    for (long long j = i % 32; j < columns; j += 32) {
      A v = ((A)x[j] - middle) * inverse;
      if (scaled) v *= (A)weight[j];
      if (shifted) v += (A)bias[j];
      y[j] = (T)v;
    }
    if (i % 32 == 0) {
      mean[row] = middle;
      rstd[row] = inverse;
    }
    """,
    "layer_norm",
)

# A block has some rows: a warp each for their gradients, which then leaves x and g where reading them again costs little,
# and a thread per column for what they add to the gradients of weight and bias.
_BACKWARD = rf"""
extern "C" __global__ void __launch_bounds__({_THREADS}) ddpgrad_layer_norm_backward(
    const T* g, const T* input, const T* weight, const A* mean, const A* rstd, T* grad, A* weight_sums, A* bias_sums,
    long long rows, long long columns) {{
  const long long first = (long long)blockIdx.x * {_ROWS}, last = first + {_ROWS} < rows ? first + {_ROWS} : rows;
  for (long long row = first + threadIdx.x / 32; row < last; row += {_THREADS} / 32) {{
    const T* dy = &g[row * columns];
    const T* x = &input[row * columns];
    T* dx = &grad[row * columns];
    const A middle = mean[row], inverse = rstd[row];
    A total = 0, dot = 0;
    for (long long j = threadIdx.x % 32; j < columns; j += 32) {{
      const A d = weight ? (A)dy[j] * (A)weight[j] : (A)dy[j];
      total += d;
      dot += d * ((A)x[j] - middle) * inverse;
    }}
    total = warp_sum(total) / (A)columns;
    dot = warp_sum(dot) / (A)columns;
    for (long long j = threadIdx.x % 32; j < columns; j += 32) {{
      const A d = weight ? (A)dy[j] * (A)weight[j] : (A)dy[j];
      dx[j] = (T)(inverse * (d - total - ((A)x[j] - middle) * inverse * dot));
    }}
  }}
  if (!weight_sums) return;
  for (long long column = threadIdx.x; column < columns; column += {_THREADS}) {{
    A weight_sum = 0, bias_sum = 0;
    for (long long row = first; row < last; ++row) {{
      const A d = (A)g[row * columns + column];
      weight_sum += d * ((A)input[row * columns + column] - mean[row]) * rstd[row];
      bias_sum += d;
    }}
    weight_sums[blockIdx.x * columns + column] = weight_sum;
    bias_sums[blockIdx.x * columns + column] = bias_sum;
  }}
}}
"""
_backward = {dtype: raw(_BACKWARD, "layer_norm_backward", T=dtype, A=accumulator(dtype)) for dtype in NAMES}

# One warp per column: the sums of both gradients over the blocks of rows.
_sum_parameters = elementwise(
    "raw A weight_sums, raw A bias_sums, int64 blocks, int64 columns",
    "raw T grad_weight, raw T grad_bias",
    """
    const long long column = i / 32;
    A weight_sum = 0, bias_sum = 0;
    for (long long block = i % 32; block < blocks; block += 32) {
      weight_sum += weight_sums[block * columns + column];
      bias_sum += bias_sums[block * columns + column];
    }
    weight_sum = warp_sum(weight_sum);
    bias_sum = warp_sum(bias_sum);
    if (i % 32 == 0) {
      grad_weight[column] = (T)weight_sum;
      grad_bias[column] = (T)bias_sum;
    }
    """,
    "layer_norm_sum_parameters",
)


def layer_norm(
    input: Array, weight: Array | None, bias: Array | None, ndim: int, eps: float
) -> tuple[Array, Array, Array]:
    """Normalise over the last `ndim` dimensions: (out, mean, 1 / deviation), the last two per row."""
    if not computes(input, weight, bias):
        return NotImplemented
    x = contiguous(input)
    columns = math.prod(input.shape[input.ndim - ndim :])
    out = cupy.empty(input.shape, input.dtype)
    rows = input.size // columns
    mean, rstd = (cupy.empty(rows, accumulator(input.dtype)) for _ in range(2))
    _layer_norm(
        x,
        x if weight is None else contiguous(weight),
        x if bias is None else contiguous(bias),
        weight is not None,
        bias is not None,
        columns,
        eps,
        out,
        mean,
        rstd,
        size=rows * WARP,
    )
    lead = input.shape[: input.ndim - ndim]
    return out, mean.reshape(lead), rstd.reshape(lead)


def layer_norm_backward(
    g: Array,
    input: Array,
    weight: Array | None,
    bias: Array | None,
    ndim: int,
    eps: float,
    mean: Array,
    rstd: Array,
) -> tuple[Array, Array | None, Array | None]:
    """The gradients of `layer_norm` for input, weight and bias; None where weight or bias is None.

    mean, rstd: what `layer_norm` returned; None, after the portable body, is `NotImplemented`.
    """
    if mean is None or not computes(g, input, weight, bias):
        return NotImplemented
    g, x = contiguous(g), contiguous(input)
    shape = input.shape[input.ndim - ndim :]
    mean, rstd = mean.reshape(-1), rstd.reshape(-1)
    rows, columns = mean.size, math.prod(shape)
    grad = cupy.empty(input.shape, input.dtype)
    w, blocks, none = np.uintp(0) if weight is None else contiguous(weight), -(-rows // _ROWS), np.uintp(0)
    wanted = weight is not None or bias is not None
    partial = [cupy.empty((blocks, *shape), accumulator(input.dtype)) if wanted else none for _ in range(2)]
    arguments = (g, x, w, mean, rstd, grad, *partial, np.int64(rows), np.int64(columns))
    _backward[input.dtype]((blocks,), (_THREADS,), arguments)
    if not wanted:
        return grad, None, None
    # Two arrays, not views of one: a leaf takes an array of its own as its gradient, without a copy.
    sums = [cupy.empty(shape, input.dtype) for _ in range(2)]
    _sum_parameters(*partial, blocks, columns, *sums, size=columns * WARP)
    return grad, None if weight is None else sums[0], None if bias is None else sums[1]

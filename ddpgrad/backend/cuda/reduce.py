"""Sums over the first dimensions in one launch, as of a bias's gradient.

CuPy has a block for 32 columns, which leaves most of a GPU without work, and makes float32 of 16-bit floats beforehand. Here a block
sums some rows of 32 columns, and the last block of these columns to end adds up what the others left, always in the same order.
"""

from __future__ import annotations

import math
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

from ..dtype import numpy_of
from .source import NAMES, accumulator, computes, raw

Array = Any

_BLOCKS = 512  # at most, that a GPU has work for
_LINES = 8  # warps of a block

_CODE = rf"""
extern "C" __global__ void __launch_bounds__({32 * _LINES}) ddpgrad_column_sums(
    const T* x, U* out, volatile A* parts, unsigned* ended, long long rows, long long columns, long long height) {{
  __shared__ A sums[{_LINES}][32];
  __shared__ bool last;
  const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
  const long long column = (long long)blockIdx.x * 32 + lane, first = blockIdx.y * height;
  const long long end = first + height < rows ? first + height : rows;
  const bool there = column < columns;
  A total = 0;
  for (long long row = first + line; there && row < end; row += {_LINES}) total += (A)x[row * columns + column];
  sums[line][lane] = total;
  __syncthreads();
  if (line == 0 && there) {{
    for (int n = 1; n < {_LINES}; n++) total += sums[n][lane];
    parts[blockIdx.y * columns + column] = total;
  }}
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(ended + blockIdx.x, 1u) == gridDim.y - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  total = 0;
  for (long long part = line; there && part < gridDim.y; part += {_LINES}) total += parts[part * columns + column];
  sums[line][lane] = total;
  __syncthreads();
  if (line == 0 && there) {{
    for (int n = 1; n < {_LINES}; n++) total += sums[n][lane];
    out[column] = (U)total;
  }}
}}
"""


# By the types of operand and result: the latter's own, or what 16 bits are added up in.
_kernels = {
    (dtype, result): raw(_CODE, "column_sums", T=dtype, U=result, A=accumulator(dtype))
    for dtype in NAMES
    for result in {dtype, accumulator(dtype)}
}


def sum(
    input: Array, dim: int | tuple[int, ...] | None = None, keepdim: bool = False, dtype: Any = None
) -> Array:
    """The sum of contiguous floats over their first dimensions; `NotImplemented` for others, and for results of other types."""
    if dim is None or input.ndim < 2 or not input.flags.c_contiguous or not computes(input):
        return NotImplemented
    kernel = _kernels.get((input.dtype, input.dtype if dtype is None else np.dtype(numpy_of(dtype))))
    if kernel is None:
        return NotImplemented
    dims = sorted(d + input.ndim if d < 0 else d for d in ((dim,) if isinstance(dim, int) else dim))
    lead = len(dims)
    rows, kept = math.prod(input.shape[:lead]), input.shape[lead:]
    if dims != list(range(lead)) or not kept or rows < 4 * _LINES:
        return NotImplemented
    columns = input.size // rows
    across = -(-columns // 32)
    height = max(4 * _LINES, -(-rows * across // _BLOCKS))
    down = -(-rows // height)
    parts = cupy.empty((down, columns), accumulator(input.dtype))
    result = input.dtype if dtype is None else numpy_of(dtype)
    out = cupy.empty((1,) * lead + kept if keepdim else kept, result)
    ended = cupy.zeros(across, np.uint32)
    arguments = (input, out, parts, ended, *map(np.int64, (rows, columns, height)))
    kernel((across, down), (32 * _LINES,), arguments)
    return out

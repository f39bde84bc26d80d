"""Convolutions in 16 bits by tensor cores: products with patches that are read where they are, in one launch.

A block has 64 channels and 64 pixels, or for the weight's gradient 64 places of the kernel. It takes 32 terms of their sums at a time
to shared memory: for each a weight, and what the pixel meets at a *tap*, which is a channel and a displacement. The gradient of the input
is a convolution of the output's gradient. That of the weight is summed over pixels in parts, and these in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

from ..windows import Ints, convolved_size
from .capture import constant, here
from .tensor_cores import ROWS, THREADS, TYPES, available, kernel

Array = Any

_PARTS = 1024  # blocks at most for the weight's gradient, so that all of a GPU has work
_TERMS = 32  # in shared memory

_SHARED = r"""
// Sizes of the image and of the positions in it: position p is p * by + a tap's displacement, in steps of 1 / step.
struct Grid { int image[3], size[3], by[3], step[3]; };
struct Position { int at[3]; };
__device__ __forceinline__ Position position(const Grid& grid, int p) {
  Position found;
  #pragma unroll
  for (int d = 2; d >= 0; d--) {
    found.at[d] = p % grid.size[d] * grid.by[d];
    p /= grid.size[d];
  }
  return found;
}
// The element of the image at a tap, (where its channel begins, displacements); zero beside the image.
__device__ __forceinline__ T met(const T* image, const int4& tap, const Position& place, const Grid& grid) {
  int at[3] = {place.at[0] + tap.y, place.at[1] + tap.z, place.at[2] + tap.w};
  bool inside = true;
  #pragma unroll
  for (int d = 0; d < 3; d++) {
    if (SPREAD) {
      inside &= at[d] % grid.step[d] == 0;
      at[d] /= grid.step[d];
    }
    inside &= (unsigned)at[d] < (unsigned)grid.image[d];
  }
  return inside ? image[tap.x + (at[0] * grid.image[1] + at[1]) * grid.image[2] + at[2]] : (T)0.f;
}
"""
# Rows are channels of the result, and `inner` taps of a group make the sum.
_PIXELS = rf"""
extern "C" __global__ void __launch_bounds__({THREADS}) ddpgrad_convolution_tiles(
    const T* images, const T* weight, const T* bias, T* out, const int4* taps, Grid grid,
    size pixels, int each, int rows, int inner, size image_size, size group_size, int groups) {{
  __shared__ __align__(16) T left[{ROWS} * WIDTH];
  __shared__ __align__(16) T right[TILE * WIDTH];
  const int first = blockIdx.y % ((rows + {ROWS - 1}) / {ROWS}) * {ROWS};
  const int group = blockIdx.y / ((rows + {ROWS - 1}) / {ROWS});
  const size start = (size)blockIdx.x * TILE, pixel = start + threadIdx.x % TILE;
  const bool there = pixel < pixels;
  const Position place = position(grid, pixel % each);
  const T* image = images + pixel / each * image_size + group * group_size;
  const T* weights = weight + ((size)group * rows + first) * inner;
  float x[TILE / 8][4] = {{}};
  for (int k = 0; k < inner; k += DEPTH) {{
    __syncthreads();
    for (int i = threadIdx.x; i < {ROWS} * DEPTH; i += {THREADS}) {{
      const int row = i / DEPTH, term = i % DEPTH;
      left[row * WIDTH + term] = first + row < rows && k + term < inner ? weights[(size)row * inner + k + term] : (T)0.f;
    }}
    const int own = threadIdx.x / TILE * (DEPTH / 2); // half of the pixel's terms
    #pragma unroll
    for (int part = own; part < own + DEPTH / 2; part += 8) {{
      __align__(16) T eight[8];
      #pragma unroll
      for (int n = 0; n < 8; n++) {{
        eight[n] = there && k + part + n < inner ? met(image, taps[k + part + n], place, grid) : (T)0.f;
      }}
      *(uint4*)(right + threadIdx.x % TILE * WIDTH + part) = *(const uint4*)eight;
    }}
    __syncthreads();
    add_products<TILE>(x, left, right);
  }}
  #pragma unroll
  for (int n = 0; n < TILE / 8; n++) {{
    #pragma unroll
    for (int j = 0; j < 4; j++) {{
      const int row = first + ROW(j);
      const size at = start + COLUMN(n, j);
      if (row < rows && at < pixels) {{
        const size channel = (size)group * rows + row;
        out[(at / each * groups * rows + channel) * each + at % each] = (T)(x[n][j] + (bias ? (float)bias[channel] : 0.f));
      }}
    }}
  }}
}}
"""
# Rows are channels of the gradient, columns taps; each block sums over `share` pixels.
_WEIGHTS = rf"""
extern "C" __global__ void __launch_bounds__({THREADS}) ddpgrad_convolution_tiles_weight(
    const T* images, const T* grad, float* parts, const int4* taps, Grid grid,
    size pixels, int each, int rows, int inner, size image_size, size group_size, int groups, size share) {{
  __shared__ __align__(16) T left[{ROWS} * WIDTH];
  __shared__ __align__(16) T right[TILE * WIDTH];
  const int first = blockIdx.y % ((rows + {ROWS - 1}) / {ROWS}) * {ROWS};
  const int group = blockIdx.y / ((rows + {ROWS - 1}) / {ROWS});
  const int column = blockIdx.x * TILE;
  const size end = min(pixels, (blockIdx.z + 1) * share);
  float x[TILE / 8][4] = {{}};
  for (size k = blockIdx.z * share; k < end; k += DEPTH) {{
    const size pixel = k + threadIdx.x % DEPTH, which = pixel / each;
    const bool there = pixel < end;
    const Position place = position(grid, pixel % each);
    const T* image = images + which * image_size + group * group_size;
    const T* given = grad + (which * groups * rows + (size)group * rows + first) * each + pixel % each;
    __syncthreads();
    for (int row = threadIdx.x / DEPTH; row < {ROWS}; row += {THREADS} / DEPTH) {{
      left[row * WIDTH + threadIdx.x % DEPTH] = there && first + row < rows ? given[(size)row * each] : (T)0.f;
      right[row * WIDTH + threadIdx.x % DEPTH] =
          there && column + row < inner ? met(image, taps[column + row], place, grid) : (T)0.f;
    }}
    __syncthreads();
    add_products<TILE>(x, left, right);
  }}
  float* part = parts + ((size)blockIdx.z * groups + group) * rows * inner;
  #pragma unroll
  for (int n = 0; n < TILE / 8; n++) {{
    #pragma unroll
    for (int j = 0; j < 4; j++) {{
      const int row = first + ROW(j), at = column + COLUMN(n, j);
      if (row < rows && at < inner) part[(size)row * inner + at] = x[n][j];
    }}
  }}
}}
"""


def _made(body: str, name: str, spread: bool) -> dict[Any, Any]:
    code = f"#define SPREAD {int(spread)}\n{_SHARED}{body}"
    return {dtype: kernel(code, f"convolution_tiles{name}", dtype, _TERMS, ROWS) for dtype in TYPES}


_pixels = _made(_PIXELS, "", False)
_spread = _made(_PIXELS, "", True)  # for the input's gradient of a convolution with a stride
_weights = _made(_WEIGHTS, "_weight", False)


def handles(image: Ints, weight: Ints, dtype: Any, groups: int) -> bool:
    """Whether the kernels pay for arrays of these shapes and this type: not where a group has few channels."""
    few = min(weight[0] // groups, math.prod(weight[1:]))
    small = math.prod(image[1:]) < 2**31 and len(weight) <= 5
    return dtype in TYPES and few >= 16 and small and available()


def convolution(
    input: Array, weight: Array, bias: Array | None, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    """As `conv.convolution`, of what `handles` is true for."""
    size = convolved_size(input.shape[2:], weight.shape[2:], stride, padding, dilation)
    taps = _taps(weight.shape[1], weight.shape[2:], input.shape[2:], dilation, [-p for p in padding])
    return _convolved(_pixels, input, weight, bias, size, taps, stride, (1,), groups)


def convolution_input(
    grad: Array, weight: Array, input_shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    """As `conv.convolution_input`, of what `handles` is true for."""
    channels, kernel_size = weight.shape[1], weight.shape[2:]
    across = weight.reshape(groups, len(weight) // groups, channels, *kernel_size).swapaxes(1, 2)
    across = across.reshape(groups * channels, len(weight) // groups, *kernel_size)
    taps = _taps(across.shape[1], kernel_size, grad.shape[2:], [-d for d in dilation], padding)
    kernels = _pixels if all(s == 1 for s in stride) else _spread
    return _convolved(kernels, grad, across, None, input_shape[2:], taps, (1,), stride, groups)


def convolution_weight(
    grad: Array, input: Array, weight_shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    """As `conv.convolution_weight`, of what `handles` is true for."""
    taps = _taps(weight_shape[1], weight_shape[2:], input.shape[2:], dilation, [-p for p in padding])
    rows, inner, size = weight_shape[0] // groups, math.prod(weight_shape[1:]), grad.shape[2:]
    each, pixels = math.prod(size), len(grad) * math.prod(size)
    blocks = (-(-inner // ROWS), -(-rows // ROWS) * groups)
    # As many parts as give each GPU the same sums.
    count = max(1, min(_PARTS // (blocks[0] * blocks[1]), pixels // (8 * _TERMS)))
    share = -(-pixels // (count * _TERMS)) * _TERMS
    parts = cupy.empty((-(-pixels // share), *weight_shape), np.float32)
    input, grad = cupy.ascontiguousarray(input), cupy.ascontiguousarray(grad)
    sizes = _sizes(input, _grid(input.shape[2:], size, stride, (1,)), each, rows, inner, groups)
    _weights[input.dtype](
        (*blocks, len(parts)), (THREADS,), (input, grad, parts, taps, *sizes, np.int64(share))
    )
    return (parts[0] if len(parts) == 1 else parts.sum(0)).astype(grad.dtype)


def _convolved(
    kernels: Any,
    images: Array,
    weight: Array,
    bias: Array | None,
    size: Ints,
    taps: Array,
    by: Ints,
    step: Ints,
    groups: int,
) -> Array:
    """What `weight` (O, C/groups, *kernel) makes of images (N, C, *size) at positions by * p in steps of 1 / step."""
    rows, inner, each = len(weight) // groups, math.prod(weight.shape[1:]), math.prod(size)
    images, weight = cupy.ascontiguousarray(images), cupy.ascontiguousarray(weight)
    out = cupy.empty((len(images), len(weight), *size), images.dtype)
    added = np.uintp(0) if bias is None else cupy.ascontiguousarray(bias)
    sizes = _sizes(images, _grid(images.shape[2:], size, by, step), each, rows, inner, groups)
    blocks = -(-len(images) * each // ROWS), -(-rows // ROWS) * groups
    kernels[images.dtype](blocks, (THREADS,), (images, weight, added, out, taps, *sizes))
    return out


def _sizes(images: Array, grid: Any, each: int, rows: int, inner: int, groups: int) -> tuple[Any, ...]:
    """The arguments of the kernels from `grid` to `groups`."""
    image = math.prod(images.shape[1:])
    return (
        grid, np.int64(len(images) * each), np.int32(each), np.int32(rows), np.int32(inner),
        np.int64(image), np.int64(image // groups), np.int32(groups),
    )  # fmt: skip


def _grid(image: Ints, size: Ints, by: Ints, step: Ints) -> Any:
    """The kernels' Grid; missing dimensions, which come first, have size 1."""
    by, step = (tuple(x) * (len(size) // len(x)) for x in (by, step))
    full = [(1,) * (3 - len(size)) + tuple(x) for x in (image, size, by, step)]
    return np.array(full, np.int32).reshape(12).view("V48")  # one item, which CuPy passes by value


def _taps(channels: int, kernel: Ints, image: Ints, by: Sequence[int], shift: Sequence[int]) -> Array:
    """(channels * places of the kernel, 4): where the channel begins in an image, and place * by + shift."""
    return _tap_table(channels, tuple(kernel), math.prod(image), tuple(by), tuple(shift), here())


@lru_cache(maxsize=1024)
def _tap_table(channels: int, kernel: Ints, each: int, by: Ints, shift: Ints, where: Ints) -> Array:
    places = np.indices(kernel).reshape(len(kernel), -1).T * by + shift
    table = np.zeros((channels, len(places), 4), np.int32)
    table[..., 0] = np.arange(channels)[:, None] * each
    table[..., 4 - len(kernel) :] = places
    return constant(table.reshape(-1, 4))

"""Tensor cores in kernels of our own: products of tiles in shared memory, in 16 bits with sums in float32.

A block is four warps, each of which has 16 of its 64 rows. PTX's `mma` multiplies a (16, 16) and an (8, 16) matrix, and
`ldmatrix` brings four (8, 8) matrices from shared memory to where it wants them: lane 4 r + c has, of each row r of 8, the elements
2 c and 2 c + 1 in one word. A compiler that is not NVIDIA's brings `warp_product` and `warp_matrices` itself.
"""

from __future__ import annotations

from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

from ..dtype import bfloat16

ROWS = 64
"""Of a block."""

THREADS = 128
"""Of a block: four warps."""

TYPES = {np.dtype(np.float16): "__half", bfloat16.numpy: "__nv_bfloat16"}
"""What tensor cores multiply here, by its name in CUDA C++."""

_CODE = r"""
#ifdef __CUDACC__
__device__ __forceinline__ void warp_matrices(unsigned* w, const void* row) {
  const unsigned at = (unsigned)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ void warp_matrices_transposed(unsigned* w, const void* row) {
  const unsigned at = (unsigned)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(at) : "memory");
}
#define WARP_PRODUCT(TYPE, NAME)                                                                        \
  __device__ __forceinline__ void warp_product(float* d, const unsigned* a, const unsigned* b, TYPE) {  \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 "                         \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                      \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                   \
  }
WARP_PRODUCT(__half, "f16")
WARP_PRODUCT(__nv_bfloat16, "bf16")
#endif
typedef long long size;
__device__ __forceinline__ unsigned pair(float low, float high) {
  __align__(4) const T both[2] = {(T)low, (T)high};
  return *(const unsigned*)both;
}
// x (16, COUNT) += the warp's rows of `left` @ the rows of `right`, transposed; rows of DEPTH elements, WIDTH apart.
template <int COUNT> __device__ __forceinline__ void add_products(float (*x)[4], const T* left, const T* right) {
  const int lane = threadIdx.x % 32;
  const T* from = left + (threadIdx.x / 32 * 16 + lane % 16) * WIDTH + lane / 16 * 8;
  const T* of = right + (lane / 16 * 8 + lane % 8) * WIDTH + lane / 8 % 2 * 8;
  #pragma unroll
  for (int k = 0; k < DEPTH; k += 16) {
    unsigned a[4], b[4];
    warp_matrices(a, from + k);
    #pragma unroll
    for (int n = 0; n < COUNT / 8; n += 2) {
      warp_matrices(b, of + n * 8 * WIDTH + k);
      warp_product(x[n], a, b, T());
      warp_product(x[n + 1], a, b + 2, T());
    }
  }
}
// Lane's place in a tile: of element j of x[n].
#define ROW(j) (threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + (j) / 2 * 8)
#define COLUMN(n, j) ((n) * 8 + threadIdx.x % 4 * 2 + (j) % 2)
"""


def kernel(body: str, name: str, dtype: Any, depth: int, tile: int) -> Any:
    """A kernel `ddpgrad_NAME` of T, which CUDA compiles when it is first launched.

    depth: DEPTH, elements of a row in shared memory, which is WIDTH from the next. tile: TILE, rows of the right side.
    """
    sizes = {"DEPTH": depth, "WIDTH": depth + 8, "TILE": tile}  # 8 more, so that rows begin in other banks
    lines = ["#include <cuda_fp16.h>", "#include <cuda_bf16.h>", f"typedef {TYPES[dtype]} T;"]
    lines += [f"#define {size} {value}" for size, value in sizes.items()]
    return cupy.RawKernel("\n".join([*lines, _CODE, body]), f"ddpgrad_{name}")


def available() -> bool:
    """Whether the current GPU has the instructions: since compute capability 8.0."""
    return int(cupy.cuda.Device().compute_capability) >= 80

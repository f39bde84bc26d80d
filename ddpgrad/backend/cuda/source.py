"""What the CUDA kernels share: CUDA C++ for accumulating and for working with warps, and checks.

Kernels that reduce rows are written as `ElementwiseKernel`s over raw, C-contiguous arrays
with one warp, 32 consecutive indices, per row: `row = i / 32`, `lane = i % 32`. The number of
indices is a multiple of 32 and so is a block, so that the lanes of a warp stay together. Sums
are taken in one order only, which the shapes decide.
"""

from __future__ import annotations

from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

from .tensor_cores import TYPES

WARP = 32

# accumulator<T>: the type in which values of type T are computed with and added up.
PREAMBLE = r"""
template <class V> struct accumulator { typedef float type; };
template <> struct accumulator<double> { typedef double type; };
template <> struct accumulator<long long> { typedef long long type; };
template <> struct accumulator<int> { typedef int type; };
template <> struct accumulator<short> { typedef short type; };
template <> struct accumulator<signed char> { typedef signed char type; };
template <> struct accumulator<unsigned char> { typedef unsigned char type; };
template <> struct accumulator<bool> { typedef bool type; };

template <class V> __device__ V larger(V a, V b) { return a > b || a != a ? a : b; }

template <class V> __device__ V warp_sum(V v) {
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
  return v;
}

template <class V> __device__ V warp_max(V v) {
  for (int step = 16; step > 0; step /= 2) v = larger(v, __shfl_xor_sync(0xffffffffu, v, step));
  return v;
}
"""

NAMES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double", **TYPES}
"""The floating-point types that kernels are made for, by what CUDA C++ calls them."""


def has_type(array: Any) -> bool:
    """True for an array of a floating-point type that kernels are made for."""
    return array.dtype in NAMES


def computes(*arrays: Any) -> bool:
    """True for arrays, None left out, of one floating-point type, the first of which has elements."""
    dtype = arrays[0].dtype
    return dtype in NAMES and arrays[0].size > 0 and all(a is None or a.dtype == dtype for a in arrays)


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The floating-point type that kernels compute in for arrays of `dtype`."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def elementwise(inputs: str, outputs: str, operation: str, name: str, functions: str = "") -> Any:
    """A kernel of one index per element (or per warp lane); A is the accumulator of T. functions: its own, in C++."""
    return cupy.ElementwiseKernel(
        inputs,
        outputs,
        f"typedef accumulator<T>::type A;\n{operation}",
        f"ddpgrad_{name}",
        preamble=PREAMBLE + functions,
    )


def raw(code: str, name: str, **types: np.dtype[Any]) -> Any:
    """The kernel `ddpgrad_NAME` in `code`, where `types` have the names that they are given by."""
    includes = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    names = "".join(f"typedef {NAMES[dtype]} {letter};\n" for letter, dtype in types.items())
    return cupy.RawKernel(includes + names + PREAMBLE + code, f"ddpgrad_{name}")


def contiguous(array: Any) -> Any:
    """The array, or a copy, with its elements in C order: what a raw argument must be."""
    return cupy.ascontiguousarray(array) if array.ndim else array

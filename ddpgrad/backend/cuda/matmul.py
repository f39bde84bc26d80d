"""Matrix products by cuBLAS, in all floating-point types, without copies of transposed operands.

`cupy.matmul` copies transposed operands of stacks, computes stacks of float16 in float32 and has
no stacks of bfloat16. Half types are accumulated in float32 here; float32 is rounded to TF32 where the program allows it.
"""

from __future__ import annotations

import math
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np
from cupy.cuda import device as cupy_device  # pyright: ignore[reportMissingImports]
from cupy_backends.cuda.libs import cublas  # pyright: ignore[reportMissingImports]

from ..device import capturing, float32_precision
from ..dtype import bfloat16

Array = Any

# 1 and 0 in host memory, where cuBLAS reads them, by the type that is accumulated in.
_SCALARS = {double: np.array([1, 0], np.float64 if double else np.float32) for double in (False, True)}
_ADDRESSES = {
    double: (scalars.ctypes.data, scalars.ctypes.data + scalars.itemsize)
    for double, scalars in _SCALARS.items()
}
_TYPES = {
    np.dtype(np.float16): cupy.cuda.runtime.CUDA_R_16F,
    bfloat16.numpy: cupy.cuda.runtime.CUDA_R_16BF,
    np.dtype(np.float32): cupy.cuda.runtime.CUDA_R_32F,
    np.dtype(np.float64): cupy.cuda.runtime.CUDA_R_64F,
}


def matmul(input: Array, other: Array) -> Array:
    """(..., n, k) @ (..., k, m) with broadcasting; `NotImplemented` for integers and complex numbers."""
    if input.dtype not in _TYPES or input.dtype != other.dtype:
        return NotImplemented
    a = input[None, :] if input.ndim == 1 else input
    b = other[:, None] if other.ndim == 1 else other
    out = product(a, b)
    if input.ndim > 1 and other.ndim > 1:
        return out
    rows = () if input.ndim == 1 else out.shape[-2:-1]
    columns = () if other.ndim == 1 else out.shape[-1:]
    return out.reshape((*out.shape[:-2], *rows, *columns))


def linear(input: Array, weight: Array, bias: Array | None = None) -> Array:
    """input (*, K) @ weight (N, K) transposed + bias (N,), added where the product is accumulated: rounded once."""
    if weight.ndim == 1:
        return NotImplemented
    if bias is None or input.dtype not in _TYPES or not input.dtype == weight.dtype == bias.dtype:
        return matmul(input, weight.T) if bias is None else NotImplemented
    out = cupy.empty((math.prod(input.shape[:-1]), len(weight)), input.dtype)
    out[...] = bias
    product(input.reshape(len(out), weight.shape[1]), weight.T, onto=out)
    return out.reshape(*input.shape[:-1], len(weight))


def weight_gradient(g: Array, input: Array, target: Any) -> Array:
    """g (M, N) transposed @ input (M, K), in the type of `target`, the node it goes to, and in the memory that it has for it."""
    if g.dtype not in _TYPES or input.dtype != g.dtype:
        return NotImplemented
    wider = g.dtype.itemsize == 2 and target.dtype == np.float32
    memory = target.memory()
    if memory is not None and (
        memory.__class__ is not cupy.ndarray or not (wider or memory.dtype == g.dtype)
    ):
        memory = None
    return product(g.T, input, target.dtype if wider else None, into=memory)


def product(
    a: Array, b: Array, dtype: Any = None, onto: Array | None = None, into: Array | None = None
) -> Array:
    """`a` (..., n, k) @ `b` (..., k, m) of one floating-point type as a C-contiguous array.

    dtype: the result's type, by default that of the operands; float32 for half types keeps what
    the accumulation had. onto, into: such an array, which the product is added to, or put into, in place of a new one.
    """
    if onto is not None:
        dtype = onto.dtype
    dtype = a.dtype if dtype is None else np.dtype(dtype)
    (n, k), m = a.shape[-2:], b.shape[-1]
    if a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous and into is None:
        # One large product instead of a stack of small ones.
        rows = math.prod(a.shape[:-1])
        flat = product(a.reshape(rows, k), b, dtype, None if onto is None else onto.reshape(rows, m))
        return flat.reshape(*a.shape[:-1], m)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = next((x for x in (onto, into) if x is not None), None)
    out = cupy.empty((*lead, n, m), dtype) if out is None else out
    if k == 0 and onto is None:
        out.fill(0)
    if k == 0 or out.size == 0:
        return out
    a, transposed_a, width_a, step_a = _operand(a, lead)
    b, transposed_b, width_b, step_b = _operand(b, lead)
    double = bool(dtype == np.float64)
    compute = cublas.CUBLAS_COMPUTE_64F if double else cublas.CUBLAS_COMPUTE_32F
    if a.dtype == np.float32 and float32_precision.get() != "highest":
        compute = cublas.CUBLAS_COMPUTE_32F_FAST_TF32
    one, zero = _ADDRESSES[double]
    kept = zero if onto is None else one
    now = capturing.now
    library, handle = (cublas, cupy_device.get_cublas_handle()) if now is None else now.cublas()
    kind_a, kind_b, kind_out = _TYPES[a.dtype], _TYPES[b.dtype], _TYPES[dtype]
    # cuBLAS reads and writes by columns, and so finds every matrix transposed: out^T = b^T @ a^T.
    shape = (transposed_b, transposed_a, m, n, k)
    algorithm = cublas.CUBLAS_GEMM_DEFAULT
    if math.prod(lead) == 1:
        library.gemmEx(
            handle, *shape, one, b.data.ptr, kind_b, width_b, a.data.ptr, kind_a, width_a,
            kept, out.data.ptr, kind_out, m, compute, algorithm,
        )  # fmt: skip
    else:
        library.gemmStridedBatchedEx(
            handle, *shape, one, b.data.ptr, kind_b, width_b, step_b, a.data.ptr, kind_a, width_a, step_a,
            kept, out.data.ptr, kind_out, m, n * m, math.prod(lead), compute, algorithm,
        )  # fmt: skip
    return out


def _operand(x: Array, lead: tuple[int, ...]) -> tuple[Array, int, int, int]:
    """(array, operation, leading dimension, step between matrices) of the stack `x` broadcast to `lead`.

    The array is `x` itself where cuBLAS can read its matrices in place, else a copy.
    """
    x = cupy.broadcast_to(x, (*lead, *x.shape[-2:]))
    x = readable(x)
    layout, step = _layout(x), _step(x)
    assert layout is not None and step is not None
    return x, *layout, step


def readable(x: Array) -> Array:
    """A stack of matrices, or a copy that cuBLAS can read in place: for an operand of several products."""
    return x if readable_in_place(x) else cupy.ascontiguousarray(x)


def readable_together(*stacks: Array) -> list[Array]:
    """As `readable` of each; by one copy for stacks that lie equally far apart, as parts of one product do."""
    first, second = stacks[:2]
    apart = second.data.ptr - first.data.ptr
    alike = apart > 0 and all(
        x.shape == first.shape and x.strides == first.strides and x.data.ptr == first.data.ptr + n * apart
        for n, x in enumerate(stacks)
    )
    if not alike or readable_in_place(first):
        return [readable(x) for x in stacks]
    whole = cupy.ndarray((len(stacks), *first.shape), first.dtype, first.data, (apart, *first.strides))
    return list(cupy.ascontiguousarray(whole))


def readable_in_place(x: Array) -> bool:
    """Whether cuBLAS can read a stack of matrices where it lies."""
    return _layout(x) is not None and _step(x) is not None


def _layout(x: Array) -> tuple[int, int] | None:
    """(operation, leading dimension) by which cuBLAS reads the matrices of `x` transposed, if it can."""
    rows, columns = x.shape[-2:]
    down, right = (s // x.itemsize for s in x.strides[-2:])
    if (right == 1 or columns == 1) and (down >= columns or rows == 1):
        return cublas.CUBLAS_OP_N, down if rows > 1 else columns
    if (down == 1 or rows == 1) and (right >= rows or columns == 1):
        return cublas.CUBLAS_OP_T, right if columns > 1 else rows
    return None


def _step(x: Array) -> int | None:
    """Elements from each matrix of `x` to the next, if that is one number (0 where all are the same)."""
    first = following = None
    for length, stride in zip(reversed(x.shape[:-2]), reversed(x.strides[:-2]), strict=True):
        if length == 1:
            continue
        if first is None:
            first = stride
        elif stride != following:
            return None
        following = stride * length
    if first is None:
        return 0
    return first // x.itemsize if first >= 0 else None

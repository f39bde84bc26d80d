"""Matrix products by Intel's MKL, where PyPI's `mkl` is installed on an Intel processor with vectors of 512 bits.

Whether it is used, and for which products, depends on the installation, the processor and the shape, never on a measurement.
It computes in the thread that calls it, in its strict mode of reproducible results: an element has the same bits wherever
the operands lie, and however rows and columns are divided among threads.
"""

from __future__ import annotations

import ctypes
import functools
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core import environment
from ..dtype import bfloat16

Array = np.ndarray[Any, Any]

# Multiplications of a product, below which the call costs what is gained: in float32 or float64, and in bfloat16.
LEAST, LEAST_OF_HALVES = 1 << 22, 1 << 18
_FEW = 16  # rows, columns or terms, below which a product is no product of blocks

_BY_ROWS, _PLAIN, _TURNED = 101, 111, 112  # of CBLAS
_SEQUENTIAL = 1
_AVX512, _STRICT, _ALL = 12, 0x10000, -1  # MKL_CBWR_AVX512, MKL_CBWR_STRICT, MKL_CBWR_ALL


class _Library(NamedTuple):
    version: str
    products: dict[np.dtype[Any], Callable[..., None]]  # by the type of the operands


def chosen() -> str | None:
    """The version of MKL that multiplies in this process; None where NumPy's BLAS does."""
    library = _library()
    return library and library.version


def takes(left: Array, right: Array, out: Array | None = None) -> bool:
    """Whether MKL multiplies left (*, M, K) and right (*, K, N), in place of NumPy and of products of this package."""
    rows, (length, columns) = left.shape[-2], right.shape[-2:]
    least = LEAST_OF_HALVES if left.dtype.itemsize == 2 else LEAST
    return (
        rows * length * columns >= least
        and left.__class__ is right.__class__ is np.ndarray
        and left.dtype == right.dtype
        and min(rows, length, columns) >= _FEW
        and left.shape[-1] == length  # NumPy refuses others
        and (library := _library()) is not None
        and left.dtype in library.products
        and _form(left) is not None
        and _form(right) is not None
        and (out is None or (_form(out) or (0,))[0] == _PLAIN)
    )


def product(left: Array, right: Array, out: Array | None = None) -> Array:
    """numpy.matmul of what `takes` is true for; of bfloat16 in float32, which is not rounded."""
    library = _library()
    assert library is not None
    multiply = library.products[left.dtype]
    lead = left.shape[:-2]
    if lead != right.shape[:-2]:
        lead = np.broadcast_shapes(lead, right.shape[:-2])
        left, right = (np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (left, right))
    if out is None:
        kind = np.float32 if left.dtype.itemsize == 2 else left.dtype
        out = np.empty((*lead, left.shape[-2], right.shape[-1]), kind)
    (rows, length), columns = left.shape[-2:], right.shape[-1]
    (turn, pitch), (other_turn, other_pitch), (_, out_pitch) = map(_form, (left, right, out))  # type: ignore[misc]
    for index in np.ndindex(lead):
        multiply(
            _BY_ROWS, turn, other_turn, rows, columns, length,
            1.0, left[index].ctypes.data, pitch, right[index].ctypes.data, other_pitch,
            0.0, out[index].ctypes.data, out_pitch,
        )  # fmt: skip
    return out


def _form(matrices: Array) -> tuple[int, int] | None:
    """How CBLAS reads matrices where they lie: as they are or turned, and the elements between two of their lines."""
    down, along = matrices.strides[-2:]
    size = matrices.itemsize
    if along == size and down >= matrices.shape[-1] * size and down % size == 0:
        return _PLAIN, down // size
    if down == size and along >= matrices.shape[-2] * size and along % size == 0:
        return _TURNED, along // size
    return None


@functools.cache
def _library() -> _Library | None:
    if not (environment.mkl_enabled() and environment.numba_enabled() and _fits()):
        return None
    try:
        installed = metadata.distribution("mkl")
    except metadata.PackageNotFoundError:
        return None
    files = [file for file in installed.files or () if file.name.startswith("libmkl_rt.so")]
    if not files:
        raise OSError(
            f"the package mkl {installed.version} holds no libmkl_rt.so: install it again, or set DDPGRAD_MKL=0 "
            "to multiply without it"
        )
    library = ctypes.CDLL(str(Path(str(installed.locate_file(files[0]))).resolve()))
    # Both can be said until MKL has computed something, for somebody else then, in a way of theirs.
    layer, _ = library.MKL_Set_Threading_Layer(_SEQUENTIAL), library.MKL_CBWR_Set(_AVX512 | _STRICT)
    if layer != _SEQUENTIAL or library.MKL_CBWR_Get(_ALL) != _AVX512 | _STRICT:
        warnings.warn(
            "NumPy's BLAS multiplies in place of MKL, which another library of this process has used before, in a mode whose "
            "results depend on threads: import ddpgrad and multiply first, or set DDPGRAD_MKL=0",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    names = {
        np.float32: "cblas_sgemm_64",
        np.float64: "cblas_dgemm_64",
        bfloat16.numpy: "cblas_gemm_bf16bf16f32_64",
    }
    products = {}
    for kind, name in names.items():
        real = ctypes.c_double if kind is np.float64 else ctypes.c_float
        flag, size, place = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p
        products[np.dtype(kind)] = multiply = getattr(library, name)
        multiply.argtypes = [flag] * 3 + [size] * 3 + [real, place, size, place, size, real, place, size]
        multiply.restype = None
    return _Library(installed.version, products)


def _fits() -> bool:
    """Whether this is an Intel processor with vectors of 512 bits."""
    told = Path("/proc/cpuinfo")
    words = told.read_text().split() if told.exists() else ()
    return "GenuineIntel" in words and "avx512f" in words

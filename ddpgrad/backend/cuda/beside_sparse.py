"""Dense arrays beside sparse ones: CuPy's functions and operators do not ask a sparse operand, as NumPy's do."""

from __future__ import annotations

import functools
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

from ..registry import Backend, Kernel, SparseArray

Array = Any

# Kernels that a sparse operand computes itself, as it does for the ufuncs of NumPy.
_UFUNCS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "matmul": np.matmul}


class CudaBackend(Backend):
    """The kernels of CuPy's arrays, of which some take a sparse one beside them."""

    def find(self, name: str) -> Kernel:
        kernel = super().find(name)
        return _beside_sparse(name, kernel) if name in _UFUNCS else kernel


def _beside_sparse(name: str, kernel: Kernel) -> Kernel:
    @functools.wraps(kernel, assigned=("__name__", "__doc__"))
    def call(input: Any, other: Any, out: Any = None) -> Any:
        try:
            return kernel(input, other) if out is None else kernel(input, other, out)
        except (TypeError, AttributeError):  # what CuPy says of arrays that it does not know
            sparse: Any = input if isinstance(input, SparseArray) else other
            if not isinstance(sparse, SparseArray):
                raise
            made = sparse.__array_ufunc__(_UFUNCS[name], "__call__", input, other)
        if out is None:
            return made
        out[...] = made
        return out

    if hasattr(kernel, "nin"):  # by which in-place ops know a kernel that writes where it is told
        call.__dict__["nin"] = kernel.nin  # type: ignore[attr-defined]
    return call


def install() -> None:
    """Let `array += sparse` of CuPy's arrays add the stored elements."""
    plain = cupy.ndarray.__iadd__

    @functools.wraps(plain)
    def add(self: Array, other: Any) -> Array:
        return other.added_to(self, self) if isinstance(other, SparseArray) else plain(self, other)

    cupy.ndarray.__iadd__ = add

"""Dense arrays beside sparse ones: CuPy's functions and operators do not ask a sparse operand, as NumPy's do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]

from ..registry import Backend, Kernel, SparseArray

Array = Any

# With a sparse operand after a dense one.
_AFTER: dict[str, Callable[[Array, Any], Any]] = {
    "add": lambda dense, sparse: sparse.added_to(dense),
    "sub": lambda dense, sparse: sparse.added_to(dense, None, -1),
    "mul": lambda dense, sparse: sparse.times(dense),
    "matmul": lambda dense, sparse: sparse.T.dot(dense.T).T,
}
# With a sparse one first: gradient rules ask the backend of the other.
_FIRST: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda sparse, other: sparse + other,
    "sub": lambda sparse, other: sparse - other,
    "mul": lambda sparse, other: sparse.times(other),
    "matmul": lambda sparse, other: sparse.dot(other),
}


class CudaBackend(Backend):
    """The kernels of CuPy's arrays, of which some take a sparse one beside them."""

    def find(self, name: str) -> Kernel:
        kernel = super().find(name)
        return _beside_sparse(name, kernel) if name in _AFTER else kernel


def _beside_sparse(name: str, kernel: Kernel) -> Kernel:
    @functools.wraps(kernel, assigned=("__name__", "__doc__"))
    def call(input: Any, other: Any, out: Any = None) -> Any:
        try:
            return kernel(input, other) if out is None else kernel(input, other, out)
        except (TypeError, AttributeError):  # what CuPy says of arrays that it does not know
            if isinstance(input, SparseArray):
                made = _FIRST[name](input, other)
            elif isinstance(other, SparseArray):
                made = _AFTER[name](input, other)
            else:
                raise
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

"""Reductions, sums along a dimension and sorting."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ..dtype import numpy_of

Array = Any
Dim = int | tuple[int, ...] | None


def reductions(xp: ModuleType) -> dict[str, Any]:
    def _sum_type(input: Array) -> Any:
        """None (its own), or int64 for integers and bools."""
        return xp.int64 if input.dtype.kind in "bui" else None

    def sum(input: Array, dim: Dim = None, keepdim: bool = False, dtype: Any = None) -> Array:
        kind = _sum_type(input) if dtype is None else numpy_of(dtype)
        return input.sum(axis=dim, keepdims=keepdim, dtype=kind)  # the method is twice as fast as xp.sum

    def prod(input: Array, dim: Dim = None, keepdim: bool = False) -> Array:
        return xp.prod(input, axis=dim, keepdims=keepdim, dtype=_sum_type(input))

    def mean(input: Array, dim: Dim = None, keepdim: bool = False, dtype: Any = None) -> Array:
        return xp.mean(input, axis=dim, keepdims=keepdim, dtype=None if dtype is None else numpy_of(dtype))

    def amax(input: Array, dim: Dim = None, keepdim: bool = False) -> Array:
        return xp.max(input, axis=dim, keepdims=keepdim)

    def amin(input: Array, dim: Dim = None, keepdim: bool = False) -> Array:
        return xp.min(input, axis=dim, keepdims=keepdim)

    def argmax(input: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        return xp.argmax(input, axis=dim, keepdims=keepdim)

    def argmin(input: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        return xp.argmin(input, axis=dim, keepdims=keepdim)

    def any(input: Array, dim: Dim = None, keepdim: bool = False) -> Array:
        return xp.any(input, axis=dim, keepdims=keepdim)

    def all(input: Array, dim: Dim = None, keepdim: bool = False) -> Array:
        return xp.all(input, axis=dim, keepdims=keepdim)

    def cumsum(input: Array, dim: int) -> Array:
        if not input.ndim:  # NumPy makes one dimension of none
            return input.astype(_sum_type(input) or input.dtype)
        return xp.cumsum(input, axis=dim, dtype=_sum_type(input))

    def argsort(input: Array, dim: int = -1, descending: bool = False) -> Array:
        if not input.ndim:
            return xp.zeros((), xp.int64)
        if not descending:
            return xp.argsort(input, axis=dim, kind="stable")
        # Stable in descending order: sort the reversed array and read it backwards.
        last = input.shape[dim] - 1
        order = xp.argsort(xp.flip(input, dim), axis=dim, kind="stable")
        return last - xp.flip(order, dim)

    return {
        "sum": sum, "prod": prod, "mean": mean, "amax": amax, "amin": amin, "argmax": argmax, "argmin": argmin,
        "any": any, "all": all, "cumsum": cumsum, "argsort": argsort,
    }  # fmt: skip

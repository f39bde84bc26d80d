"""The array library of the meta device: NumPy's names, with new arrays that have no elements, for `elementary/`."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import functions
from .array import MetaArray, Shape

Array = Any


class Library:
    """`numpy`, but for the functions that make arrays and those on matrices."""

    __name__ = "meta"

    def __init__(self) -> None:
        self.empty = self.zeros = self.ones = functions.empty
        self.full, self.arange, self.eye = functions.full, functions.arange, functions.eye
        self.asarray, self.ascontiguousarray = functions.asarray, functions.ascontiguousarray
        self.array = functions.asarray
        self.linalg, self.fft = _matrix_functions(), _transforms()

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def _complex_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.result_type(dtype, np.complex64)


def real_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.abs(np.empty(0, dtype)).dtype


def _matrix_functions() -> SimpleNamespace:
    """`numpy.linalg`, for matrices (*, m, n) of floating-point and complex numbers."""

    def square(a: MetaArray) -> Shape:
        if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
            raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
        return a.shape

    def same(a: MetaArray) -> MetaArray:
        return MetaArray(square(a), a.dtype)

    def solve(a: MetaArray, b: MetaArray) -> MetaArray:
        lead = np.broadcast_shapes(square(a)[:-2], b.shape[:-2])
        if a.shape[-1] != b.shape[-2]:
            raise ValueError(
                f"solve: a matrix of shape {a.shape} and right-hand sides of shape {b.shape} do not fit"
            )
        return MetaArray((*lead, *b.shape[-2:]), np.result_type(a.dtype, b.dtype))

    def qr(a: MetaArray, mode: str = "reduced") -> tuple[MetaArray, MetaArray]:
        *lead, m, n = a.shape
        if mode == "raw":
            return MetaArray(a.shape, a.dtype).swapaxes(-1, -2), MetaArray((*lead, min(m, n)), a.dtype)
        k = m if mode == "complete" else min(m, n)
        return MetaArray((*lead, m, k), a.dtype), MetaArray((*lead, k, n), a.dtype)

    def svd(a: MetaArray, full_matrices: bool = True, compute_uv: bool = True) -> Any:
        *lead, m, n = a.shape
        k = min(m, n)
        values = MetaArray((*lead, k), real_of(a.dtype))
        if not compute_uv:
            return values
        left = MetaArray((*lead, m, m if full_matrices else k), a.dtype)
        return left, values, MetaArray((*lead, n if full_matrices else k, n), a.dtype)

    def eigvalsh(a: MetaArray, UPLO: str = "L") -> MetaArray:
        return MetaArray(square(a)[:-1], real_of(a.dtype))

    def eigvals(a: MetaArray) -> MetaArray:
        return MetaArray(square(a)[:-1], _complex_of(a.dtype))

    def det(a: MetaArray) -> MetaArray:
        return MetaArray(square(a)[:-2], a.dtype)

    return SimpleNamespace(
        inv=same, cholesky=same, solve=solve, qr=qr, svd=svd, eigvalsh=eigvalsh, eigvals=eigvals, det=det,
        eigh=lambda a, UPLO="L": (eigvalsh(a), same(a)),
        eig=lambda a: (eigvals(a), MetaArray(square(a), _complex_of(a.dtype))),
        slogdet=lambda a: (det(a), MetaArray(square(a)[:-2], real_of(a.dtype))),
    )  # fmt: skip


def _transforms() -> SimpleNamespace:
    """`numpy.fft`."""

    def along(a: MetaArray, axis: int, n: int, dtype: Any) -> MetaArray:
        shape = list(a.shape)
        shape[axis] = n
        return MetaArray(shape, dtype)

    def fftn(a: MetaArray, axes: Sequence[int], norm: str) -> MetaArray:
        return MetaArray(a.shape, _complex_of(a.dtype))

    def rfft(a: MetaArray, axis: int, norm: str) -> MetaArray:
        return along(a, axis, a.shape[axis] // 2 + 1, _complex_of(a.dtype))

    def irfft(a: MetaArray, n: int, axis: int, norm: str) -> MetaArray:
        return along(a, axis, n, real_of(a.dtype))

    return SimpleNamespace(fftn=fftn, ifftn=fftn, rfft=rfft, irfft=irfft)


LIBRARY = Library()

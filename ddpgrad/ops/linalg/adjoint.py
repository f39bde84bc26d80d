"""Transposes and conjugates of batches of matrices, over the vocabulary, for the rules of linear algebra."""

from __future__ import annotations

from typing import Any

from ..dispatch.vocabulary import VOCABULARY


def is_complex(x: Any) -> bool:
    """Whether an array or a Tensor is complex."""
    return getattr(x, "_array", x).dtype.kind == "c"


def transposed(F: Any, x: Any) -> Any:
    """The last two dimensions exchanged."""
    n = len(x.shape)
    return F.transpose(x, n - 2, n - 1)


def conjugate(F: Any, x: Any) -> Any:
    """The complex conjugate; of a real array, the array."""
    return F.conj(x) if is_complex(x) else x


def adjoint(F: Any, x: Any) -> Any:
    """Transposed and conjugated."""
    return conjugate(F, transposed(F, x))


def real_part(F: Any, x: Any) -> Any:
    """The real part; of a real array, the array."""
    return F.real(x) if is_complex(x) else x


def diagonal(F: Any, x: Any) -> Any:
    """The diagonals of the matrices, (..., n)."""
    n = len(x.shape)
    return F.diagonal(x, 0, n - 2, n - 1)


def conj(x: Any) -> Any:
    """`conjugate` of a Tensor."""
    return conjugate(VOCABULARY, x)

"""Helpers of distributions: broadcast parameters, probabilities and logits, lazy properties."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from ... import (
    Tensor,
    binary_cross_entropy_with_logits,
    broadcast_tensors,
    clamp,
    enable_grad,
    finfo,
    get_default_dtype,
    log,
    log1p,
    normal,
    sigmoid,
    tensor,
    tril_indices,
)
from ...nn.functional import softmax

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "standard_normal", "sum_rightmost",
    "tril_matrix_to_vec", "vec_to_tril_matrix",
]  # fmt: skip


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """`values`, numbers or tensors, as tensors of one shape; numbers take the type and device of the first tensor."""
    for value in values:
        if not isinstance(value, (Tensor, int, float)):
            raise ValueError(
                "Input arguments must all be instances of Number, torch.Tensor or objects implementing "
                f"__torch_function__; got {type(value).__name__}"
            )
    first = next((v for v in values if isinstance(v, Tensor)), None)
    dtype = get_default_dtype() if first is None else first.dtype
    device = None if first is None else first.device
    return tuple(
        broadcast_tensors(
            *[v if isinstance(v, Tensor) else tensor(v, dtype=dtype, device=device) for v in values]
        )
    )


def clamp_probs(probs: Tensor) -> Tensor:
    """`probs` kept away from 0 and 1 by the spacing of their type, so that logarithms stay finite."""
    eps = finfo(probs.dtype).eps
    return clamp(probs, min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log-odds of binary probabilities, or logarithms of the probabilities of categories."""
    clamped = clamp_probs(probs)
    return log(clamped) - log1p(-clamped) if is_binary else log(clamped)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities from log-odds, or from unnormalized log-probabilities of categories along the last dimension."""
    return sigmoid(logits) if is_binary else softmax(logits, dim=-1)


def binary_entropy(logits: Tensor, probs: Tensor) -> Tensor:
    """The entropy of a yes or no."""
    return binary_cross_entropy_with_logits(logits, probs, reduction="none")


def sum_rightmost(value: Tensor, dims: int) -> Tensor:
    """The sum over the last `dims` dimensions."""
    return value.flatten(-dims).sum(-1) if dims else value


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """What is on and below the diagonal `diag` of matrices (..., K, K), row by row, as vectors; ValueError for no diagonal."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = tril_indices(n, n, diag, device=mat.device)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Matrices (..., K, K) with vectors on and below the diagonal `diag` and zeros above: the inverse of the former.

    ValueError where no K has that many entries.
    """
    n = matrix_size(vec.shape[-1], diag)
    rows, columns = tril_indices(n, n, diag, device=vec.device)
    out = vec.new_zeros((*vec.shape[:-1], n, n))
    out[..., rows, columns] = vec
    return out


def matrix_size(entries: int, diag: int) -> int:
    """The K of matrices (K, K) with so many entries on and below the diagonal `diag`.

    It solves K (K + 1 + 2 diag) = 2 entries + |diag| (diag + 1).
    """
    middle = 1 + 2 * diag
    n = (math.sqrt(middle**2 + 8 * entries + 4 * abs(diag) * (diag + 1)) - middle) / 2
    if n != round(n):
        raise ValueError(
            f"The size of last dimension is {entries} which cannot be expressed as the lower triangular part of a square "
            "D x D matrix."
        )
    return round(n)


def standard_normal(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Standard normal numbers in the type and on the device of `like`."""
    return normal(0.0, 1.0, shape, dtype=like.dtype, device=like.device)


def _standard_normal(shape: tuple[int, ...], dtype: Any, device: Any) -> Tensor:
    """Standard normal numbers, by the name that subclasses of PyTorch's distributions call."""
    return normal(0.0, 1.0, tuple(shape), dtype=dtype, device=device)


_sum_rightmost = sum_rightmost


def unsaid(name: str) -> Any:
    """A property that a class is to give; NotImplementedError where it has not."""

    def get(self: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no {name}")

    return property(get)


def same_as(path: str) -> Any:
    """A property that is another attribute, by its path such as "loc" or "base_dist.loc"."""
    return property(attrgetter(path))


def formula(of: Callable[[Any], Any]) -> Any:
    """A property that is worked out of the parameters."""
    return property(of)


class LazyProperty:
    """A parameter that is made from others when it is first asked for, and kept, with gradients recorded."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        # It shadows this descriptor, which has no __set__, and of which a `__setattr__` of the class may ask.
        object.__setattr__(instance, self.wrapped.__name__, value)
        return value


def lazy_property(wrapped: Callable[[Any], Any]) -> Any:
    """Decorate a method whose result is made when it is first asked for, and kept; assigning replaces it."""
    return LazyProperty(wrapped)

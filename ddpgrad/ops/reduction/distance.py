"""Distances between the rows of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ..dispatch.declare import op
from ..dispatch.node import guarded
from ..dispatch.tensor_function import tensor_function
from ..linalg.norms import linalg_vector_norm
from ..shape import shape
from . import reduce
from .reduce import per_root

_MODES = {
    None: "if_necessary",
    "use_mm_for_euclid_dist_if_necessary": "if_necessary",
    "use_mm_for_euclid_dist": "always",
    "donot_use_mm_for_euclid_dist": "never",
}
# With more rows than this, PyTorch takes Euclidean distances from a matrix product.
_ROWS_FOR_MATMUL = 25


@tensor_function(method=False)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """The p-norm distance of each row of `x1` (…, P, M) to each of `x2` (…, R, M): (…, P, R).

    compute_mode: whether Euclidean distances come from a matrix product, which is faster and
    less exact: "use_mm_for_euclid_dist_if_necessary" (with more than 25 rows; the default),
    "use_mm_for_euclid_dist" or "donot_use_mm_for_euclid_dist".
    """
    if compute_mode not in _MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    for name, x in (("X1", x1), ("X2", x2)):
        if x.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D")
        if not x.is_floating_point():
            raise RuntimeError(f"cdist only supports floating-point dtypes, {name} got: {x.dtype.name}")
    if x1.dtype is not x2.dtype:
        raise RuntimeError(
            f"cdist: expected scalar type {x1.dtype.scalar_type} but found {x2.dtype.scalar_type}, the dtype of X2"
        )
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(
            f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}"
        )
    _require_order("cdist", p)
    many = max(x1.shape[-2], x2.shape[-2]) > _ROWS_FOR_MATMUL
    mode = _MODES[compute_mode]
    if p == 2 and (mode == "always" or (mode == "if_necessary" and many)):
        return euclidean_cdist(x1, x2)
    return guarded(_length(shape.unsqueeze(x1, -2) - shape.unsqueeze(x2, -3), p), x1, x2)


@tensor_function(method=False)
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm distance of every two rows of `input` (N, M), each pair once: (N * (N - 1) / 2,)."""
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    _require_order("pdist", p)
    first, second = np.triu_indices(input.shape[0], 1)
    return guarded(_length(input[first] - input[second], p), input)


def _require_order(name: str, p: float) -> None:
    if p < 0:
        raise RuntimeError(f"{name} only supports non-negative p values, got {p}")


def _length(difference: Tensor, p: float) -> Tensor:
    """The p-norm over the last dimension; 0 where that is empty."""
    return linalg_vector_norm(difference, p, -1) if difference.shape[-1] else reduce.sum(difference, -1)


def _cdist_rule(F: Any, g: Any, out: Any, x1: Any, x2: Any) -> Any:
    ratio = per_root(F, g, out)
    return x1 * F.sum(ratio, -1, True) - F.matmul(ratio, x2)


@op(
    grads={
        "x1": _cdist_rule,
        "x2": lambda F, g, out, x1, x2: _cdist_rule(
            F, F.transpose(g, -2, -1), F.transpose(out, -2, -1), x2, x1
        ),
    },
    promotion="same",
    samples=lambda rng: [
        ((rng.standard_normal(a), rng.standard_normal(b)), {})
        for a, b in (((3, 2), (4, 2)), ((2, 3, 2), (4, 2)))
    ],
    reference=lambda a, b: np.linalg.norm(a[..., :, None, :] - b[..., None, :, :], axis=-1),
    method=False,
    grad_name="CdistBackward0",
)
def euclidean_cdist(F: Any, x1: Tensor, x2: Tensor) -> Tensor:
    """Euclidean distances from |a|^2 + |b|^2 - 2 a.b, which is exact to about the square root of the precision."""
    squares = F.sum(x1 * x1, -1, True) + F.transpose(F.sum(x2 * x2, -1, True), -2, -1)
    return F.sqrt(F.clamp(squares - 2 * F.matmul(x1, F.transpose(x2, -2, -1)), 0, None))

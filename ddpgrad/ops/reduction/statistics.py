"""Variance, standard deviation and covariance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.errors import warn_program
from ...core.tensor import Tensor
from ..dispatch.declare import op
from ..dispatch.samples import reductions
from ..dispatch.tensor_function import require_flag, tensor_function
from ..elementwise import unary
from ..elementwise.conversion import to
from ..linalg import matrix
from ..shape import shape
from . import reduce
from .reduce import Dim, count, per_root, restore, spread, widened, wrap_dims


def _squares(F: Any, x: Any) -> Any:
    """|x|^2, in the real dtype."""
    return F.square(x.real) + F.square(x.imag) if x.dtype.kind == "c" else x * x


def _moments(F: Any, input: Any, dim: Dim, correction: float, keepdim: bool) -> tuple[Any, Any]:
    """The variance, and the mean with its dimensions kept, in the dtype in which sums are taken."""
    wide = F.cast(input, widened(input.dtype))
    centre = F.mean(wide, dim, True)
    squares = F.sum(_squares(F, wide - centre), dim, keepdim)
    freedom = count(input.shape, dim) - correction
    if freedom > 0:
        return F.asarray(squares / freedom), centre
    warn_program(
        "var(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel "
        "divided by output numel)."
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        return F.asarray(squares / 0), centre


def _in_type_of(F: Any, out: Any, input: Any) -> Any:
    return out if input.dtype.kind == "c" else F.cast(out, input.dtype)


def _var_rule(F: Any, g: Any, input: Any, dim: Dim, correction: float, keepdim: bool) -> Any:
    centred = input - F.mean(input, dim, True)
    freedom = count(input.shape, dim) - correction
    return (
        restore(F, g, tuple(input.shape), dim, keepdim) * centred * (2.0 / freedom if freedom else math.inf)
    )


def _adapt_var(
    input: Tensor, dim: Any = None, correction: Any = 1, keepdim: bool = False, unbiased: bool | None = None
) -> tuple[Any, ...]:
    if isinstance(dim, bool):  # var(unbiased)
        dim, correction = None, dim
    if unbiased is not None:
        require_flag("var", "unbiased", unbiased)
        correction = unbiased
    if input.dtype.category < 2:
        raise RuntimeError(
            f"std and var only support floating point and complex dtypes, got {input.dtype.name}. Use x.float()."
        )
    require_flag("var", "keepdim", keepdim)
    if correction is None:
        correction = 1
    dims = wrap_dims("var", dim, input.ndim)
    if input.ndim == 0:
        dims = None
    return input, dims, int(correction) if isinstance(correction, bool) else correction, keepdim, unbiased


@op(
    grads={"input": _var_rule},
    adapt=_adapt_var,
    samples=reductions,
    reference=lambda x, dim=None, keepdim=False: np.var(x, axis=dim, keepdims=keepdim, ddof=1),
)
def var(
    F: Any,
    input: Tensor,
    dim: Dim = None,
    correction: float = 1,
    keepdim: bool = False,
    unbiased: bool | None = None,
) -> Tensor:
    """The variance over `dim` (all by default), with `correction` degrees of freedom taken off.

    As in PyTorch, the third argument may be `unbiased`: True for a correction of 1, False for none.
    """
    return _in_type_of(F, _moments(F, input, dim, correction, keepdim)[0], input)


def _std_rule(F: Any, g: Any, out: Any, input: Any, dim: Dim, correction: float, keepdim: bool) -> Any:
    return _var_rule(F, per_root(F, g, out) * 0.5, input, dim, correction, keepdim)


@op(
    grads={"input": _std_rule},
    adapt=_adapt_var,
    samples=reductions,
    reference=lambda x, dim=None, keepdim=False: np.std(x, axis=dim, keepdims=keepdim, ddof=1),
)
def std(
    F: Any,
    input: Tensor,
    dim: Dim = None,
    correction: float = 1,
    keepdim: bool = False,
    unbiased: bool | None = None,
) -> Tensor:
    """The square root of the variance over `dim`; the arguments are those of `var`."""
    return _in_type_of(F, F.sqrt(_moments(F, input, dim, correction, keepdim)[0]), input)


def _both(F: Any, deviation: Any, centre: Any, input: Any) -> tuple[Any, Any]:
    """The outputs of `var_mean` and `std_mean`."""
    return _in_type_of(F, deviation, input), F.cast(F.reshape(centre, deviation.shape), input.dtype)


def _with_mean(F: Any, total: Any, g: Any, input: Any, dim: Dim, keepdim: bool) -> Any:
    """`total`, if any, and what the gradient `g` of the mean, if any, adds to it."""
    if g is None:
        return total
    shape = tuple(input.shape)
    part = spread(F, g / count(shape, dim), shape, dim, keepdim)
    return part if total is None else total + part


def _with_numpys_mean(deviation: Any) -> Any:
    """What NumPy has for `deviation`, its variance or standard deviation, and the mean."""
    return lambda x, dim=None, keepdim=False: (
        deviation(x, axis=dim, keepdims=keepdim, ddof=1),
        np.mean(x, axis=dim, keepdims=keepdim),
    )


# How `var_mean` and `std_mean` are declared alike.
_OF_BOTH: dict[str, Any] = {
    "holomorphic": False, "adapt": _adapt_var, "outputs": 2, "extras": ("mean",), "differentiable": 2,
    "samples": reductions, "method": False,
}  # fmt: skip


def _var_mean_rule(F: Any, g: Any, input: Any, dim: Dim, correction: float, keepdim: bool) -> Any:
    total = None if g[0] is None else _var_rule(F, g[0], input, dim, correction, keepdim)
    return _with_mean(F, total, g[1], input, dim, keepdim)


def _std_mean_rule(F: Any, g: Any, out: Any, input: Any, dim: Dim, correction: float, keepdim: bool) -> Any:
    total = None if g[0] is None else _std_rule(F, g[0], out, input, dim, correction, keepdim)
    return _with_mean(F, total, g[1], input, dim, keepdim)


@op(grads={"input": _var_mean_rule}, reference=_with_numpys_mean(np.var), **_OF_BOTH)
def var_mean(
    F: Any,
    input: Tensor,
    dim: Dim = None,
    correction: float = 1,
    keepdim: bool = False,
    unbiased: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """(`var`, mean) over `dim`."""
    variance, centre = _moments(F, input, dim, correction, keepdim)
    return _both(F, variance, centre, input)


@op(grads={"input": _std_mean_rule}, reference=_with_numpys_mean(np.std), **_OF_BOTH)
def std_mean(
    F: Any,
    input: Tensor,
    dim: Dim = None,
    correction: float = 1,
    keepdim: bool = False,
    unbiased: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """(`std`, mean) over `dim`."""
    variance, centre = _moments(F, input, dim, correction, keepdim)
    return _both(F, F.sqrt(variance), centre, input)


@tensor_function(out=True)
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean over `dim` (all by default) of the elements that are not nan."""
    if input.dtype.category < 2:
        raise RuntimeError(
            f"nanmean(): expected input to have floating point or complex dtype but got {input.dtype.name}"
        )
    if dtype is not None and dtype.category < 2:
        raise RuntimeError(
            "nanmean(): could not infer output dtype. Optional dtype must be either a floating point or complex dtype. Got: "
            f"{dtype.scalar_type}"
        )
    total = reduce.nansum(input, dim, keepdim, dtype)
    return total / reduce.sum(unary.logical_not(unary.isnan(input)), dim, keepdim)


@tensor_function()
def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """The covariance matrix of the rows of `input` (variables, observations), or the variance of a vector.

    fweights: how often each observation counts, integers; aweights: how much, floats.
    """
    if input.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions"
        )
    if input.dtype.category == 0:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    rows = input if input.ndim == 2 else shape.reshape(input, (1, -1))
    observations = rows.shape[1]
    _check_weights("fweights", fweights, observations, (1,))
    _check_weights("aweights", aweights, observations, (2,))
    weights = fweights
    if aweights is not None:
        weights = aweights if weights is None else weights * aweights
    if weights is None:
        total: Any = observations
        mean = reduce.sum(rows, 1) / observations
    else:
        total = reduce.sum(weights)
        if observations and float(total) == 0:
            raise ZeroDivisionError("cov(): weights sum to zero, can't be normalized")
        mean = reduce.sum(rows * weights, 1) / total
    if weights is not None and aweights is not None and correction:
        freedom = total - correction * reduce.sum(weights * aweights) / total
    else:
        freedom = total - correction
    if (isinstance(freedom, int) or not freedom.is_meta) and float(freedom) <= 0:
        warn_program(
            "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations."
        )
        freedom = 0
    centred = rows - shape.unsqueeze(mean, 1)
    weighted = centred if weights is None else centred * weights
    other = to(shape.transpose(centred, 0, 1), weighted.dtype)
    if other.is_complex():
        other = other.conj()
    return shape.squeeze(matrix.matmul(weighted, other) / freedom)


def _check_weights(name: str, weights: Tensor | None, observations: int, categories: tuple[int, ...]) -> None:
    if weights is None:
        return
    if weights.ndim > 1:
        raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got {weights.ndim}")
    if weights.dtype.category not in categories:
        kind = "integral" if categories == (1,) else "floating point"
        raise RuntimeError(f"cov(): expected {name} to have {kind} dtype but got {weights.dtype.name}")
    if weights.numel() != observations:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input but got "
            f"{weights.numel()} != {observations}"
        )
    if observations and bool(reduce.any(weights < 0)):
        raise RuntimeError(f"cov(): {name} cannot be negative")


@tensor_function()
def corrcoef(input: Tensor) -> Tensor:
    """The correlation matrix of the rows of `input` (variables, observations)."""
    if input.ndim > 2:
        raise RuntimeError(
            f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions"
        )
    matrix_of_cov = cov(input)
    if matrix_of_cov.ndim == 0:
        return matrix_of_cov / matrix_of_cov
    index = list(range(matrix_of_cov.shape[0]))
    variances = matrix_of_cov[index, index]
    deviation = unary.sqrt(variances.real if variances.is_complex() else variances)
    out = matrix_of_cov / shape.unsqueeze(deviation, 1) / deviation
    return out if out.is_complex() else unary.clamp(out, -1, 1)

"""Cumulative ops: each element of the result combines the elements up to it along one dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...core import return_types
from ...core.tensor import Tensor
from ..dispatch.declare import composite, primitive
from ..dispatch.samples import along
from ..dispatch.tensor_function import tensor_function
from .order import found_by
from .reduce import products_before, wrap_dim


def _adapt(name: str) -> Any:
    def adapt(input: Tensor, dim: int, *rest: Any) -> tuple[Any, ...]:
        if rest and rest[0] is not None and dtypes.of(rest[0]).category == 0:
            raise NotImplementedError(f"{name}(): not implemented for results of bool")
        return input, wrap_dim(name, dim, input.ndim), *rest

    return adapt


@primitive(
    grads={"input": lambda F, g, dim: F.flip(F.cumsum(F.flip(g, (dim,)), dim), (dim,))},
    adapt=_adapt("cumsum"),
    samples=along,
    reference=lambda x, dim: np.cumsum(x, axis=dim),
    inplace=True,
)
def cumsum(F: Any, input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """The running sum along `dim`, in `dtype` if given. Integers are summed as int64."""
    ...


@composite
def sums_from_the_end(F: Any, g: Any, factor: Any, dim: int) -> Any:
    """t with t[k] = g[k] + factor[k] * t[k + 1] along `dim`, in log2(length) steps; `factor` is one shorter than `g`."""
    length = g.shape[dim]
    total, step = g, 1
    # total[k] holds `step` terms of t[k], and factor[k] brings total[k + step] to k.
    while step < length:
        widths = tuple((0, step if d == dim else 0) for d in range(len(g.shape)))
        total = total + F.constant_pad(factor * F.narrow(total, dim, step, length - step), widths, 0.0)
        left = max(length - 2 * step, 0)
        factor = F.narrow(factor, dim, 0, left) * F.narrow(factor, dim, step, left) if left else factor
        step *= 2
    return total


def _cumprod_rule(F: Any, g: Any, input: Any, dim: int) -> Any:
    if not input.shape or not input.shape[dim]:
        return g
    # out[j] = before[k] * input[k] * (input[k + 1] ... input[j]): no division, so that zeros are no special case.
    following = F.narrow(input, dim, 1, input.shape[dim] - 1)
    return products_before(F, input, dim) * F.sums_from_the_end(g, following, dim)


@primitive(
    grads={"input": _cumprod_rule},
    adapt=_adapt("cumprod"),
    samples=along,
    reference=lambda x, dim: np.cumprod(x, axis=dim),
    inplace=True,
)
def cumprod(F: Any, input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """The running product along `dim`, in `dtype` if given. Integers are multiplied as int64."""
    ...


def _logcumsumexp_rule(F: Any, g: Any, out: Any, input: Any, dim: int) -> Any:
    if not input.shape or not input.shape[dim]:
        return g
    # The sum of g[j] * exp(input[k] - out[j]) over j >= k, in factors of at most 1; where all so far is -inf it is 0.
    zero = F.full_like(out, 0)
    weight = F.where(F.isfinite(out), F.exp(input - out), zero)
    left = out.shape[dim] - 1
    before, after = F.narrow(out, dim, 0, left), F.narrow(out, dim, 1, left)
    ratio = F.where(F.isfinite(before), F.exp(before - after), F.full_like(before, 0))
    return weight * F.sums_from_the_end(g, ratio, dim)


@primitive(
    grads={"input": _logcumsumexp_rule},
    adapt=_adapt("logcumsumexp"),
    samples=along,
    reference=lambda x, dim: np.logaddexp.accumulate(x, axis=dim),
)
def logcumsumexp(F: Any, input: Tensor, dim: int) -> Tensor:
    """log(cumsum(exp(input))) along `dim`, without overflow."""
    ...


def _np_running_position(x: Any, dim: int, largest: bool) -> Any:
    best = (np.maximum if largest else np.minimum).accumulate(x, axis=dim)
    here = np.arange(x.shape[dim]).reshape([-1 if d == dim else 1 for d in range(x.ndim)])
    return np.maximum.accumulate(np.where(x == best, here, 0), axis=dim)


_cummax_values, _cummin_values = (
    found_by(
        name,
        lambda F, x, dim, largest=largest: F.running_position(x, dim, largest),
        lambda x, dim, largest=largest: _np_running_position(x, dim, largest),
    )
    for name, largest in (("cummax", True), ("cummin", False))
)


@tensor_function(out=True)
def cummax(input: Tensor, dim: int) -> return_types.cummax:
    """(the largest element so far along `dim`, where it is): the last of equal ones, and a nan once there is one."""
    dim = wrap_dim("cummax", dim, input.ndim)
    return return_types.cummax(*_cummax_values(input, dim))


@tensor_function(out=True)
def cummin(input: Tensor, dim: int) -> return_types.cummin:
    """(the smallest element so far along `dim`, where it is): the last of equal ones, and a nan once there is one."""
    dim = wrap_dim("cummin", dim, input.ndim)
    return return_types.cummin(*_cummin_values(input, dim))

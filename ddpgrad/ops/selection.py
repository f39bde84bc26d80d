"""Which elements come first: their places by order, and the values taken from there."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._tensor import Tensor
from . import shape
from .declare import op, primitive
from .reduce import restore, wrap_dim
from .samples import calls


def _values_rule(F: Any, g: Any, input_shape: Any, dim: int, index: Any, keepdim: bool) -> Any:
    """The gradient of each value goes to the one place that it was taken from."""
    return F.scatter_add(F.new_zeros(g, input_shape), dim, index, restore(F, g, input_shape, dim, keepdim))


def _adapt_values(input: Tensor, dim: int, index: Any, keepdim: bool = True) -> tuple[Any, ...]:
    return input, dim, index._array if isinstance(index, Tensor) else index, keepdim or not input.ndim


def _values(name: str) -> Any:
    """The op that takes the values which `name` returns; their history names it."""

    def values(F: Any, input: Tensor, dim: int, index: Any, keepdim: bool = True) -> Tensor:
        out = F.gather(input, dim, index)
        return out if keepdim else F.squeeze(out, (dim,))

    values.__name__ = f"{name}_values"
    values.__doc__ = f"The elements of `input` at `index` along `dim`, which `{name}` has found."
    return op(
        grads={"input": _values_rule},
        adapt=_adapt_values,
        samples=lambda rng: [
            ((rng.standard_normal((2, 3)), 1, np.array([[2], [0]]), k), {}) for k in (True, False)
        ],
        reference=lambda x, d, i, k: np.take_along_axis(x, i, d) if k else np.take_along_axis(x, i, d)[:, 0],
        method=False,
        grad_name=f"{name.capitalize()}Backward{1 if name in ('median', 'nanmedian') else 0}",
    )(values)


_VALUES = {
    name: _values(name)
    for name in ("cummax", "cummin", "kthvalue", "max", "median", "min", "mode", "nanmedian", "sort", "topk")
}


def selected(
    name: str, input: Tensor, dim: int, index: Tensor, keepdim: bool = True
) -> tuple[Tensor, Tensor]:
    """(values, indices) as function `name` returns them; `index` has length 1 in `dim` if that is not kept."""
    values = _VALUES[name](input, dim, index, keepdim)
    return values, index if keepdim or not input.ndim else shape.squeeze(index, dim)


@primitive(
    adapt=lambda input, dim=-1, descending=False: (input, wrap_dim("sort", dim, input.ndim), descending),
    samples=calls((0,), (-1, True)),
    reference=lambda x, d=-1, descending=False: np.argsort(-x if descending else x, axis=d, kind="stable"),
    method=False,
)
def argsort(F: Any, input: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    """Indices that sort along `dim`; equal elements keep their order, nan counts as the largest."""
    ...


@primitive(
    samples=calls((2, 2, True), (1, 0, False)),
    reference=lambda x, k, d, largest: np.take(
        np.argsort(-x if largest else x, axis=d, kind="stable"), range(k), axis=d
    ),
    method=False,
)
def topk_positions(F: Any, input: Tensor, k: int, dim: int, largest: bool) -> Tensor:
    """Where the `k` largest (or smallest) elements along `dim` are, the most extreme first; nan is the largest."""
    ...


@primitive(
    samples=calls((1, 2), (0, 0)),
    reference=lambda x, k, d: np.take(np.argsort(x, axis=d), [k], axis=d),
    method=False,
)
def kth_position(F: Any, input: Tensor, k: int, dim: int) -> Tensor:
    """Where the element is that sorting would put at `k` along `dim`, which is kept with length 1; nan is the largest."""
    ...


def _middle(F: Any, input: Any, dim: int, skip_nan: bool) -> Any:
    """Where the lower median along `dim` is, with length 1 in `dim`: a nan if there is one, or none if skipped."""
    size = input.shape[dim] if input.ndim else 1
    if size == 1:
        return F.full_like(F.argsort(input), 0)
    nan = F.isnan(input)
    if skip_nan:
        place = F.clamp((size - F.sum(nan, dim, True) - 1) // 2, 0, None)
        return F.gather(F.argsort(input, dim, False), dim, place)
    return F.where(
        F.any(nan, dim, True), F.argmax(nan, dim, True), F.kth_position(input, (size - 1) // 2, dim)
    )


@op(
    samples=lambda rng: [((rng.permutation(24).reshape(2, 3, 4), d, False), {}) for d in (0, 2)],
    reference=lambda x, d, skip: np.take(np.argsort(x, axis=d), [(x.shape[d] - 1) // 2], axis=d),
    method=False,
)
def median_position(F: Any, input: Tensor, dim: int, skip_nan: bool) -> Tensor:
    """Where the median (the lower of two) along `dim` is, which is kept with length 1. nan is the largest, or skipped."""
    return _middle(F, input, dim, skip_nan)


def _whole_rule(F: Any, g: Any, out: Any, input: Any) -> Any:
    """The gradient shared evenly by all elements that equal the result, or are nan as it is."""
    mask = F.logical_or(input == out, F.logical_and(F.isnan(input), F.isnan(out)))
    return F.cast(mask, g.dtype) * (g / F.sum(mask))


@op(
    grads={"input": _whole_rule},
    samples=lambda rng: [((rng.permutation(15).reshape(3, 5) / 7.0,), {})],
    reference=np.max,
    method=False,
    grad_name="MaxBackward1",
)
def max_of_all(F: Any, input: Tensor) -> Tensor:
    """The largest element."""
    return F.amax(input)


@op(
    grads={"input": _whole_rule},
    samples=lambda rng: [((rng.permutation(15).reshape(3, 5) / 7.0,), {})],
    reference=np.min,
    method=False,
    grad_name="MinBackward1",
)
def min_of_all(F: Any, input: Tensor) -> Tensor:
    """The smallest element."""
    return F.amin(input)


@op(
    grads={"input": _whole_rule},
    samples=lambda rng: [((rng.permutation(15).reshape(3, 5) / 7.0, False), {})],
    reference=lambda x, skip: np.median(x),
    method=False,
    grad_name="MedianBackward0",
)
def median_of_all(F: Any, input: Tensor, skip_nan: bool) -> Tensor:
    """The median of all elements, the lower of two."""
    flat = F.reshape(input, (-1,))
    return F.reshape(F.gather(flat, 0, _middle(F, flat, 0, skip_nan)), ())


@op(
    samples=lambda rng: [((np.array([[3, 1, 2, 2, 1, 3], [5, 5, 4, 4, 4, 1]]), 1), {})],
    reference=lambda x, d: np.array([[4], [4]]),
    method=False,
)
def mode_position(F: Any, input: Tensor, dim: int) -> Tensor:
    """Where the last of the most frequent element (the smallest such) along `dim` is, kept with length 1."""
    if not input.ndim:
        return F.argsort(input)
    order = F.argsort(input, dim, False)
    ranked = F.gather(input, dim, order)
    left = input.shape[dim] - 1
    new = F.narrow(ranked, dim, 1, left) != F.narrow(ranked, dim, 0, left)
    new = F.cat([F.cast(F.full_like(F.narrow(order, dim, 0, 1), 1), bool), new], dim)
    here = F.cumsum(F.full_like(order, 1), dim) - 1
    begun = F.running_position(F.where(new, here, F.full_like(here, -1)), dim, True)
    # The first of the longest runs ends where the distance from its beginning is largest.
    return F.gather(order, dim, F.argmax(here - begun, dim, True))

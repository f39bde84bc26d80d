"""Ops of sorting: the positions of sorted, largest or smallest elements, and their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...core.tensor import Tensor
from ..dispatch.declare import op, primitive
from ..dispatch.samples import calls
from ..dispatch.tensor_function import takes_axis
from ..dispatch.vocabulary import VOCABULARY as F
from .reduce import restore, wrap_dim


def _values_rule(F: Any, g: Any, input_shape: Any, dim: int, keepdim: bool, place: Any) -> Any:
    """The gradient of each value goes to the one place that it was taken from."""
    place, g = (restore(F, x, input_shape, dim, keepdim) for x in (place, g))
    return F.scatter_add(F.new_zeros(g, input_shape), dim, place, g)


def _require_order(name: str, array: Any) -> None:
    if array.dtype.kind == "c":
        raise NotImplementedError(
            f"{name}: not implemented for '{dtypes.of(array.dtype).scalar_type}': complex numbers have no order"
        )


def found_by(name: str, find: Callable[..., Any], reference: Callable[..., Any], *options: Any) -> Any:
    """The op of function `name`, (values, where they are) along a dimension; its history has the function's name.

    find(F, input, dim, *options): the places, with that dimension kept. reference: the places by NumPy
    for the `options` of a sample.
    """

    def values(
        F: Any, input: Tensor, dim: int, keepdim: bool = True, options: tuple[Any, ...] = ()
    ) -> tuple[Tensor, Tensor]:
        _require_order(name, input)
        place = find(F, input, dim, *options) if input.ndim else F.argsort(input)
        out = F.gather(input, dim, place)
        if keepdim or not input.ndim:
            return out, place
        return F.squeeze(out, (dim,)), F.squeeze(place, (dim,))

    def expected(x: Any, dim: int, keepdim: bool, options: tuple[Any, ...]) -> Any:
        place = reference(x, dim, *options)
        out = np.take_along_axis(x, place, dim)
        return (out, place) if keepdim else (np.take(out, 0, dim), np.take(place, 0, dim))

    values.__name__ = f"{name}_values"
    values.__doc__ = f"(values, their places along `dim`) that `{name}` returns."
    return op(
        grads={"input": _values_rule},
        outputs=2,
        extras=("place",),
        samples=lambda rng: [
            ((rng.permutation(15).reshape(3, 5) / 7.0, d, True, options), {}) for d in (0, 1)
        ],
        reference=expected,
        method=False,
        grad_name=f"{name.capitalize()}Backward{1 if name in ('median', 'nanmedian') else 0}",
    )(values)


def _np_kth(x: Any, dim: int, k: int) -> Any:
    return np.take(np.argsort(x, axis=dim), [k], axis=dim)


def _np_median(x: Any, dim: int) -> Any:
    return _np_kth(x, dim, (x.shape[dim] - 1) // 2)


def _np_order(x: Any, dim: int, descending: bool) -> Any:
    return np.argsort(-x if descending else x, axis=dim, kind="stable")


max_values = found_by(
    "max", lambda F, x, dim: F.argmax(x, dim, True), lambda x, dim: x.argmax(dim, keepdims=True)
)
min_values = found_by(
    "min", lambda F, x, dim: F.argmin(x, dim, True), lambda x, dim: x.argmin(dim, keepdims=True)
)
median_values = found_by("median", lambda F, x, dim: F.median_position(x, dim, False), _np_median)
nanmedian_values = found_by("nanmedian", lambda F, x, dim: F.median_position(x, dim, True), _np_median)
kthvalue_values = found_by("kthvalue", lambda F, x, dim, k: F.kth_position(x, k, dim), _np_kth, 2)
sort_values = found_by("sort", lambda F, x, dim, descending: F.argsort(x, dim, descending), _np_order, True)
topk_values = found_by(
    "topk",
    lambda F, x, dim, k, largest, in_order=True: F.topk_positions(x, k, dim, largest, in_order),
    lambda x, dim, k, largest: np.take(_np_order(x, dim, largest), range(k), axis=dim),
    2, True,
)  # fmt: skip


@takes_axis
def _argsort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Tensor:
    """Indices that sort along `dim`; equal elements always keep their order."""
    return F.argsort(input, dim, descending)


@primitive(
    public=_argsort,
    adapt=lambda input, dim=-1, descending=False: (input, wrap_dim("sort", dim, input.ndim), descending),
    samples=calls((0,), (-1, True)),
    reference=lambda x, d=-1, descending=False: np.argsort(-x if descending else x, axis=d, kind="stable"),
)
def argsort(F: Any, input: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    """Indices that sort along `dim`; equal elements keep their order, nan counts as the largest."""
    ...


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
    return F.reshape(flat[F.median_position(flat, 0, skip_nan)], ())


def _most_frequent(F: Any, input: Any, dim: int) -> Any:
    """Where the last of the most frequent element (the smallest such) along `dim` is, kept with length 1."""
    order = F.argsort(input, dim, False)
    ranked = F.gather(input, dim, order)
    left = input.shape[dim] - 1
    new = F.narrow(ranked, dim, 1, left) != F.narrow(ranked, dim, 0, left)
    new = F.cat([F.cast(F.full_like(F.narrow(order, dim, 0, 1), 1), bool), new], dim)
    here = F.cumsum(F.full_like(order, 1), dim) - 1
    begun = F.running_position(F.where(new, here, F.full_like(here, -1)), dim, True)
    # The first of the longest runs ends where the distance from its beginning is largest.
    return F.gather(order, dim, F.argmax(here - begun, dim, True))


def _np_most_frequent(x: Any, dim: int) -> Any:
    def last(row: Any) -> int:
        values, counts = np.unique(row, return_counts=True)
        return np.flatnonzero(row == values[counts.argmax()])[-1]

    return np.expand_dims(np.apply_along_axis(last, dim, x), dim)


mode_values = found_by("mode", _most_frequent, _np_most_frequent)

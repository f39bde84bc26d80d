"""Linear maps along one dimension whose outputs mix a few neighbours: means, interpolation, their transposes.

Average pooling, adaptive pooling and all kinds of interpolation are one such map per dimension.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ...core.tensor import Tensor
from ..dispatch.declare import Sample, op

Array = np.ndarray


class Bands(NamedTuple):
    """A matrix (outputs, size), of which row i has `length[i]` elements from column `start[i]` on.

    start, length: int64 (outputs,). weight: float64 (outputs, most); what is after `length[i]` in
    row i is 0. All on the host.
    """

    start: Array
    length: Array
    weight: Array
    size: int

    def column(self, tap: int) -> Array:
        """The column of each row's element number `tap`; of its last one where there are fewer."""
        return self.start + np.minimum(tap, self.length - 1)

    def dense(self) -> Array:
        """The matrix itself."""
        out = np.zeros((len(self.start), self.size))
        for tap in range(self.weight.shape[1]):
            np.add.at(out, (np.arange(len(out)), self.column(tap)), self.weight[:, tap])
        return out


def windows(start: Array, end: Array, divisor: Any, size: int) -> Bands:
    """Sums of the columns from `start` to before `end`, each divided by `divisor`."""
    count = end - start
    weight = (np.arange(count.max(initial=1)) < count[:, None]) / np.asarray(divisor, np.float64).reshape(
        -1, 1
    )
    return Bands(start, count, weight, size)


def clamped(index: Array, weight: Array, size: int) -> Bands:
    """Rows of `weight` (outputs, taps) at the columns `index`; columns beyond an edge stand for the edge."""
    index = np.clip(index, 0, size - 1)
    start = index.min(1)
    place = index - start[:, None]
    count = place.max(1) + 1
    merged = np.zeros((len(index), count.max(initial=1)))
    np.add.at(merged, (np.arange(len(index))[:, None], place), weight)
    return Bands(start, count, merged, size)


def _samples(rng: Any, length: int) -> Iterable[Sample]:
    bands = windows(np.array([0, 1, 1]), np.array([2, 4, 3]), [2, 3, 1], 5)
    cubic = clamped(np.array([[-1, 0, 1, 2], [2, 3, 4, 5]]), rng.standard_normal((2, 4)), 4)
    yield (rng.standard_normal((2, (3, 5)[length], 3)), 1, bands), {}
    yield (rng.standard_normal((3, (2, 4)[length])), 1, cubic), {}


def _check(input: Tensor, dim: int, bands: Bands) -> None:
    if input.dtype.category < 2 and (bands.weight % 1).any():
        raise NotImplementedError(
            f"means and interpolation are not implemented for '{input.dtype.scalar_type}'; convert the input, as by x.float()"
        )


@op(
    check=_check,
    grads={"input": lambda F, g, dim, bands: F.resample_transposed(g, dim, bands)},
    samples=lambda rng: _samples(rng, 1),
    reference=lambda x, dim, bands: np.moveaxis(np.moveaxis(x, dim, -1) @ bands.dense().T, -1, dim),
    method=False,
)
def resample(F: Any, input: Tensor, dim: int, bands: Bands) -> Tensor:
    """The matrix `bands` applied to `input` along its dimension `dim`."""
    shape = _along(input, dim)
    out: Any = None
    for tap in range(bands.weight.shape[1]):
        weight = F.cast(F.asarray(bands.weight[:, tap].reshape(shape)), input.dtype)
        part = F.index_select(input, dim, F.asarray(bands.column(tap))) * weight
        out = part if out is None else out + part
    return out


@op(
    grads={"g": lambda F, g, dim, bands: F.resample(g, dim, bands)},
    samples=lambda rng: _samples(rng, 0),
    reference=lambda g, dim, bands: np.moveaxis(np.moveaxis(g, dim, -1) @ bands.dense(), -1, dim),
    method=False,
)
def resample_transposed(F: Any, g: Tensor, dim: int, bands: Bands) -> Tensor:
    """The transposed matrix `bands` applied to `g` along its dimension `dim`: the gradient of `resample`."""
    shape = _along(g, dim)
    out = F.new_zeros(g, (*g.shape[:dim], bands.size, *g.shape[dim + 1 :]))
    for tap in range(bands.weight.shape[1]):
        weight = F.cast(F.asarray(bands.weight[:, tap].reshape(shape)), g.dtype)
        index = (slice(None),) * dim + (F.asarray(bands.column(tap)),)
        out = F.index_put_add(out, index, g * weight)
    return out


def _along(x: Any, dim: int) -> tuple[int, ...]:
    """The shape of a vector along `dim` beside `x`."""
    return (-1,) + (1,) * (len(x.shape) - dim - 1)

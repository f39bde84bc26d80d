"""Sorting, searching in sorted sequences, and counting."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from ..dtype import NARROW, float32

Array = Any

# Up to this length a sort is done sooner than a partition and what follows it.
_SORTED_AT_ONCE = 128


def sorting(xp: ModuleType) -> dict[str, Any]:
    def argsort(input: Array, dim: int = -1, descending: bool = False) -> Array:
        if not input.ndim:
            return xp.zeros((), xp.int64)
        input = _comparable(input)
        if not descending:
            return _stable_order(input, dim)
        # Stable in descending order: sort the reversed array and read it backwards.
        backwards = (*(slice(None),) * (dim % input.ndim), slice(None, None, -1))
        order = _stable_order(input[backwards], dim)
        return input.shape[dim] - 1 - order[backwards]

    def _stable_order(input: Array, dim: int) -> Array:
        if xp is np:
            return input.argsort(dim, kind="stable")  # sooner than np.argsort; CuPy's method takes no kind
        return xp.argsort(input, axis=dim, kind="stable")

    def topk_positions(input: Array, k: int, dim: int, largest: bool, in_order: bool = True) -> Array:
        """Where the `k` largest (or smallest) elements along `dim` are, the most extreme first; nan is largest."""
        input = _comparable(input)
        lead = (slice(None),) * dim
        size = input.shape[dim]
        if 0 < k < size and size > _SORTED_AT_ONCE:
            at = size - k if largest else k - 1
            chosen = input.argpartition(at, dim)[(*lead, slice(at, None) if largest else slice(k))]
            chosen = xp.sort(chosen, axis=dim)  # so that of equal elements the first comes first
            order = argsort(xp.take_along_axis(input, chosen, dim), dim, largest)
            return xp.take_along_axis(chosen, order, dim)
        return xp.ascontiguousarray(argsort(input, dim, largest)[(*lead, slice(k))])

    def kth_position(input: Array, k: int, dim: int) -> Array:
        """Where the element is that sorting would put at `k` along `dim`, which is kept with length 1; nan is largest."""
        order = _comparable(input).argpartition(k, dim)
        return xp.ascontiguousarray(order[(*(slice(None),) * dim, slice(k, k + 1))])

    def median_position(input: Array, dim: int, skip_nan: bool) -> Array:
        """Where the lower median along `dim` is, kept with length 1: a nan if there is one, or none if they are skipped."""
        size = input.shape[dim]
        input = _comparable(input)
        if xp is np and input.size:  # on a GPU the answer would be waited for
            largest = input.max()
            if largest == largest:  # there is no nan
                return kth_position(input, (size - 1) // 2, dim)
        nan = xp.isnan(input)
        if skip_nan:
            place = xp.maximum(size - nan.sum(axis=dim, keepdims=True) - 1, 0) // 2
            return xp.take_along_axis(argsort(input, dim), place, dim)
        middle = kth_position(input, (size - 1) // 2, dim)
        return xp.where(nan.any(axis=dim, keepdims=True), nan.argmax(axis=dim, keepdims=True), middle)

    def searchsorted(sequence: Array, values: Array, right: bool) -> Array:
        """How many elements of `sequence`, sorted along its last dimension, are before each of `values`.

        Both have the same leading dimensions, or `sequence` has one dimension. nan is after all numbers among the
        values; in the sequence, where nothing is said of it, the search goes on behind it, as in PyTorch.
        """
        sequence, values = _comparable(sequence), _comparable(values)
        if sequence.ndim == 1:
            if xp is not np or sequence.dtype.kind != "f" or not np.isnan(sequence).any():
                return xp.asarray(xp.searchsorted(sequence, values, side="right" if right else "left"))
            sequence = xp.broadcast_to(sequence, (*values.shape[:-1], len(sequence)))
            if not values.ndim:
                return searchsorted(sequence[None], values[None, None], right)[0, 0]
        low = xp.zeros(values.shape, xp.int64)
        if not low.size:
            return low
        high = xp.full(values.shape, sequence.shape[-1], dtype=xp.int64)
        for _ in range(sequence.shape[-1].bit_length()):
            middle = (low + high) // 2
            # A finished search may look past the end, and then stays where it is.
            found = xp.take_along_axis(sequence, xp.minimum(middle, sequence.shape[-1] - 1), axis=-1)
            later = (low < high) & ~(found > values if right else found >= values)
            low = xp.where(later, middle + 1, low)
            high = xp.where(later, high, xp.minimum(middle, high))
        return low

    def unique(input: Array, dim: int | None) -> tuple[Array, Array, Array]:
        """(sorted distinct elements or slices along `dim`, where each element is among them, how often each occurs)."""
        values, inverse, counts = xp.unique(
            _comparable(input), return_inverse=True, return_counts=True, axis=dim, equal_nan=False
        )
        inverse = inverse.reshape(input.shape if dim is None else (input.shape[dim],))
        return values.astype(input.dtype, copy=False), inverse, counts

    def bincount(input: Array, weights: Array | None, minlength: int) -> Array:
        return xp.bincount(input, weights, minlength)

    def _comparable(input: Array) -> Array:
        return input.astype(float32.numpy) if input.dtype == NARROW[1] else input

    return {
        "argsort": argsort, "topk_positions": topk_positions, "kth_position": kth_position, "median_position": median_position, "searchsorted": searchsorted, "unique": unique,
        "bincount": bincount,
    }  # fmt: skip

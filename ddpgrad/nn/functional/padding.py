"""Padding: constant, reflecting, replicating and circular."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from ...core.overrides import overridable
from ...core.size import as_ints
from ...core.tensor import Tensor
from ...ops.creation.factories import as_element
from ...ops.dispatch.autocast import cast_arguments, casting
from ...ops.dispatch.dtype_lists import refuse_dtypes
from ...ops.elementwise.unary import clone
from ...ops.layers.resample import Bands, resample, windows
from ...ops.shape.shape import constant_pad, narrow

Widths = list[tuple[int, int]]


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """`input` with elements around it; negative widths cut.

    pad: (before, after) of the last dimension, then of the one before it, and so on. mode:
    "constant" puts `value` (0); "reflect" the elements mirrored at the first and the last one;
    "replicate" copies of those; "circular" the elements of the other end. All but the first pad
    the last one to three dimensions of an input with one or two more, (C, *size) or (N, C, *size).
    """
    return _padded(input, pad, mode, value)


def _padded(input: Tensor, pad: Sequence[int], mode: str, value: float | None) -> Tensor:
    if not isinstance(pad, Sequence) or isinstance(pad, str):
        raise TypeError(f"pad(): argument 'pad' (position 2) must be tuple of ints, not {type(pad).__name__}")
    pad = as_ints("pad", pad, "pad")
    if len(pad) % 2:
        raise RuntimeError(f"Padding length must be divisible by 2, got {len(pad)} widths")
    if len(pad) > 2 * input.ndim:
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but got padding length "
            f"{len(pad)} and input of dimension {input.ndim}"
        )
    widths = [(0, 0)] * (input.ndim - len(pad) // 2)
    widths += [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    if mode == "constant":
        return _constant(input, widths, 0.0 if value is None else value)
    if mode not in _MODES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    dims = len(pad) // 2
    refuse_dtypes(f"{mode}_pad{dims}d", "" if mode == "circular" else "b", (input,))
    if dims > 3 or not 1 <= input.ndim - dims <= 2:
        raise NotImplementedError(
            f"pad(): mode {mode!r} pads the last 1 to 3 dimensions of an input with one or two more, got "
            f"{len(pad)} widths for a {input.ndim}D input"
        )
    if mode != "circular" and 0 in input.shape[-dims - 1 :]:
        raise RuntimeError(
            f"{mode}_pad{dims}d(): Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with possibly 0 batch size and "
            f"other non-zero dimensions for input, but got: {list(input.shape)}"
        )
    if casting:
        (input,) = cast_arguments(f"{mode}_pad{dims}d", (input,))
    out = input
    for dim, (low, high) in enumerate(widths):
        if low or high:
            size = input.shape[dim]
            if min(0, low) + min(0, high) + size < 0 or size + low + high < 1:
                raise _too_much_cut(low, high, size)
            out = resample(out, dim, _picks(mode, size, low, high))
    return clone(out) if out is input else out


@overridable
def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """`input` with elements of `value` around it; `pad` as in `functional.pad`."""
    return _padded(input, pad, "constant", value)


def _too_much_cut(low: int, high: int, size: int) -> RuntimeError:
    return RuntimeError(f"pad(): widths ({low}, {high}) leave nothing of a dimension of size {size}")


def _constant(input: Tensor, widths: Widths, value: float) -> Tensor:
    for dim, (low, high) in enumerate(widths):
        if low < 0 or high < 0:
            if input.shape[dim] + low + high < 0:
                raise _too_much_cut(low, high, input.shape[dim])
            input = _cut(input, dim, low, high)
    outer = tuple([(max(low, 0), max(high, 0)) for low, high in widths])
    as_element(value, input.dtype)  # which refuses what does not fit
    return constant_pad(input, outer, value) if any(map(any, outer)) else clone(input)


def _cut(input: Tensor, dim: int, low: int, high: int) -> Tensor:
    """Without the elements that the negative ones of two widths cut."""
    low, high = max(-low, 0), max(-high, 0)
    length = max(input.shape[dim] - low - high, 0)
    return narrow(input, dim, low, length) if low or high else input


def _reflected(size: int, low: int, high: int) -> np.ndarray:
    if max(low, high) >= size:
        raise RuntimeError(
            f"Padding size should be less than the corresponding input dimension, but got: padding ({low}, {high}) "
            f"of a dimension of size {size}"
        )
    last = size - 1
    return last - np.abs(last - np.abs(np.arange(-low, size + high)))


def _replicated(size: int, low: int, high: int) -> np.ndarray:
    return np.clip(np.arange(-low, size + high), 0, size - 1)


def _wrapped(size: int, low: int, high: int) -> np.ndarray:
    if max(low, high) > size:
        raise RuntimeError(
            f"Padding value causes wrapping around more than once: ({low}, {high}) of a dimension of size {size}"
        )
    left = np.arange(max(-low, 0), size + min(high, 0))  # what negative widths leave is what is repeated
    return left[np.arange(-max(low, 0), len(left) + max(high, 0)) % len(left)]


# Which element of a dimension stands at each place of the result.
_MODES: dict[str, Callable[[int, int, int], np.ndarray]] = {
    "reflect": _reflected,
    "replicate": _replicated,
    "circular": _wrapped,
}


@functools.lru_cache(256)
def _picks(mode: str, size: int, low: int, high: int) -> Bands:
    """The map from a dimension of `size` to what it is with `low` elements before it and `high` after it."""
    source = _MODES[mode](size, low, high)
    return windows(source, source + 1, 1, size)

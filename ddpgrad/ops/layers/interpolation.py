"""Interpolation along one dimension: nearest, linear and cubic, with and without a low-pass filter.

Where an output lies in the input, and the filters, are PyTorch's.
Source: https://pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from .resample import Bands, clamped, windows

Array = np.ndarray

# The free parameter of the cubic kernel (Keys, 1981); -0.5 is Pillow's choice, which the filtered resizing follows.
CUBIC = -0.75
_CUBIC_FILTERED = -0.5


def _scale(size: int, outputs: int, factor: float | None, align_corners: bool) -> float:
    """Distance between neighbouring outputs, in elements of the input."""
    if align_corners:
        return (size - 1) / (outputs - 1) if outputs > 1 else 0.0
    return 1 / factor if factor else size / outputs


def _sources(outputs: int, scale: float, align_corners: bool) -> Array:
    """Where each output lies, in elements of the input."""
    i = np.arange(outputs)
    return i * scale if align_corners else (i + 0.5) * scale - 0.5


@functools.lru_cache(maxsize=64)
def nearest(size: int, outputs: int, factor: float | None, exact: bool) -> Bands:
    """The element that each output takes: the one it begins in, or with `exact` the one its centre lies in."""
    # In single precision, as in PyTorch, since rounding decides between neighbours.
    scale = np.float32(1 / factor if factor else np.float32(size) / np.float32(outputs))
    places = (np.arange(outputs, dtype=np.float32) + np.float32(0.5 if exact else 0)) * scale
    start = np.minimum(np.floor(places).astype(np.int64), size - 1)
    return windows(start, start + 1, 1, size)


@functools.lru_cache(maxsize=64)
def linear(size: int, outputs: int, factor: float | None, align_corners: bool) -> Bands:
    """Each output between its two neighbours."""
    scale = _scale(size, outputs, factor, align_corners)
    source = np.maximum(_sources(outputs, scale, align_corners), 0)
    left = np.minimum(np.floor(source).astype(np.int64), size - 1)
    right = np.clip(source - left, 0, 1)
    return clamped(np.stack([left, left + 1], 1), np.stack([1 - right, right], 1), size)


@functools.lru_cache(maxsize=64)
def cubic(size: int, outputs: int, factor: float | None, align_corners: bool) -> Bands:
    """Each output among its four neighbours."""
    source = _sources(outputs, _scale(size, outputs, factor, align_corners), align_corners)
    first = np.floor(source).astype(np.int64)
    taps = first[:, None] + np.arange(-1, 3)
    return clamped(taps, _cubic_kernel(source[:, None] - taps, CUBIC), size)


def _cubic_kernel(distance: Array, a: float) -> Array:
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _triangle(distance: Array) -> Array:
    return np.maximum(1 - np.abs(distance), 0)


def _lanczos(distance: Array) -> Array:
    return np.where(np.abs(distance) < 3, np.sinc(distance) * np.sinc(distance / 3), 0.0)


_KERNELS: dict[str, tuple[float, Callable[[Array], Array]]] = {
    "bilinear": (1.0, _triangle),
    "bicubic": (2.0, lambda x: _cubic_kernel(x, _CUBIC_FILTERED)),
    "lanczos": (3.0, _lanczos),
}


@functools.lru_cache(maxsize=64)
def filtered(size: int, outputs: int, factor: float | None, align_corners: bool, mode: str) -> Bands:
    """By the kernel of `mode`, made as wide as outputs are apart when the image is made smaller."""
    reach, kernel = _KERNELS[mode]
    scale = _scale(size, outputs, factor, align_corners)
    stretch = max(scale, 1.0)
    reach *= stretch
    centre = (np.arange(outputs) + 0.5) * scale
    start = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
    end = np.minimum((centre + reach + 0.5).astype(np.int64), size)
    taps = np.arange((end - start).max(initial=1))
    weight = kernel((taps + start[:, None] - centre[:, None] + 0.5) / stretch)
    weight = np.where(taps < (end - start)[:, None], weight, 0.0)
    return Bands(start, end - start, weight / weight.sum(1, keepdims=True), size)

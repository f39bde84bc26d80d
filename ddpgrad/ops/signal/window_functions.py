"""Window functions for spectral analysis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...core.overrides import asking_modes
from ...core.size import as_ints
from ...core.tensor import Tensor
from ..creation.factories import finish

Formula = Callable[[np.ndarray, int], np.ndarray]
"""The values at the places 0, 1, …, given the number of the last place of the whole window."""


def values(length: int, periodic: bool, formula: Formula) -> np.ndarray:
    """A window in double precision; a periodic one leaves out the last place."""
    return np.ones(length) if length < 2 else formula(np.arange(length), length if periodic else length - 1)


def cosine_sum(*weights: float) -> Formula:
    """weights[0] - weights[1] cos(x) + weights[2] cos(2x) - …, x from 0 to 2 pi."""
    turns = [((-1) ** i * weight, 2 * math.pi * i) for i, weight in enumerate(weights)]
    return lambda n, last: np.sum([weight * np.cos(turn * n / last) for weight, turn in turns], axis=0)


def triangle(n: np.ndarray, last: int) -> np.ndarray:
    """1 - |x|, x from -1 to 1."""
    return 1 - np.abs(2 * n / last - 1)


def bessel(beta: float) -> Formula:
    """I0(beta sqrt(1 - x^2)) / I0(beta), x from -1 to 1."""
    return lambda n, last: np.i0(beta * np.sqrt(np.maximum(1 - (2 * n / last - 1) ** 2, 0))) / np.i0(beta)


def _window(
    name: str, length: int, periodic: bool, formula: Formula, dtype: Any, device: Any, requires_grad: bool
) -> Tensor:
    target = dtypes.get_default_dtype() if dtype is None else dtypes.of(dtype)
    if not target.is_floating_point:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {target!r}")
    as_ints(name, (length,))
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={length}")
    return finish(values(length, periodic, formula).astype(target.numpy), device, requires_grad)


def _of_length(name: str, formula: Formula, text: str):
    """The window `name`, whose formula has no parameters."""

    def function(
        window_length: int,
        periodic: bool = True,
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: bool = False,
        requires_grad: bool = False,
    ) -> Tensor:
        return _window(name, window_length, periodic, formula, dtype, device, requires_grad)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return asking_modes(function)


hann_window = _of_length("hann_window", cosine_sum(0.5, 0.5), "The Hann window, (1 - cos(2 pi x)) / 2.")
blackman_window = _of_length(
    "blackman_window",
    cosine_sum(0.42, 0.5, 0.08),
    "The Blackman window, 0.42 - 0.5 cos(2 pi x) + 0.08 cos(4 pi x).",
)
bartlett_window = _of_length("bartlett_window", triangle, "The triangular window that is 0 at its ends.")


@asking_modes
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """The Hamming window, alpha - beta cos(2 pi x)."""
    return _window(
        "hamming_window", window_length, periodic, cosine_sum(alpha, beta), dtype, device, requires_grad
    )


@asking_modes
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """The Kaiser window, I0(beta sqrt(1 - (2x - 1)^2)) / I0(beta)."""
    return _window("kaiser_window", window_length, periodic, bessel(beta), dtype, device, requires_grad)

"""Window functions for spectral analysis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...core.tensor import Tensor
from ..creation.factories import finish


def _window(
    name: str,
    length: int,
    periodic: bool,
    formula: Callable[[np.ndarray], np.ndarray],
    dtype: Any,
    device: Any,
    requires_grad: bool,
) -> Tensor:
    """`formula` of places that run from 0 to 1; a periodic window leaves out the last."""
    target = dtypes.get_default_dtype() if dtype is None else dtypes.of(dtype)
    if not target.is_floating_point:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {target!r}")
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={length}")
    if length <= 1:
        values = np.ones(length)
    else:
        values = formula(np.arange(length) / (length if periodic else length - 1))
    return finish(values.astype(target.numpy), device, requires_grad)


def _of_length(name: str, formula: Callable[[np.ndarray], np.ndarray], text: str):
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
    return function


hann_window = _of_length(
    "hann_window", lambda x: 0.5 - 0.5 * np.cos(2 * math.pi * x), "The Hann window, (1 - cos(2 pi x)) / 2."
)
blackman_window = _of_length(
    "blackman_window",
    lambda x: 0.42 - 0.5 * np.cos(2 * math.pi * x) + 0.08 * np.cos(4 * math.pi * x),
    "The Blackman window, 0.42 - 0.5 cos(2 pi x) + 0.08 cos(4 pi x).",
)
bartlett_window = _of_length(
    "bartlett_window", lambda x: 1 - np.abs(2 * x - 1), "The triangular window that is 0 at its ends."
)


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
        "hamming_window", window_length, periodic, lambda x: alpha - beta * np.cos(2 * math.pi * x), dtype, device,
        requires_grad,
    )  # fmt: skip


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

    def formula(x: np.ndarray) -> np.ndarray:
        return np.i0(beta * np.sqrt(np.maximum(1 - (2 * x - 1) ** 2, 0))) / np.i0(beta)

    return _window("kaiser_window", window_length, periodic, formula, dtype, device, requires_grad)

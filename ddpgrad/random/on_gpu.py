"""Draws that are made on a GPU, each with a key of its own from the stream of a generator on the host.

Their numbers are not those that the generator draws for the CPU, as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backend.device import Device
from ..backend.registry import backend_of
from . import gpu_key
from .generator import Generator
from .variates import (
    Shape,
    Variates,
    check_deviation,
    check_probability,
    check_range,
    floating,
    folded,
    shape_tuple,
    span_of,
)

Array = Any


class GpuDraws(Variates):
    """The methods of `generator` that draw, for arrays on `device`. What has no kernel, the host draws."""

    def __init__(self, generator: Generator, device: Device) -> None:
        self._generator = generator
        self._device = device
        self._backend = backend_of("cuda")

    def _on_host(self, name: str, *args: Any) -> np.ndarray:
        given = [self._backend.to_host(a) if isinstance(a, self._backend.array_type) else a for a in args]
        return getattr(self._generator, name)(*given)

    def _drawn(self, kernel: Callable[..., Array], shape: Shape, *args: Any) -> Array:
        return self._backend.on(self._device, kernel, shape_tuple(shape), gpu_key(self._generator), *args)

    def _unit(self, count: int, dtype: np.dtype[Any]) -> Array:
        return self._drawn(self._backend.uniform_draws, count, dtype, 0.0, 1.0)

    def _words64(self, count: int) -> Array:
        return self._drawn(self._backend.word_draws, count)

    _words32 = _words64

    def uniform(self, shape: Shape, dtype: Any = np.float32, low: float = 0.0, high: float = 1.0) -> Array:
        """As `Generator.uniform`."""
        kind = floating(dtype)
        check_range(low, high, kind)
        return self._drawn(self._backend.uniform_draws, shape, kind, low, high)

    def normal(
        self,
        shape: Shape,
        dtype: Any = np.float32,
        mean: float = 0.0,
        std: float = 1.0,
        in_blocks: bool = True,
    ) -> Array:
        """As `Generator.normal`."""
        kind = floating(dtype)
        check_deviation(std)
        return self._drawn(self._backend.normal_draws, shape, kind, mean, std)

    def log_normal(self, shape: Shape, dtype: Any = np.float32, mean: float = 1.0, std: float = 2.0) -> Array:
        """As `Generator.log_normal`."""
        kind = floating(dtype)
        if not std > 0:
            raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
        return np.exp(self.normal(shape, np.float64, mean, std)).astype(kind)

    def integers(self, low: int, high: int, shape: Shape) -> Array:
        """As `Generator.integers`."""
        span = span_of(low, high)
        return folded(self._words64(math.prod(shape_tuple(shape))), low, span).reshape(shape_tuple(shape))

    def permutation(self, n: int) -> Array:
        """As `Generator.permutation`: the order of as many draws of 64 bits."""
        return self._words64(n).argsort()

    def bernoulli(self, p: Any, shape: Shape | None = None) -> Array:
        """As `Generator.bernoulli`; probabilities in an array are not checked, which would wait for the GPU."""
        if shape is not None:
            check_probability(p)
        return self._double(p.shape if shape is None else shape) < p

    def poisson(self, rates: Any) -> np.ndarray:
        """As `Generator.poisson`."""
        return self._on_host("poisson", rates)

    def binomial(self, counts: Any, probabilities: Any) -> np.ndarray:
        """As `Generator.binomial`."""
        return self._on_host("binomial", counts, probabilities)

    def multinomial(self, weights: Any, num_samples: int, replacement: bool = False) -> np.ndarray:
        """As `Generator.multinomial`."""
        return self._on_host("multinomial", weights, num_samples, replacement)

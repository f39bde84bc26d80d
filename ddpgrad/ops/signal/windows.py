"""`torch.signal.windows`: windows of M places, symmetric by default, that are 1 at their middle.

Each takes, after M and its own parameters, sym (False leaves out the last of M + 1 places, for spectra), dtype
(float32 or float64), layout, device and requires_grad. `ValueError` for a length, dtype or parameter that cannot be.
Source of the formulas: https://docs.scipy.org/doc/scipy/reference/signal.windows.html
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...core.size import strided
from ...core.tensor import Tensor
from ..creation.factories import finish
from .window_functions import Formula, bessel, cosine_sum, triangle, values

__path__: list[str] = []  # PyTorch has a package here: its modules are other names of this one


def _window(
    name: str,
    M: int,
    formula: Formula,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    target = dtypes.get_default_dtype() if dtype is None else dtypes.of(dtype)
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout is not strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    if target.name not in ("float32", "float64"):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {target!r}")
    if not isinstance(M, int):
        M = int(M) if M in (0, 1) else index(M)  # as a size is made of a number or a tensor
    return finish(values(M, not sym, formula).astype(target.numpy), device, requires_grad)


def exponential(M: int, *, center: float | None = None, tau: float = 1.0, **options: Any) -> Tensor:
    """exp(-|n - center| / tau), around the middle unless `center` is given, which needs sym=False."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if options.get("sym", True) and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    return _window(
        "exponential", M, lambda n, last: np.exp(-np.abs(n - (last / 2 if center is None else center)) / tau), **options
    )  # fmt: skip


def cosine(M: int, **options: Any) -> Tensor:
    """sin(pi (n + 1/2) / M)."""
    return _window("cosine", M, lambda n, last: np.sin(math.pi * (n + 0.5) / (last + 1)), **options)


def gaussian(M: int, *, std: float = 1.0, **options: Any) -> Tensor:
    """exp(-(n / std)^2 / 2), n counted from the middle."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return _window("gaussian", M, lambda n, last: np.exp(-(((n - last / 2) / std) ** 2) / 2), **options)


def kaiser(M: int, *, beta: float = 12.0, **options: Any) -> Tensor:
    """I0(beta sqrt(1 - x^2)) / I0(beta), x from -1 to 1."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _window("kaiser", M, bessel(beta), **options)


def bartlett(M: int, **options: Any) -> Tensor:
    """1 - |x|, x from -1 to 1."""
    return _window("bartlett", M, triangle, **options)


def general_cosine(M: int, *, a: Sequence[float], **options: Any) -> Tensor:
    """The sum of (-1)^i a[i] cos(2 pi i x), x from 0 to 1."""
    if not isinstance(a, (list, tuple)):
        raise TypeError(f"Coefficients must be a list/tuple, got {type(a).__name__}")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    return _window("general_cosine", M, cosine_sum(*a), **options)


def general_hamming(M: int, *, alpha: float = 0.54, **options: Any) -> Tensor:
    """alpha - (1 - alpha) cos(2 pi x), x from 0 to 1."""
    return general_cosine(M, a=[alpha, 1 - alpha], **options)


def hamming(M: int, **options: Any) -> Tensor:
    """0.54 - 0.46 cos(2 pi x), x from 0 to 1."""
    return general_hamming(M, **options)


def hann(M: int, **options: Any) -> Tensor:
    """(1 - cos(2 pi x)) / 2, x from 0 to 1."""
    return general_hamming(M, alpha=0.5, **options)


def blackman(M: int, **options: Any) -> Tensor:
    """0.42 - 0.5 cos(2 pi x) + 0.08 cos(4 pi x), x from 0 to 1."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], **options)


def nuttall(M: int, **options: Any) -> Tensor:
    """The four-term window of Nuttall with the least side lobes of continuous first derivative."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], **options)

"""Discrete Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

Array = Any

# The same factor for the transform in the other direction.
SWAPPED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def transforms(xp: ModuleType) -> dict[str, Any]:
    fft = xp.fft

    def fft_c2c(input: Array, dim: Sequence[int], norm: str, forward: bool) -> Array:
        return (fft.fftn if forward else fft.ifftn)(input, axes=dim, norm=norm)

    def fft_r2c(input: Array, dim: int, norm: str, forward: bool) -> Array:
        if forward:
            return fft.rfft(input, axis=dim, norm=norm)
        return fft.rfft(input, axis=dim, norm=SWAPPED[norm]).conj()

    def fft_c2r(input: Array, dim: int, n: int, norm: str, forward: bool) -> Array:
        if forward:
            return fft.irfft(input.conj(), n, axis=dim, norm=SWAPPED[norm])
        return fft.irfft(input, n, axis=dim, norm=norm)

    return {"fft_c2c": fft_c2c, "fft_r2c": fft_r2c, "fft_c2r": fft_c2r}

"""Special functions that NumPy lacks, compiled for the CPU: the C library's, one element at a time."""

from __future__ import annotations

import math

import numpy as np

from ..layout import beside
from .vectormath import compiled_for, kernel


def erf(input: np.ndarray) -> np.ndarray:
    """The error function of each element, float32 or float64."""
    if not compiled_for(input):
        return NotImplemented
    out, flat, vectors = beside(input.dtype, input)
    _erf(*vectors, flat)
    return out


@kernel
def _erf(x, out):
    for i in range(x.size):
        out[i] = math.erf(x[i])

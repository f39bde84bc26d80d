"""Special functions that NumPy does not have."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def _erf(flat: np.ndarray, out: np.ndarray) -> None:
    for i in range(flat.size):
        out[i] = math.erf(flat[i])


def erf(input: Any) -> Any:
    """The error function, elementwise, for float32 and float64."""
    if input.dtype not in (np.float32, np.float64):
        return NotImplemented
    flat = np.ascontiguousarray(input).reshape(-1)
    out = np.empty_like(flat)
    _erf(flat, out)
    return out.reshape(input.shape)

"""Kernels that take the floats of 16 bits as float32, and round once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..dtype import bfloat16, float16, float32
from ..registry import backend_for

Array = Any
NARROW = (float16.numpy, bfloat16.numpy)


def in_float32(kernel: Callable[..., Array]) -> Callable[..., Array]:
    """`kernel` of one array, which takes the floats of 16 bits as float32 and rounds the result once."""

    @wraps(kernel)
    def wide(input: Array, *args: Any) -> Array:
        dtype = input.dtype
        if dtype.itemsize == 2 and dtype in NARROW:
            F = backend_for(input)
            return F.cast(getattr(F, kernel.__name__)(F.cast(input, float32.numpy), *args), dtype)
        return kernel(input, *args)

    return wide

"""Kernels that take the floats of 16 bits as float32, and round once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..dtype import bfloat16, float16, float32

Array = Any
NARROW = (float16.numpy, bfloat16.numpy)


def in_float32(kernel: Callable[..., Array]) -> Callable[..., Array]:
    """`kernel` of one array, which takes the floats of 16 bits as float32 and rounds the result once."""

    @wraps(kernel)
    def wide(input: Array, *args: Any) -> Array:
        if input.dtype.itemsize == 2 and input.dtype in NARROW:
            return kernel(input.astype(float32.numpy), *args).astype(input.dtype)
        return kernel(input, *args)

    return wide

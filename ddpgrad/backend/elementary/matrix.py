"""Matrix products."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

Array = Any


def matrices(xp: ModuleType) -> dict[str, Any]:
    def matmul(input: Array, other: Array) -> Array:
        dtype = input.dtype
        if dtype.kind == "b":
            raise NotImplementedError(
                "matmul(): not implemented for bools; convert them with Tensor.to(dtype)"
            )
        if dtype.itemsize == 2 and dtype.kind not in "iu" and xp is np:
            # NumPy has no fast product of 16-bit numbers, and would round every partial sum.
            return np.matmul(input.astype(np.float32), other.astype(np.float32)).astype(dtype)
        return xp.matmul(input, other)

    return {"matmul": matmul}

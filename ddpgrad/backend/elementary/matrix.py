"""Matrix products."""

from __future__ import annotations

from types import ModuleType
from typing import Any

Array = Any


def matrices(xp: ModuleType) -> dict[str, Any]:
    def matmul(input: Array, other: Array) -> Array:
        return xp.matmul(input, other)

    return {"matmul": matmul}

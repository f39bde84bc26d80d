"""What is declared so far, by name: filled by `declare.py`, read by who looks an op up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .declare import Op

OPS: dict[str, Op] = {}
"""Every op by name: the op table."""

COMPOSITES: dict[str, Callable[..., Any]] = {}
"""Every composite by name, on Tensors."""

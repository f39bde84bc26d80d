"""The tables of declared ops and composites, by name. `declare.py` fills them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .declare import Op

OPS: dict[str, Op] = {}
"""Every op by name: the op table."""

COMPOSITES: dict[str, Callable[..., Any]] = {}
"""Every composite by name, on Tensors."""

"""`torch.onnx.symbolic_helper`: decorators that libraries import; the exporter here does not use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def parse_args(*arg_descriptors: str) -> Callable[[Any], Any]:
    """A decorator that returns the rule as it is."""
    return lambda rule: rule


__all__ = ["parse_args"]

"""Automatic differentiation: the graph, the engine that walks it, and how users talk to both."""

from __future__ import annotations

from .functional import backward, grad
from .grad_mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .graph import Node

__all__ = [
    "Node", "backward", "enable_grad", "grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled",
]  # fmt: skip

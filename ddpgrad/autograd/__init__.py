"""Automatic differentiation: the graph, the engine that walks it, and how users talk to both."""

from __future__ import annotations

from . import function
from .draw import draw
from .function import Function, FunctionCtx
from .functional import backward, grad
from .grad_mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .graph import Node

__all__ = [
    "Function", "FunctionCtx", "GradcheckError", "Node", "backward", "draw", "enable_grad", "function", "grad",
    "gradcheck", "gradgradcheck", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled",
]  # fmt: skip

"""Automatic differentiation: the graph, the engine that walks it, and how users talk to both."""

from __future__ import annotations

from . import engine, forward_ad, function, functional, grad_mode, graph
from .anomaly_mode import detect_anomaly, set_detect_anomaly
from .draw import draw
from .entry import backward, grad
from .function import Function, FunctionCtx
from .grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_multithreading_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .nodes import Node
from .saved import SavedTensor
from .variable import Variable

__all__ = [
    "Function", "FunctionCtx", "GradcheckError", "Node", "SavedTensor", "Variable", "backward", "detect_anomaly",
    "draw", "enable_grad", "engine", "forward_ad", "function", "functional", "grad", "grad_mode", "gradcheck", "gradgradcheck", "graph",
    "inference_mode", "is_grad_enabled", "is_multithreading_enabled", "no_grad", "set_detect_anomaly", "set_grad_enabled",
    "set_multithreading_enabled",
]  # fmt: skip

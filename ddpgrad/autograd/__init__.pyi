"""Automatic differentiation: the graph, the engine that walks it, and how users talk to both."""

from . import (
    engine as engine, forward_ad as forward_ad, function as function, functional as functional,
    grad_mode as grad_mode, graph as graph,
)
from ..profiler import autograd_profiler as _autograd_profiler
from ..profiler.autograd_profiler import (
    _disable_profiler as _disable_profiler, _profiler_enabled as _profiler_enabled,
)
from .anomaly_mode import detect_anomaly as detect_anomaly, set_detect_anomaly as set_detect_anomaly
from .draw import draw as draw
from .engine import is_checkpoint_valid as _is_checkpoint_valid
from .entry import backward as backward, grad as grad
from .function import Function as Function, FunctionCtx as FunctionCtx
from .grad_mode import (
    enable_grad as enable_grad, inference_mode as inference_mode, is_grad_enabled as is_grad_enabled,
    is_multithreading_enabled as is_multithreading_enabled, no_grad as no_grad,
    set_grad_enabled as set_grad_enabled, set_multithreading_enabled as set_multithreading_enabled,
)
from .gradcheck import (
    gradcheck as gradcheck, GradcheckError as GradcheckError, gradgradcheck as gradgradcheck,
)
from .nodes import Node as Node
from .saved import SavedTensor as SavedTensor
from .variable import Variable as Variable

profiler = _autograd_profiler

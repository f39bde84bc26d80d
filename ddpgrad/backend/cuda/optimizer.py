"""Optimizer steps in one CUDA kernel each, in place, for all floating-point types.

The arithmetic is that of `torch.optim`. Arrays of a call have one shape and one type.
"""

from __future__ import annotations

import math
from typing import Any

from .source import computes, elementwise

Array = Any

_sgd = elementwise(
    "T grad, float64 lr, float64 decay, float64 sign",
    "T param",
    "param = (T)((A)param - (A)lr * ((A)sign * (A)grad + (A)decay * (A)param));",
    "sgd",
)
_sgd_momentum = elementwise(
    "T grad, float64 lr, float64 momentum, float64 gain, float64 decay, float64 sign, bool nesterov, bool first",
    "T param, T buf",
    """
    const A g = (A)sign * (A)grad + (A)decay * (A)param;
    const A velocity = first ? g : (A)momentum * (A)buf + (A)gain * g;
    buf = (T)velocity;
    param = (T)((A)param - (A)lr * (nesterov ? g + (A)momentum * velocity : velocity));
    """,
    "sgd_momentum",
)

_ADAM = """
    const A g = (A)scale * (A)grad + (A)decay * (A)param;
    const A m = (A)mean + (A)gain1 * (g - (A)mean);
    A v = (A)beta2 * (A)square + (A)gain2 * g * g;
    mean = (T)m;
    square = (T)v;
"""
_ADAM_WRITE = "param = (T)((A)shrink * (A)param - (A)lr * m / (sqrt(v) * (A)correction + (A)eps));"
_ADAM_INPUTS = (
    "T grad, float64 scale, float64 decay, float64 shrink, float64 gain1, float64 beta2, float64 gain2, "
    "float64 lr, float64 correction, float64 eps"
)
_adam = elementwise(_ADAM_INPUTS, "T param, T mean, T square", _ADAM + _ADAM_WRITE, "adam")
_amsgrad = elementwise(
    _ADAM_INPUTS,
    "T param, T mean, T square, T highest",
    f"{_ADAM} v = larger(v, (A)highest); highest = (T)v; {_ADAM_WRITE}",
    "amsgrad",
)


def sgd_step_(
    param: Array,
    grad: Array,
    buf: Array | None,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    first: bool,
) -> Any:
    """One step of stochastic gradient descent; `buf` (None without momentum) is written, not read, if `first`."""
    if not computes(param, grad, buf):
        return NotImplemented
    sign = -1.0 if maximize else 1.0
    if buf is None:
        _sgd(grad, lr, weight_decay, sign, param)
    else:
        _sgd_momentum(grad, lr, momentum, 1 - dampening, weight_decay, sign, nesterov, first, param, buf)
    return None


def adam_step_(
    param: Array,
    grad: Array,
    exp_avg: Array,
    exp_avg_sq: Array,
    max_exp_avg_sq: Array | None,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    step: int,
    maximize: bool,
    grad_scale: float,
) -> Any:
    """Step number `step` (from 1) of Adam, of AdamW if `decoupled`, of AMSGrad if `max_exp_avg_sq` is given.

    The gradient is multiplied by `grad_scale` on its way in; `grad` itself stays as it is.
    """
    if not computes(param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq):
        return NotImplemented
    scalars = (
        -grad_scale if maximize else grad_scale,
        0.0 if decoupled else weight_decay,
        1 - lr * weight_decay if decoupled else 1.0,
        1 - beta1,
        beta2,
        1 - beta2,
        lr / (1 - beta1**step),
        1 / math.sqrt(1 - beta2**step),
        eps,
    )
    if max_exp_avg_sq is None:
        _adam(grad, *scalars, param, exp_avg, exp_avg_sq)
    else:
        _amsgrad(grad, *scalars, param, exp_avg, exp_avg_sq, max_exp_avg_sq)
    return None

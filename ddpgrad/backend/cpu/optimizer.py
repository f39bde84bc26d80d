"""Compiled optimizer steps for the CPU: one pass over flat parameters, in place, float32 and float64.

All arrays of a call are C-contiguous, 1-D, of one length and type, and do not overlap.
The arithmetic is that of `torch.optim`, in the parameters' type. For other types a step does nothing and
returns `NotImplemented`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .vectormath import compiled_for, kernel


def sgd_step_(
    param: np.ndarray,
    grad: np.ndarray,
    buf: np.ndarray | None,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    first: bool,
) -> Any:
    """One step of stochastic gradient descent; `buf` (None without momentum) is written, not read, if `first`."""
    if not compiled_for(param, grad):
        return NotImplemented
    number = param.dtype.type
    sign = number(-1 if maximize else 1)
    if buf is None:
        _sgd(param, grad, number(lr), number(weight_decay), sign)
        return None
    if first:
        buf.fill(0)  # it may hold anything, NaN too
        dampening = 0.0
    _sgd_momentum(
        param,
        grad,
        buf,
        number(lr),
        number(momentum),
        number(1 - dampening),
        number(weight_decay),
        sign,
        nesterov,
    )
    return None


def adam_step_(
    param: np.ndarray,
    grad: np.ndarray,
    exp_avg: np.ndarray,
    exp_avg_sq: np.ndarray,
    max_exp_avg_sq: np.ndarray | None,
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
    if not compiled_for(param, grad, exp_avg, exp_avg_sq):
        return NotImplemented
    number = param.dtype.type
    scalars = (
        number(-grad_scale if maximize else grad_scale),
        number(0 if decoupled else weight_decay),
        number(1 - lr * weight_decay if decoupled else 1),
        number(1 - beta1),
        number(beta2),
        number(1 - beta2),
        number(lr / (1 - beta1**step)),
        number(1 / math.sqrt(1 - beta2**step)),
        number(eps),
    )
    if max_exp_avg_sq is None:
        _adam(param, grad, exp_avg, exp_avg_sq, *scalars)
    else:
        _amsgrad(param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, *scalars)
    return None


def sum_of_squares(x: np.ndarray) -> float:
    """The sum of x**2 over all elements, squared and added in float64, in an order that x.size decides."""
    if not compiled_for(x):
        return NotImplemented
    return _sum_of_squares(np.ascontiguousarray(x).reshape(-1))


def scale_(x: np.ndarray, factor: float) -> None:
    """Multiply x by `factor` in place."""
    np.multiply(x, x.dtype.type(factor), out=x)


@kernel
def _sgd(param, grad, lr, decay, sign):
    for i in range(param.size):
        param[i] -= lr * (sign * grad[i] + decay * param[i])


@kernel
def _sgd_momentum(param, grad, buf, lr, momentum, gain, decay, sign, nesterov):
    for i in range(param.size):
        g = sign * grad[i] + decay * param[i]
        velocity = momentum * buf[i] + gain * g
        buf[i] = velocity
        param[i] -= lr * (g + momentum * velocity if nesterov else velocity)


@kernel
def _adam(param, grad, mean, square, scale, decay, shrink, gain1, beta2, gain2, lr, correction, eps):
    for i in range(param.size):
        g = scale * grad[i] + decay * param[i]
        m = mean[i] + gain1 * (g - mean[i])
        v = beta2 * square[i] + gain2 * g * g
        mean[i] = m
        square[i] = v
        param[i] = shrink * param[i] - lr * m / (math.sqrt(v) * correction + eps)


@kernel
def _amsgrad(
    param, grad, mean, square, highest, scale, decay, shrink, gain1, beta2, gain2, lr, correction, eps
):
    for i in range(param.size):
        g = scale * grad[i] + decay * param[i]
        m = mean[i] + gain1 * (g - mean[i])
        v = beta2 * square[i] + gain2 * g * g
        mean[i] = m
        square[i] = v
        v = v if not v <= highest[i] else highest[i]
        highest[i] = v
        param[i] = shrink * param[i] - lr * m / (math.sqrt(v) * correction + eps)


@kernel
def _sum_of_squares(x):
    total = 0.0
    for i in range(x.size):
        v = np.float64(x[i])
        total += v * v
    return total

"""Portable bodies of the kernels that update flat arrays in place: optimizer steps, norms, scaling.

A backend may have faster ones under the same names (`backend/cpu/optimizer.py`). All arrays
of a call are contiguous, 1-D, real, of one length, dtype and device. Nothing here waits for
a device. Every element depends on its own position only, so the result of an update does
not depend on how parameters are laid out.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..backend.registry import register_body


def sgd_step_(
    F: Any,
    param: Any,
    grad: Any,
    buf: Any,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    first: bool,
) -> None:
    """One step of stochastic gradient descent; `buf` (None without momentum) is written, not read, if `first`."""
    step = -grad if maximize else grad
    if weight_decay:
        step = step + weight_decay * param
    if buf is not None:
        if first:
            buf[...] = step
        else:
            buf *= momentum
            buf += (1 - dampening) * step
        step = step + momentum * buf if nesterov else buf
    param -= lr * step


def adam_step_(
    F: Any,
    param: Any,
    grad: Any,
    exp_avg: Any,
    exp_avg_sq: Any,
    max_exp_avg_sq: Any,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    step: int,
    maximize: bool,
    grad_scale: float,
) -> None:
    """Step number `step` (from 1) of Adam, of AdamW if `decoupled`, of AMSGrad if `max_exp_avg_sq` is given.

    The gradient is multiplied by `grad_scale` on its way in; `grad` itself stays as it is.
    Sources: arXiv:1412.6980, arXiv:1711.05101, https://openreview.net/forum?id=ryQu7f-RZ
    """
    scale = -grad_scale if maximize else grad_scale
    if scale != 1.0:
        grad = grad * scale
    if decoupled:
        param *= 1 - lr * weight_decay
    elif weight_decay:
        grad = grad + weight_decay * param
    exp_avg += (1 - beta1) * (grad - exp_avg)
    exp_avg_sq *= beta2
    exp_avg_sq += (1 - beta2) * grad * grad
    second = exp_avg_sq
    if max_exp_avg_sq is not None:
        max_exp_avg_sq[...] = second = F.maximum(max_exp_avg_sq, exp_avg_sq)
    denominator = F.sqrt(second)
    denominator *= 1 / math.sqrt(1 - beta2**step)
    denominator += eps
    param -= lr / (1 - beta1**step) * exp_avg / denominator


def sum_of_squares(F: Any, x: Any) -> Any:
    """The sum of x**2 over all elements, squared and added in float64; a device keeps it as a 0-d array."""
    wide = F.cast(x, np.float64)
    return F.sum(wide * wide)


def scale_(F: Any, x: Any, factor: float) -> None:
    """Multiply x by `factor` in place."""
    x *= factor


for _body in (sgd_step_, adam_step_, sum_of_squares, scale_):
    register_body(_body.__name__, _body)

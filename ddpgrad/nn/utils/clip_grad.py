"""Clipping of gradients, by their norm or by value, in place.

On a GPU nothing here waits for the device, unless `error_if_nonfinite` asks for a number.
The 2-norm adds one sum per gradient, in the order of the parameters, so that its bits do
not depend on how gradients are laid out in buckets.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

from ... import Tensor, clamp, full, no_grad, norm, stack
from ...backend import dtype as dtypes
from ...backend.registry import backend_for, stored
from ...core.tensor import wrap
from ...ops.dispatch import update as _update  # noqa: F401  registers the kernels' portable bodies
from ...ops.elementwise.conversion import to

Tensors = Tensor | Iterable[Tensor]


def _gradients(parameters: Tensors) -> list[Tensor]:
    owners = [parameters] if isinstance(parameters, Tensor) else parameters
    return [owner._grad for owner in owners if owner._grad is not None]


@no_grad()
def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The norm of all elements of all tensors, as if they were one vector; 0-dimensional.

    error_if_nonfinite: a `RuntimeError` if it is nan or infinite. foreach: accepted for
    PyTorch's sake.
    """
    parts = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not parts:
        return full((), 0.0)
    if norm_type == 2.0:
        total = _euclidean(parts)
    else:
        total = norm(stack([to(norm(part, norm_type), parts[0].device) for part in parts]), norm_type)
    if error_if_nonfinite and not math.isfinite(float(total)):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite ({float(total)}), so "
            "it cannot be clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


def _euclidean(parts: list[Tensor]) -> Tensor:
    arrays = [stored(part._array, coalesce=True) for part in parts]
    first = arrays[0]
    total: Any = 0.0
    for array in arrays:
        if array.dtype.kind == "c":
            array = array.reshape(-1).view(array.real.dtype)
        total = total + backend_for(array).sum_of_squares(array)
    root = total**0.5
    return wrap(backend_for(first).asarray(root, first.real.dtype))


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale the gradients by max_norm / total_norm where that is below 1."""
    coefficient = clamp(float(max_norm) / (to(total_norm, dtypes.float64) + 1e-6), max=1.0)
    on_device = not coefficient.is_cpu
    factor = 1.0 if on_device else float(coefficient)
    if not on_device and factor >= 1.0:  # not so for nan, which must reach the gradients
        return
    for grad in _gradients(parameters):
        array = stored(grad._array)
        if on_device:
            array *= coefficient._array.astype(array.dtype)
        else:
            backend_for(array).scale_(array, factor)
        grad._versions[0] += 1


def clip_grad_norm_(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients so that their total norm is at most `max_norm`; returns the norm before that.

    Source: https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
    """
    owners = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    total_norm = get_total_norm(_gradients(owners), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(owners, max_norm, total_norm, foreach)
    return total_norm


@no_grad()
def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Limit every element of the gradients to [-clip_value, clip_value]."""
    limit = float(clip_value)
    for grad in _gradients(parameters):
        grad.clamp_(-limit, limit)


def clip_grad_norm(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The former name of `clip_grad_norm_`."""
    warnings.warn(
        "torch.nn.utils.clip_grad_norm is now deprecated in favor of torch.nn.utils.clip_grad_norm_.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)

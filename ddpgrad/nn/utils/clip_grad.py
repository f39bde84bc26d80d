"""Clipping of gradients, by their norm or by value, in place.

On a GPU nothing here waits for the device, unless `error_if_nonfinite` asks for a number.
The 2-norm adds one sum per gradient, in the order of the parameters, so that its bits do
not depend on how gradients are laid out in buckets.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from functools import reduce
from types import GeneratorType
from typing import Any

from ... import Tensor, clamp, full, no_grad, norm, stack
from ...backend.dtype import promote_types
from ...backend.registry import alike, backend_for, stored, to_device
from ...core.dispatching import is_told, telling
from ...core.taping import taped
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
    """The norm of all elements of all tensors, as if they were one vector; 0-dimensional. Of DTensors it is one, too.

    error_if_nonfinite: a `RuntimeError` if it is nan or infinite. foreach: accepted for
    PyTorch's sake.
    """
    parts = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not parts:
        return full((), 0.0)
    told = telling and is_told(parts, {})
    if norm_type == 2.0 and not told:
        total = _euclidean(parts)
    else:
        wholes = (part.whole() if _is_part(part) else part for part in parts)  # type: ignore[attr-defined]
        total = norm(stack([to(norm(whole, norm_type), parts[0].device) for whole in wholes]), norm_type)
    if error_if_nonfinite and not math.isfinite(float(total)):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite ({float(total)}), so "
            "it cannot be clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    for part in parts:
        if _is_part(part):
            return part.replicated(total)  # type: ignore[attr-defined]
    return total


def _is_part(tensor: Tensor) -> bool:
    """Whether this rank has a part of it: a DTensor."""
    return tensor.__class__ is not Tensor and hasattr(tensor, "replicated")


def _euclidean(parts: list[Tensor]) -> Tensor:
    arrays = [stored(part._array, coalesce=True) for part in parts]
    first = arrays[0]
    backend, device = backend_for(first), parts[0].device
    kind = reduce(promote_types, {part.dtype.to_real() for part in parts}).numpy
    total: Any = None
    groups = list(alike(arrays))
    for where, together in groups:
        reals = [a.reshape(-1).view(a.real.dtype) if a.dtype.kind == "c" else a for a in together]
        if len(groups) == 1 and where == device:
            return wrap(backend.root_of_squares(reals, kind))
        part = backend_for(together[0]).sums_of_squares(reals)
        if where != device:
            part = to_device(backend_for(part).asarray(part), device)
        total = part if total is None else total + part
    return wrap(backend.asarray(total**0.5, kind))


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale the gradients by max_norm / total_norm where that is below 1."""
    gradients = _gradients(parameters)
    if telling and is_told(gradients, {}):
        factor = clamp(max_norm / (total_norm + 1e-6), max=1.0)
        for grad in gradients:
            grad.mul_(to(factor, grad.device))
        return
    if _is_part(total_norm):
        total_norm = total_norm.whole()  # type: ignore[attr-defined]
    for device, arrays in alike([stored(grad._array) for grad in gradients]):
        backend = backend_for(arrays[0])
        if device.type != "cpu":
            backend.clip_(arrays, float(max_norm), to(total_norm, device)._array)
            continue
        factor = float(max_norm) / (float(total_norm) + 1e-6)
        if factor >= 1.0:  # not so for nan, which must reach the gradients
            return
        for array in arrays:
            backend.scale_(array, factor)
    for grad in gradients:
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
    if not owners and isinstance(parameters, GeneratorType):
        warnings.warn(
            "`parameters` is an empty generator, no gradient clipping will occur.", UserWarning, stacklevel=2
        )
    return _clip_grad_norm_(owners, max_norm, norm_type, error_if_nonfinite, foreach)


@taped
def _clip_grad_norm_(
    owners: list[Tensor], max_norm: float, norm_type: float, error_if_nonfinite: bool, foreach: bool | None
) -> Tensor:
    total_norm = get_total_norm(_gradients(owners), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(owners, max_norm, total_norm, foreach)
    return total_norm


def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Limit every element of the gradients to [-clip_value, clip_value]."""
    _clip_grad_value_([parameters] if isinstance(parameters, Tensor) else list(parameters), float(clip_value))


@taped
@no_grad()
def _clip_grad_value_(owners: list[Tensor], limit: float) -> None:
    for grad in _gradients(owners):
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

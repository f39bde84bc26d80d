"""Conversion of all tensors of a module in place: device, dtype, gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ...backend import device as devices
from ...backend import dtype as dtypes
from ...core.rank_local import RankLocal
from ...core.taping import taped
from ...core.tensor import Tensor
from ..parameter import Parameter, is_lazy
from . import registration

if TYPE_CHECKING:
    from .module import Module


def parse(
    *args: Any,
    device: Any = None,
    dtype: Any = None,
    non_blocking: bool = False,
    memory_format: Any = None,
    tensor: Tensor | None = None,
) -> tuple[devices.Device | None, dtypes.DType | None, Any]:
    """The (device, dtype, memory format) that `Module.to` was asked for; None where it was not."""
    for arg in args if tensor is None else (*args, tensor):
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, bool):
            continue  # non_blocking by position
        elif isinstance(arg, (str, int, devices.Device)):
            device = arg
        elif arg is not None:
            dtype = arg
    target = None if device is None else devices.of(device)
    kind = None if dtype is None else dtypes.of(dtype)
    if kind is not None and kind.category < 2:
        raise TypeError(
            f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={kind!r}"
        )
    return target, kind, memory_format


def apply(module: Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> None:
    """Replace what every parameter, gradient and buffer of the tree holds by `fn` of it; parameters stay themselves."""
    registration.changes[0] += 1
    seen: dict[Tensor, Tensor] = {}
    for owner in module.modules() if recurse else (module,):
        for name, parameter in owner._parameters.items():
            if parameter is None:
                continue
            if parameter not in seen:
                seen[parameter] = _convert(parameter, fn)
            owner._parameters[name] = seen[parameter]
        for name, buffer in owner._buffers.items():
            if is_lazy(buffer):
                buffer.data = fn(buffer.data)
            elif buffer is not None:
                owner._buffers[name] = fn(buffer)


class _Flags:
    """`torch.__future__`. overwrite: converted parameters are new ones."""

    overwrite: bool = False
    swap: bool = False


flags: RankLocal[_Flags] = RankLocal(_Flags)


def _convert(parameter: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    before = parameter.data
    changed = fn(before)
    if changed._array is before._array:
        return parameter
    grad = parameter._grad
    if flags.get().overwrite:
        made = Parameter(changed, parameter.requires_grad)
        made._grad = None if grad is None else fn(grad.detach())
        return made
    parameter._grad = None
    parameter.data = changed
    if grad is not None:
        parameter.grad = fn(grad)
    return parameter


@taped
def zero_grads(tensors: Iterable[Tensor], set_to_none: bool) -> None:
    """Drop the gradients, or fill them with zeros where they are."""
    for tensor in tensors:
        grad = tensor._grad
        if grad is None:
            continue
        if set_to_none:
            tensor._grad = None
            continue
        if grad._grad_fn is not None or grad._requires_grad:
            tensor._grad = grad = grad.detach()
        grad._array[...] = 0
        grad._versions[0] += 1

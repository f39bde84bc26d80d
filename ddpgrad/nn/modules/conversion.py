"""Conversion of all tensors of a module in place: device, dtype, gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from types import NoneType
from typing import TYPE_CHECKING, Any

from ...autograd.grad_mode import no_grad
from ...backend import device as devices
from ...backend import dtype as dtypes
from ...core.rank_local import RankLocal
from ...core.taping import taped
from ...core.tensor import Tensor
from ..parameter import Parameter, is_lazy
from . import registration

if TYPE_CHECKING:
    from .module import Module


def parse(*args: Any, **kwargs: Any) -> tuple[devices.Device | None, dtypes.DType | None, bool, Any]:
    """(device, dtype, non_blocking, memory format) of `to(device, dtype)`, `to(dtype)` or `to(tensor)`; None where not asked."""
    first = args[0] if args else None
    names: tuple[str, ...] = ("device", "dtype", "non_blocking")
    if isinstance(first, Tensor) or "tensor" in kwargs:
        names = ("tensor", "non_blocking")
    elif isinstance(first, dtypes.DType) or first in (float, int, bool, complex):
        names = ("dtype", "non_blocking")
    given: dict[str, Any] = dict(zip(names, args, strict=False))
    if len(args) > len(names) or given.keys() & kwargs.keys():
        raise TypeError(f"to() got too many arguments, or one twice: it takes ({', '.join(names)})")
    given.update(kwargs)
    if given.pop("copy", False):
        raise RuntimeError(".to() does not accept copy argument")
    memory_format, non_blocking = given.pop("memory_format", None), given.pop("non_blocking", False)
    unknown = [name for name in given if name not in names]
    if unknown or not isinstance(non_blocking, bool):
        raise TypeError(f"to() got wrong arguments: {', '.join(unknown) or f'non_blocking={non_blocking!r}'}")
    if "tensor" in given:
        tensor = given["tensor"]
        if not isinstance(tensor, Tensor):
            raise TypeError(f"to(): tensor must be a Tensor, got {type(tensor).__name__}")
        return tensor.device, tensor.dtype, non_blocking, memory_format
    device, dtype = given.get("device"), given.get("dtype")
    if not isinstance(device, (str, int, devices.Device, NoneType)) or isinstance(device, bool):
        raise TypeError(f"to(): device must be a torch.device, got {device!r}")
    if not isinstance(dtype, (dtypes.DType, type, NoneType)):
        raise TypeError(f"to(): dtype must be a torch.dtype, got {dtype!r}")
    target = None if device is None else devices.of(device)
    return target, None if dtype is None else dtypes.of(dtype), non_blocking, memory_format


def accepted(dtype: dtypes.DType | None) -> dtypes.DType | None:
    """`dtype`, which a module may have; TypeError for integers."""
    if dtype is not None and dtype.category < 2:
        raise TypeError(
            f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype!r}"
        )
    if dtype is not None and dtype.category == 3:
        warnings.warn(
            "Complex modules are a new feature under active development whose design may change, and some modules "
            "might not work as expected when using complex tensors as parameters or buffers.",
            UserWarning,
            stacklevel=3,
        )
    return dtype


def apply(module: Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> None:
    """Replace what every parameter, gradient and buffer of the tree holds by `fn` of it; parameters stay themselves."""
    for child in module.children() if recurse else ():
        child._apply(fn)  # which a class may define for what it has besides members
    registration.changes[0] += 1
    for name, parameter in module._parameters.items():
        if parameter is not None:
            module._parameters[name] = _convert(parameter, fn)
    for name, buffer in module._buffers.items():
        if is_lazy(buffer):
            buffer.data = fn(buffer.data)
        elif buffer is not None:
            module._buffers[name] = fn(buffer)


class _Flags:
    """`torch.__future__`. overwrite: converted parameters are new ones."""

    overwrite: bool = False
    swap: bool = False


flags: RankLocal[_Flags] = RankLocal(_Flags)


def _convert(parameter: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    if is_lazy(parameter):
        parameter.data = fn(parameter.data)
        return parameter
    grad, new = parameter._grad, flags.get().overwrite
    with no_grad():
        changed = fn(parameter)
        grad_changed = None if grad is None else fn(grad)
    # A parameter that gets or loses its elements is another one, so that who holds the old one keeps what it had.
    plain = parameter.__class__ is Parameter
    other = changed.layout is not parameter.layout or (plain and changed.is_meta is not parameter.is_meta)
    if other or (new and changed._array is not parameter._array):
        parameter = Parameter(changed, parameter.requires_grad)
    elif changed._array is not parameter._array:
        parameter._grad = None
        parameter.data = changed
    if grad is not None and grad_changed is not None and grad_changed._array is not grad._array:
        if new or other or grad._view is not None or grad_changed.layout is not grad.layout:
            grad = grad_changed.requires_grad_(grad.requires_grad)
        else:
            grad.data = grad_changed
    parameter._grad = grad
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
        if grad._grad_fn is not None and grad._view is not None:
            tensor._grad = grad = grad.detach()
        grad._grad_fn, grad._output_nr, grad._requires_grad = None, 0, False
        grad._array[...] = 0
        grad._versions[0] += 1

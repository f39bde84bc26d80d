"""One tensor of a module for another, under its name, as libraries that call modules with other parameters exchange them."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from ..modules.module import Module

_MISSING: Any = object()


def set_tensor(module: Module, name: str, tensor: Tensor | None) -> None:
    """Make `tensor` the parameter, buffer or attribute `name` of the module itself."""
    _check(module, name, tensor)
    for members in (module._parameters, module._buffers):
        if name in members:
            members[name] = tensor
            return
    setattr(module, name, tensor)


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """The same; returns what had the name before. With `_MISSING` for a tensor there is nothing of that name afterwards.

    allow_missing: return `_MISSING` where nothing has the name, in place of an error.
    """
    _check(module, name, None if tensor is _MISSING else tensor)
    for members in (module._parameters, module._buffers):
        if name in members:
            before = members[name]
            if tensor is _MISSING:
                del members[name]
            else:
                members[name] = tensor
            return before
    before = getattr(module, name, _MISSING)
    if before is _MISSING and not allow_missing:
        raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
    if before is not _MISSING and before is not None and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is not _MISSING:
        setattr(module, name, tensor)
    elif before is not _MISSING:
        delattr(module, name)
    return before


def _check(module: Any, name: str, tensor: Any) -> None:
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if tensor is not None and not isinstance(tensor, Tensor):
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    if "." in name or not name:
        raise KeyError('tensor name can\'t contain "."' if name else 'tensor name can\'t be empty string ""')


__all__ = ["set_tensor", "swap_tensor"]

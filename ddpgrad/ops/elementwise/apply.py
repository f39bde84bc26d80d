"""In-place methods that call a Python function for each element: slow, and not differentiable, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.tensor import Tensor, wrap
from ..dispatch.tensor_function import tensor_function
from ..indexing.setitem import copy_


@tensor_function()
def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Overwrite each element with what the function makes of it."""
    return _overwrite("apply_", callable, self)


@tensor_function()
def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Overwrite each element with what the function makes of it and of that of `tensor`, broadcast to this shape."""
    return _overwrite("map_", callable, self, tensor)


@tensor_function()
def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """`map_` with the elements of two other tensors."""
    return _overwrite("map2_", callable, self, x, y)


def _overwrite(name: str, function: Callable[..., Any], self: Tensor, *others: Tensor) -> Tensor:
    if not callable(function):
        raise TypeError(f"{name}(): '{type(function).__name__}' object is not callable")
    for tensor in (self, *others):
        if tensor.requires_grad:
            raise RuntimeError(
                f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead."
            )
        if tensor.device.type != "cpu":
            raise TypeError(
                f"{name}() is only implemented on CPU tensors; move the tensor with .cpu() before"
            )
        if tensor.dtype != self.dtype:
            raise TypeError(f"{name}(): expected {self.dtype} like the tensor itself, got {tensor.dtype}")
    shape = tuple(self.shape)
    columns = [tensor.expand(shape).reshape(-1).tolist() for tensor in (self, *others)]
    made = [function(*values) for values in zip(*columns, strict=True)]
    wrong = next((value for value in made if isinstance(value, (str, bytes)) or value is None), 0)
    if wrong != 0:
        raise TypeError(f"{name}(): expected numbers from the function, got {type(wrong).__name__}")
    return copy_(self, wrap(np.array(made, self.dtype.numpy).reshape(shape)))

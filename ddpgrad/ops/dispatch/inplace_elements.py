"""In-place ops that change single elements: they write into the tensor, without a copy of the other elements."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...autograd.grad_mode import mode
from ...autograd.views import check_writable
from ...backend.overwriting import overwriting
from ...backend.registry import backend_for
from ...core.modes import recorders
from ...core.overrides import ask, is_overridden, overriding
from ...core.tensor import Tensor
from .inplace import any_requires_grad
from .overlap import refuse_overlap

WRITERS = (
    "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill", "index_put",
)  # fmt: skip
"""The functions whose kernels write single elements of their first argument (`backend/overwriting.py`)."""


def directly(inplace: Callable[..., Tensor], function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`inplace`, the in-place form of `function`, without a copy where nothing is recorded and no memory is shared."""

    @functools.wraps(inplace)
    def method(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if overriding and is_overridden((input, *args), kwargs):
            return ask(method, (input, *args), kwargs)
        if _keeps_or_shares(input, args, kwargs):
            refuse_overlap(function.__name__, input, (*args, *kwargs.values()))
            return inplace(input, *args, **kwargs)
        check_writable(inplace.__name__, input)
        array = input._array
        with overwriting(array):
            result = function(input, *args, **kwargs)
        if result._array is not array:  # of one element, or of a device whose kernels copy
            array[...] = result._array
        input._versions[0] += 1
        return input

    return method


def _keeps_or_shares(target: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a write to `target` must leave its old elements readable: for backward, a watcher, or another argument."""
    if recorders or (mode.enabled and (target._requires_grad or any_requires_grad(args, kwargs))):
        return True
    return any(isinstance(a, Tensor) and a._versions is target._versions for a in (*args, *kwargs.values()))


def masked_fill_directly(inplace: Callable[..., Tensor], check: Callable[..., None]) -> Callable[..., Tensor]:
    """`masked_fill_`, of which only the masked elements are written where nothing is recorded.

    inplace: the usual form. check: raises an error for wrong arguments.
    """

    @functools.wraps(inplace)
    def masked_fill_(self: Tensor, mask: Tensor, value: Any) -> Tensor:
        if not isinstance(mask, Tensor) or _keeps_or_shares(self, (mask, value), {}):
            return inplace(self, mask, value)
        array, where = self._array, mask._array
        number = value._array if isinstance(value, Tensor) else value
        if (
            where.__class__ is not array.__class__
            or where.ndim > array.ndim
            or hasattr(number, "shape")
            or (number.__class__ is int and number < 0)
        ):
            return inplace(self, mask, value)
        check_writable("masked_fill_", self)
        check(self, mask, value)
        F = backend_for(array)
        try:
            F.fill_where(array, where, F.asarray(number, dtype=array.dtype))
        except ValueError:  # the shapes do not fit, of which the other form tells
            return inplace(self, mask, value)
        self._versions[0] += 1
        return self

    return masked_fill_

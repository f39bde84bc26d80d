"""Parameter: a tensor that a module registers as its own, to be trained."""

from __future__ import annotations

from typing import Any

from .._tensor import Tensor, wrap
from ..ops.creation import empty


class Parameter(Tensor):
    """A leaf tensor that becomes a module's parameter when it is assigned as an attribute.

    data: the values, whose memory is shared; requires_grad: whether backward fills `.grad`.
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Any:
        if data is None:
            data = empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter(): data must be a Tensor, got {type(data).__name__}")
        parameter = wrap(data._array, cls)
        parameter._versions = data._versions
        if requires_grad:
            parameter.requires_grad = True
        return parameter

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        copied = super().__deepcopy__(memo)
        copied._grad = None  # a copied model starts without gradients
        return copied  # type: ignore[return-value]

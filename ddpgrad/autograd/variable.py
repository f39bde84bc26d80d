"""`Variable`: the former name of a tensor with a gradient."""

from __future__ import annotations

import warnings
from typing import Any

from ..core.tensor import Tensor
from . import engine


class _Meta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_Meta):
    """`Variable(tensor, requires_grad)` is a tensor on the same memory; every tensor is a Variable."""

    # Where programs look for `queue_callback`.
    _execution_engine = engine

    def __new__(cls, data: Tensor, requires_grad: bool = False, volatile: bool | None = None) -> Any:
        if volatile is not None:
            warnings.warn(
                "volatile was removed and now has no effect. Use `with torch.no_grad():` instead.",
                stacklevel=2,
            )
        return data.detach().requires_grad_(requires_grad)

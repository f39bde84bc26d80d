"""The methods of DTensor that are those of Tensor: what they do is asked of the class, and numbers are drawn for the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...autograd.grad_mode import no_grad
from ...core.overrides import asking_members
from ...core.tensor import Tensor
from ...ops.creation.draws import METHODS as DRAWS
from ...ops.creation.factories import empty

_OF_THE_TENSOR_NAMES = """
    requires_grad_ register_hook register_post_accumulate_grad_hook retain_grad is_inference dim is_floating_point
    is_complex element_size __reduce__ __reduce_ex__ __setstate__ __getstate__ __array__ __new__ __init_subclass__
    __getattribute__ __repr__ __format__ __dir__ __sizeof__ __init__ __setattr__ __delattr__
"""
_OF_THE_TENSOR = frozenset(_OF_THE_TENSOR_NAMES.split())
"""Methods that say of a DTensor what they say of a tensor: nothing of its elements is asked."""

_VIEWS = frozenset({"T", "mT", "H", "mH", "real", "imag"})


def attach(cls: Any) -> None:
    """Give the class those of the methods of Tensor that it has not itself."""
    own = {*cls.__dict__, *_OF_THE_TENSOR}
    for name, member in asking_members().items():
        if name not in own and (not isinstance(member, property) or name in _VIEWS):
            setattr(cls, name, member)
    cls.__hash__ = Tensor.__hash__
    for name in DRAWS:
        if name.endswith("_"):
            setattr(cls, name, _drawn(cls, name))


def _drawn(cls: Any, name: str) -> Callable[..., Any]:
    """As the method of Tensor draws for the whole, of which this rank keeps its part."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        whole = empty(self.shape, dtype=self.dtype, device=self.device)
        given = [value.whole() if isinstance(value, cls) else value for value in args]
        with no_grad():
            getattr(whole, name)(*given, **kwargs)
            self.copy_(whole)
        return self

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"As `Tensor.{name}` of the whole."
    return method

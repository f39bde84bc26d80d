"""The tables of declared ops and composites, which `declare.py` fills, and the vocabulary on Tensors that they make.

The vocabulary is what `F` is in a gradient rule when `create_graph` is on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...backend.registry import backend_for
from ...core.dispatching import full_like, is_told, telling
from ...core.tensor import Tensor, wrap
from ...core.upcalls import declare_all_ops

if TYPE_CHECKING:
    from .declare import Op

OPS: dict[str, Op] = {}
"""Every op by name: the op table."""

COMPOSITES: dict[str, Callable[..., Any]] = {}
"""Every composite by name, on Tensors."""


class Vocabulary:
    """Every op and composite as an attribute, looked up once."""

    def __getattr__(self, name: str) -> Any:
        if name not in OPS and name not in COMPOSITES and name not in _CREATION:
            declare_all_ops()
        if name in _CREATION:
            found = _CREATION[name]
        elif name in COMPOSITES:
            found = COMPOSITES[name]
        elif name in OPS:
            found = OPS[name].call
        else:
            raise AttributeError(f"the vocabulary has no op or composite '{name}'")
        setattr(self, name, found)
        return found


def _full_like(input: Tensor, value: Any) -> Tensor:
    if telling and is_told((input,), {}):
        return full_like(input, value)
    return wrap(backend_for(input._array).full_like(input._array, value))


def _new_zeros(input: Tensor, shape: Any) -> Tensor:
    if telling and is_told((input,), {}):
        return input.new_zeros(shape)
    return wrap(backend_for(input._array).new_zeros(input._array, shape))


def _asarray(data: Any, dtype: Any = None) -> Tensor:
    """A constant: what rules make of raw arrays is not differentiated."""
    return data if isinstance(data, Tensor) else wrap(backend_for(data).asarray(data, dtype))


_CREATION = {"full_like": _full_like, "new_zeros": _new_zeros, "asarray": _asarray}

VOCABULARY = Vocabulary()

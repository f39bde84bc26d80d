"""Nodes for operations without a derivative: an error when a gradient is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..core.tensor import Tensor
from .accumulate import edge_of
from .grad_mode import mode
from .nodes import NO_EDGE, Edge, Node


class Error(Node):
    """A step of backward that raises. PyTorch gives its own the same name."""

    error: Exception

    def apply(self, grad: Any, F: Any) -> Sequence[Any]:
        raise self.error


def refuse(result: Tensor, error: Exception, edges: Iterable[Edge]) -> Tensor:
    """`result` as a tensor that seems to depend on what `edges` lead to; backward through it raises `error`."""
    out = result.detach()
    node = Error(tuple(e for e in edges if e is not NO_EDGE), out._array.shape, out._array.dtype)
    node.error = error
    out._grad_fn, out._requires_grad = node, True
    return out


def without_derivative(result: Tensor, name: str, *inputs: Tensor) -> Tensor:
    """The `result` of function `name`, which is differentiable as such, but whose derivative is not written."""
    if not (mode.enabled and any(x._requires_grad for x in inputs)):
        return result
    error = NotImplementedError(f"the derivative for '{name}' is not implemented.")
    return refuse(result, error, [edge_of(x) for x in inputs])

"""Runs a graph once and notes the shape and type of each node's value."""

from __future__ import annotations

from typing import Any, NamedTuple

from ....core.tensor import Tensor
from ..interpreter import Interpreter
from ..node import Node, map_aggregate


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its numbers."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any = None
    is_quantized: bool = False
    qparams: dict[str, Any] = {}  # noqa: RUF012 - empty for all: there are no quantized tensors


def _extract_tensor_metadata(result: Tensor) -> TensorMetadata:
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride())


class ShapeProp(Interpreter):
    """`propagate(*args)` runs the module; afterwards node.meta has "tensor_meta" and "type".

    Source: https://pytorch.org/docs/stable/fx.html
    """

    def run_node(self, n: Node) -> Any:
        """The value, of which the node keeps the shape."""
        result = super().run_node(n)
        found: list[Tensor] = []

        def extract(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            found.append(value)
            return _extract_tensor_metadata(value)

        meta = map_aggregate(result, extract)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """See `run`."""
        return super().run(*args)

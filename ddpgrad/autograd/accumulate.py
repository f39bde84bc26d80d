"""The leaf's node: adds what arrives to `.grad`, then tells whoever waits for it."""

from __future__ import annotations

from typing import Any
from weakref import ref

from ..tensor import Tensor, wrap
from .graph import Node, RemovableHandle


class AccumulateGrad(Node):
    """Where backward ends for one leaf. `variable` is the leaf.

    bucket: when set (by the reducer), the view of a flat bucket where the gradient lives:
    the first gradient is copied there, later ones are added there, and `.grad` is that view.
    """

    __slots__ = ("bucket", "variable")

    def __init__(self, variable: Tensor) -> None:
        super().__init__((), variable._array.shape, variable._array.dtype)
        self.variable = variable
        self.bucket: Tensor | None = None
        variable._accumulator = ref(self)

    def register_hook(self, hook: Any) -> RemovableHandle:
        # Hooks live as long as the leaf: the leaf keeps its node from now on.
        self.variable.__dict__["_accumulator_kept"] = self
        return super().register_hook(hook)

    def apply(self, grad: Any, F: Any) -> tuple[()]:
        """Add a raw array, which the engine guarantees to be ours alone, to the leaf's gradient."""
        leaf = self.variable
        current = leaf._grad
        bucket = self.bucket
        if bucket is not None and (current is None or current is bucket):
            if current is None:
                bucket._array[...] = grad
                leaf._grad = bucket
            else:
                bucket._array += grad
        elif current is None:
            leaf._grad = wrap(grad)
        else:
            current._array += grad
            current._versions[0] += 1
        return ()

    def apply_tensor(self, grad: Tensor, F: Any) -> tuple[()]:
        """As `apply`, for a gradient that carries its own history (create_graph)."""
        leaf = self.variable
        leaf._grad = grad if leaf._grad is None else leaf._grad + grad
        return ()

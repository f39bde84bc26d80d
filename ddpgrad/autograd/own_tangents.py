"""Tangents by a Function's own `jvp`.

Tangents come from two reverse passes (`forward_ad.py`): the first is linear in its seeds, and only its graph is
used. So a Function that has `jvp` may give anything of the right shapes as its gradients there, zeros, if the node that
they come from gives the tangents of `jvp` as its own gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..core.modes import mode
from ..core.tensor import Tensor, wrap
from .function import Function, FunctionNode
from .hooks import kind_of


@contextmanager
def transposing() -> Iterator[None]:
    """A block whose reverse pass will be differentiated by its seeds."""
    before, mode.transposing = mode.transposing, True
    try:
        yield
    finally:
        mode.transposing = before


def transposed(node: FunctionNode, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The gradients of the tensor arguments of a Function with `jvp`: zeros, whose derivative by `grads` is `jvp`."""
    return list(_Transposed.apply(node, *grads))


class _Transposed(Function):
    @staticmethod
    def forward(ctx: Any, node: FunctionNode, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.node, ctx.outputs = node, len(grads)
        ctx.set_materialize_grads(False)
        return tuple(
            None if target is None else wrap(np.zeros(*kind_of(target, nr))) for target, nr in node.edges
        )

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor | None) -> tuple[Any, ...]:
        node, own = ctx.node, ctx.node.ctx
        given: list[Tensor | None] = [None] * len(own.needs_input_grad)
        for place, tangent, like in zip(node.places, tangents, node.like, strict=True):
            given[place] = tangent
            if tangent is None and own.materialize_grads and like[1].kind in "fcV":
                given[place] = wrap(np.zeros(*like))
        kept = own._saved
        if own._saved_forward:
            own._saved = own._saved_forward
        before, mode.transposing = mode.transposing, False
        try:
            found = node.function.jvp(own, *given)
        finally:
            own._saved, mode.transposing = kept, before
        found = found if isinstance(found, tuple) else (found,)
        if len(found) != ctx.outputs:
            raise RuntimeError(
                f"{node.name()}: jvp returned {len(found)} tangents, expected {ctx.outputs}: one for each output of "
                "forward, None where there is none"
            )
        return None, *found

"""What a view remembers of its base."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..autograd.graph import Node
    from .tensor import Tensor


class View(NamedTuple):
    """How a view was made, so that writing through it can reach the base's graph.

    base: the tensor that owns the memory. steps: (op, arguments after the input) from the
    base to this view; None when it is not to be done again (`maker`). root:
    the base's grad_fn when the view was recorded; when it is no longer that, the view's own
    grad_fn is out of date and is made again (`autograd/accumulate.py`). A view that was made while
    nothing is recorded has a number instead: the version v of the memory then, or -1 - v in
    inference mode. maker: "several" when one function returned this view together with others,
    "Function" when a custom one did; both forbid writing to it under autograd.
    """

    base: Tensor
    steps: tuple[tuple[Any, tuple[Any, ...]], ...] | None
    root: Node | int | None
    maker: str | None = None

"""`torch.autograd.forward_ad`: tensors with tangents, and the tangents of what is computed of them.

A tangent is not computed beside each op. `unpack_dual` takes it from the graph: the reverse pass from the tensor to
the duals, differentiated once more by its seed, in which it is linear. So what is computed of duals is recorded,
its `requires_grad` is True, and under `no_grad` tangents get lost.
Source: https://j-towns.github.io/2017/06/12/A-new-trick.html
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..core.tensor import Tensor, wrap
from .entry import grad
from .function import Function
from .functional import _dummies
from .grad_mode import enable_grad
from .graph import get_gradient_edge
from .own_tangents import transposing


class _Level(threading.local):
    """The duals of the level that this thread is in, by the places in the graph where they were made.

    anchor: the leaf that has them recorded.
    """

    duals: list[tuple[Any, Tensor]] | None = None
    anchor: Tensor


_level = _Level()


def __getattr__(name: str) -> int:
    """`_current_level`: 0 within a level, else -1."""
    if name == "_current_level":
        return -1 if _level.duals is None else 0
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class UnpackedDualTensor(NamedTuple):
    """A tensor and its tangent, None where it has none."""

    primal: Tensor
    tangent: Tensor | None


class _Dual(Function):
    """The memory of a tensor, recorded whether that requires a gradient or not."""

    takes_examples = True

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor) -> Tensor:
        return wrap(x._array)  # no view, so that duals may be written to

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return grad_outputs[0], None


def recorded(tensor: Tensor, anchor: Tensor) -> Tensor:
    """The memory of `tensor` as one that the leaf `anchor` has recorded, and that may be written to."""
    dual = _Dual.apply(tensor, anchor)
    dual._versions = tensor._versions  # who has saved the tensor learns of such writes
    return dual


def enter_dual_level() -> int:
    """Begin a level, in which tensors have tangents; RuntimeError within another one."""
    if _level.duals is not None:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _level.duals, _level.anchor = [], wrap(np.zeros(())).requires_grad_()
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level: no tensor has a tangent any more."""
    if _level.duals is None or level not in (None, 0):
        raise RuntimeError("Trying to exit a forward AD level that was not entered")
    _level.duals = None


@contextlib.contextmanager
def dual_level() -> Iterator[int]:
    """A block that is a level."""
    level = enter_dual_level()
    try:
        yield level
    finally:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """`tensor` with a tangent of its shape and dtype, in the same memory.

    RuntimeError outside a level, and for a tangent that does not fit; ValueError for integers.
    """
    if _level.duals is None:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for name, given in (("primal", tensor), ("tangent", tangent)):
        if given.dtype.category < 2:
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {given.dtype}")
    if unpack_dual(tangent).tangent is not None:
        raise RuntimeError(
            "Expected the tangent to have no tangent itself, but it has a forward gradient at the same level"
        )
    if tensor.shape != tangent.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
            f"supported. Tensor is of size {list(tensor.shape)} while the given forward gradient is of size "
            f"{list(tangent.shape)}."
        )
    with enable_grad():
        dual = recorded(tensor, _level.anchor)
    _level.duals.append((get_gradient_edge(dual), tangent))
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """(tensor, its tangent): how it changes as all duals move along their tangents; None where it depends on none."""
    if not _level.duals or not tensor._requires_grad:
        return UnpackedDualTensor(tensor, None)
    duals, real = _level.duals, _is_real(tensor)
    plain = UnpackedDualTensor(tensor if real else tensor.detach(), None)
    here = get_gradient_edge(tensor)
    for edge, tangent in duals:
        if edge == here:
            return plain._replace(tangent=tangent)
    with enable_grad():
        seeds = _dummies([tensor])
        with transposing():
            back = grad(tensor, [edge for edge, _ in duals], seeds, create_graph=True, allow_unused=True)
        moved = [(b, tangent) for b, (_, tangent) in zip(back, duals, strict=True) if b is not None]
        if not moved:
            return plain
        linear = [pair for pair in moved if pair[0]._requires_grad]  # others are constant, and zero
        columns, tangents = [b for b, _ in linear], [t for _, t in linear]
        found = (None,)
        if linear:
            found = grad(columns, seeds, tangents, create_graph=True, allow_unused=True)
        out = seeds[0].detach() if found[0] is None else found[0]
    keeps = real or any(tangent._requires_grad for tangent in tangents)
    return plain._replace(tangent=out if keeps else out.detach())


def _is_real(tensor: Tensor) -> bool:
    """Whether `tensor` depends on a leaf other than what keeps duals in the graph."""
    seen, todo = set(), [tensor.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        leaf = getattr(node, "variable", None)
        if leaf is not None and leaf is not _level.anchor:
            return True
        todo += [above for above, _ in node.next_functions]
    return False

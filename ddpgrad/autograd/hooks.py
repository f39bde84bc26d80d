"""Calls of hooks during a walk: hooks get Tensors, also where the walk has raw arrays.

`on_tensors` says which of both the walk has; `F` is its vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend.registry import backend_for
from ..core.classes import seen, shown, walked
from ..core.tensor import Tensor
from .accumulate import AccumulateGrad
from .nodes import Edge, Node


def call_tensor_hooks(node: Node, grad: Any, F: Any, on_tensors: bool) -> Any:
    """The gradient of `node`'s output (a list for several) after the hooks of the tensors that they are.

    As in PyTorch, hooks are called with None where no gradient reached a tensor.
    """
    grads = _listed(node, grad)
    if isinstance(node, AccumulateGrad):
        by_output = {0: node.variable._hooks or {}}
    else:
        by_output = node._tensor_hooks or {}
    for nr, hooks in by_output.items():
        for _, hook in sorted(hooks.items(), key=lambda item: item[0] < 0):  # retain_grad's last
            result = walked(hook(_shown(grads[nr], F, on_tensors)))
            if result is not None:
                grads[nr] = _taken(_checked(result, grads[nr], kind_of(node, nr), node, hook), on_tensors)
    return _unlisted(node, grads)


def call_prehooks(node: Node, grad: Any, F: Any, on_tensors: bool) -> Any:
    """The gradient of `node`'s output (a list for several) after the node's prehooks."""
    grads = _listed(node, grad)
    for hook in list((node._prehooks or {}).values()):
        result = walked(hook(tuple(_shown(g, F, on_tensors) for g in grads)))
        if result is not None:
            grads = [
                None if g is None else _taken(_checked(g, old, kind_of(node, i), node, hook), on_tensors)
                for i, (g, old) in enumerate(
                    zip(_replaced(result, len(grads), node, hook), grads, strict=True)
                )
            ]
    return _unlisted(node, grads)


def call_hooks(node: Node, results: Sequence[Any], grad: Any, F: Any, on_tensors: bool) -> Sequence[Any]:
    """The gradients that `node` returned, after its hooks. grad: what the node was given."""
    grads = grad if isinstance(grad, (list, tuple)) else (grad,)
    outputs = tuple(_shown(g, F, on_tensors) for g in grads)
    edges = node.edges
    results = [_fitted(g, edge, F, on_tensors) for g, edge in zip(results, edges, strict=True)]
    for hook in list((node._hooks or {}).values()):
        result = walked(hook(tuple(_shown(g, F, on_tensors) for g in results), outputs))
        if result is not None:
            replaced = zip(_replaced(result, len(results), node, hook), results, edges, strict=True)
            results = [
                None
                if g is None
                else _taken(_checked(g, old, None if to is None else kind_of(to, nr), node, hook), on_tensors)
                for g, old, (to, nr) in replaced
            ]
    return results


def _listed(node: Node, grad: Any) -> list[Any]:
    """The gradients of the outputs of `node`, one for each."""
    if node.outputs > 1:
        return [None] * node.outputs if grad is None else list(grad)
    return [grad]


def _unlisted(node: Node, grads: list[Any]) -> Any:
    if node.outputs > 1:
        return None if all(g is None for g in grads) else grads
    return grads[0]


def kind_of(node: Node, nr: int) -> tuple[Any, Any]:
    """Shape and dtype of output `nr` of `node`."""
    return (node.shape[nr], node.dtype[nr]) if node.outputs > 1 else (node.shape, node.dtype)


def _fitted(grad: Any, edge: Edge, F: Any, on_tensors: bool) -> Any:
    """`grad` in the shape and dtype of what it is the gradient of, which rules leave to the engine."""
    node, nr = edge
    if grad is None or node is None:
        return None
    shape, dtype = kind_of(node, nr)
    array = grad._array if on_tensors else grad
    if array.shape != shape:
        grad = F.sum_to(grad, shape)
        array = grad._array if on_tensors else grad
    return grad if array.dtype == dtype else F.cast(grad, dtype)


def _shown(grad: Any, F: Any, on_tensors: bool) -> Tensor | None:
    if grad is None:
        return None
    return seen(grad) if on_tensors else shown(backend_for(grad).asarray(grad))


def _taken(grad: Tensor | None, on_tensors: bool) -> Any:
    return grad if grad is None or on_tensors else grad._array


def _name(hook: Any) -> str:
    return getattr(hook, "__name__", type(hook).__name__)


def _replaced(result: Any, count: int, node: Node, hook: Any) -> tuple[Any, ...]:
    """The gradients that a hook returned, as many as it was given."""
    if not isinstance(result, tuple):
        raise TypeError(
            f"expected tuple, but hook '{_name(hook)}' of {node.name()} returned {type(result).__name__}"
        )
    if len(result) != count:
        raise RuntimeError(
            f"hook '{_name(hook)}' has returned an incorrect number of values (got {len(result)}, but expected {count} at "
            f"{node.name()})"
        )
    return result


def _checked(grad: Any, old: Any, kind: tuple[Any, Any] | None, node: Node, hook: Any) -> Tensor:
    """What a hook returned must be of the kind of the gradient `old` that it replaces."""
    if old is None or kind is None:
        raise RuntimeError(
            f"can't replace a None gradient with a non-None value: hook '{_name(hook)}' at {node.name()}"
        )
    if not isinstance(grad, Tensor):
        raise TypeError(
            f"expected Variable, but hook returned '{type(grad).__name__}': hook '{_name(hook)}' of {node.name()} "
            f"must return a Tensor or None, got {type(grad).__name__}"
        )
    shape, dtype = kind
    if grad._array.shape != shape:
        raise RuntimeError(
            f"hook '{_name(hook)}' has changed the size of value: a gradient at {node.name()} has shape {list(shape)}, the "
            f"hook returned {list(grad._array.shape)}"
        )
    if grad._array.dtype != dtype:
        raise RuntimeError(
            f"hook '{_name(hook)}' has changed the type of value: a gradient at {node.name()} is {dtype.name}, the hook "
            f"returned {grad._array.dtype.name}"
        )
    return grad

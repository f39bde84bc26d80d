"""Calling hooks during a walk: they see Tensors, while the walk may have raw arrays.

`on_tensors` says which of both the walk has; `F` is its vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._tensor import Tensor, wrap
from .accumulate import AccumulateGrad
from .nodes import Node


def call_tensor_hooks(node: Node, grad: Any, F: Any, on_tensors: bool) -> Any:
    """The gradient of `node`'s output (a list for several) after the hooks of the tensors that they are."""
    grads = list(grad) if node.outputs > 1 else [grad]
    if isinstance(node, AccumulateGrad):
        by_output = {0: node.variable._hooks or {}}
    else:
        by_output = node._tensor_hooks or {}
    for nr, hooks in by_output.items():
        for _, hook in sorted(hooks.items(), key=lambda item: item[0] < 0):  # retain_grad's last
            if grads[nr] is None:
                break
            result = hook(_shown(grads[nr], F, on_tensors))
            if result is not None:
                grads[nr] = _taken(_checked(result, node, nr, hook), on_tensors)
    return grads if node.outputs > 1 else grads[0]


def call_prehooks(node: Node, grad: Any, F: Any, on_tensors: bool) -> Any:
    """The gradient of `node`'s output (a list for several) after the node's prehooks."""
    grads = list(grad) if node.outputs > 1 else [grad]
    for hook in list((node._prehooks or {}).values()):
        result = hook(tuple(_shown(g, F, on_tensors) for g in grads))
        if result is not None:
            replaced = _replaced(result, len(grads), node, hook)
            grads = [
                None if g is None else _taken(_checked(g, node, i, hook), on_tensors)
                for i, g in enumerate(replaced)
            ]
    return grads if node.outputs > 1 else grads[0]


def call_hooks(node: Node, results: Sequence[Any], grad: Any, F: Any, on_tensors: bool) -> Sequence[Any]:
    """The gradients that `node` returned, after its hooks. grad: what the node was given."""
    grads = grad if isinstance(grad, (list, tuple)) else (grad,)
    outputs = tuple(_shown(g, F, on_tensors) for g in grads)
    for hook in list((node._hooks or {}).values()):
        result = hook(tuple(_shown(g, F, on_tensors) for g in results), outputs)
        if result is not None:
            results = [_taken(g, on_tensors) for g in _replaced(result, len(results), node, hook)]
    return results


def _shown(grad: Any, F: Any, on_tensors: bool) -> Tensor | None:
    return grad if grad is None or on_tensors else wrap(F.asarray(grad))


def _taken(grad: Tensor | None, on_tensors: bool) -> Any:
    return grad if grad is None or on_tensors else grad._array


def _name(hook: Any) -> str:
    return getattr(hook, "__name__", type(hook).__name__)


def _replaced(result: Any, count: int, node: Node, hook: Any) -> tuple[Any, ...]:
    """The gradients that a hook returned, as many as it was given."""
    replaced = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if len(replaced) != count:
        raise RuntimeError(
            f"hook '{_name(hook)}' of {node.name()} returned {len(replaced)} gradients, expected {count}"
        )
    return replaced


def _checked(grad: Any, node: Node, nr: int, hook: Any) -> Tensor:
    """What a hook returned must be of the kind of the gradient that it replaces."""
    if not isinstance(grad, Tensor):
        raise TypeError(
            f"hook '{_name(hook)}' on the output of {node.name()} must return a Tensor or None, got "
            f"{type(grad).__name__}"
        )
    shape, dtype = (node.shape[nr], node.dtype[nr]) if node.outputs > 1 else (node.shape, node.dtype)
    if grad._array.shape != shape:
        raise RuntimeError(
            f"hook '{_name(hook)}' has changed the size of value: the gradient of the output of {node.name()} has "
            f"shape {list(shape)}, the hook returned {list(grad._array.shape)}"
        )
    if grad._array.dtype != dtype:
        raise RuntimeError(
            f"hook '{_name(hook)}' has changed the type of value: the gradient of the output of {node.name()} is "
            f"{dtype.name}, the hook returned {grad._array.dtype.name}"
        )
    return grad

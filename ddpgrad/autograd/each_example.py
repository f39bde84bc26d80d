"""Gradient rules that can not take all examples of a `vmap` at once, run for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..backend.mapped.array import innermost
from ..backend.registry import backend_for
from ..core.errors import NotMapped
from ..core.tensor import Tensor, wrap
from ..core.upcalls import for_each_example, tensor_vocabulary
from .crossing import Level, enter, leave, level_of


@for_each_example.register
def one_by_one(rule: Callable[..., Sequence[Any]], F: Any, grad: Any, kept: Any, edges: Any) -> Sequence[Any]:
    """rule(F, grad, kept, edges) of gradients and kept values that hold all examples of a vmap, by calls for each."""
    some = innermost(_arrays((grad, kept)))
    if some is None:
        raise NotMapped
    level, on_arrays = level_of(some), innermost((grad,)) is not None
    results = []
    for i in range(level.count):
        grad_i, kept_i = _example(grad, level, i), _example(kept, level, i)
        F_i = F if not on_arrays else backend_for(next(g for g in _flat(grad_i) if g is not None))
        try:
            results.append(rule(F_i, grad_i, kept_i, edges))
        except NotMapped:
            results.append(one_by_one(rule, F_i, grad_i, kept_i, edges))
    return [_joined(values, level) for values in zip(*results, strict=True)]


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in _flat(part)]
    return [value]


def _arrays(value: Any) -> list[Any]:
    return [x._array if isinstance(x, Tensor) else x for x in _flat(value)]


def _example(value: Any, level: Level, i: int) -> Any:
    if isinstance(value, (tuple, list)):
        return value.__class__([_example(part, level, i) for part in value])
    tensor = value if isinstance(value, Tensor) else wrap(value) if hasattr(value, "levels") else None
    if tensor is None or level.number not in getattr(tensor._array, "levels", ()):
        return value
    example = leave(tensor, 0, level).select(0, i)
    return example if tensor is value else example._array


def _joined(values: Sequence[Any], level: Level) -> Any:
    """The gradients of all examples as one; numbers and None are the same for all."""
    first = values[0]
    if first is None:
        return None
    tensors = [v if isinstance(v, Tensor) else wrap(backend_for(v).asarray(v)) for v in values]
    joined = enter(tensor_vocabulary().stack(tensors, 0), 0, level)
    return joined if isinstance(first, Tensor) else joined._array

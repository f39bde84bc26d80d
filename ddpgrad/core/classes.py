"""The class of tensors that programs see, by the raw array."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .tensor import Tensor, wrap

classes: dict[type, type] = {}
"""By the class of a raw array, that of tensors which have one, where it is not `Tensor`."""

plain: dict[type, Callable[[Any], Tensor]] = {}
"""By such a class of tensors, what makes a `Tensor` with the same history of one, for the engine."""


def shown(array: Any) -> Any:
    """`wrap` for programs to see what the engine has, of the class that belongs to the array."""
    return wrap(array, classes.get(array.__class__, Tensor))


def seen(tensor: Tensor) -> Any:
    """`tensor`, which the engine has, for programs: with the same history, of the class that belongs to its array."""
    kind = classes.get(tensor._array.__class__)
    if kind is None:
        return tensor
    other = wrap(tensor._array, kind)
    other._versions, other._requires_grad = tensor._versions, tensor._requires_grad
    other._grad_fn, other._output_nr = tensor._grad_fn, tensor._output_nr
    return other


def prepare(values: Iterable[Any]) -> None:
    """Let those of the tensors that are of such a class be recorded as results of a function."""
    for value in values if plain else ():
        if value.__class__ in plain and not value._requires_grad:
            value.compute()


def walked(value: Any) -> Any:
    """What a program has returned, a tensor or a tuple of them, as the engine has it."""
    if value.__class__ in plain:
        return plain[value.__class__](value)
    return tuple(map(walked, value)) if value.__class__ is tuple else value

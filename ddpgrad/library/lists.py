"""Lists of tensors among the arguments and results of an op: autograd sees their elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..core.tensor import Tensor


class Layout:
    """Which arguments, and which results, of one call are lists of how many tensors; None for what is no such list."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._arguments = _lengths(values)
        self._results: list[int | None] | None = None
        self._kind: Callable[[list[Any]], Any] | None = None

    def flat(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Arguments with the elements of the lists in their places."""
        return tuple(_elements(values, self._arguments))

    def values(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments again: the inverse of `flat`."""
        return tuple(_packed(flat, self._arguments))

    def flat_result(self, result: Any) -> Any:
        """What the op returned, as a tuple of its tensors and other values, which `result` undoes."""
        self._kind = type(result) if isinstance(result, (list, tuple)) else None
        if self._kind is None:
            return result
        self._results = _lengths(result)
        return tuple(_elements(result, self._results))

    def result(self, flat: Any) -> Any:
        """The result again: the inverse of `flat_result`."""
        if self._results is None or self._kind is None:
            return flat
        return self._kind(_packed(flat, self._results))

    def grads(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients of the results: one for each, lists for lists. An op that returns one list has one."""
        packed = list(flat) if self._results is None else _packed(flat, self._results)
        return (packed,) if self._kind is list else tuple(packed)

    def flat_grads(self, name: str, found: tuple[Any, ...]) -> tuple[Any, ...]:
        """What a backward returned: a gradient for each argument, a list or None for a list."""
        flat: list[Any] = []
        for grad, length in zip(found, self._arguments, strict=False):
            if length is None:
                flat.append(grad)
            elif grad is None:
                flat += [None] * length
            elif isinstance(grad, (list, tuple)) and len(grad) == length:
                flat += grad
            else:
                raise RuntimeError(
                    f"{name}: backward returned {type(grad).__name__} for a list of {length} tensors, expected a list of as "
                    "many gradients"
                )
        return (*flat, *found[len(self._arguments) :])


def with_lists(function: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for `vmap`, which is given elements and a `Layout`, and has the lists."""

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        layout = args[-1]
        results, dims = function(info, layout.values(in_dims[:-1]), *layout.values(args[:-1]))
        flat = layout.flat_result(results)
        return flat, tuple(_elements(dims, layout._results)) if layout._results is not None else dims

    return rule


def _lengths(values: Sequence[Any]) -> list[int | None]:
    return [
        len(value) if isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value) else None
        for value in values
    ]


def _elements(values: Sequence[Any], lengths: Sequence[int | None]) -> Iterator[Any]:
    for value, length in zip(values, lengths, strict=True):
        if length is None:
            yield value
        elif isinstance(value, (list, tuple)):
            yield from value
        else:  # one for all, as the dimension of a batch
            yield from [value] * length


def _packed(flat: Sequence[Any], lengths: Sequence[int | None]) -> list[Any]:
    rest = iter(flat)
    return [next(rest) if length is None else [next(rest) for _ in range(length)] for length in lengths]

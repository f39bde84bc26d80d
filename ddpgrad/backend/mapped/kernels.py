"""The backend of MappedArrays: kernels that take all examples at once, by a rule that tells where the examples are.

A kernel without a rule runs once for each example, on the examples' own backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.errors import NotMapped
from ...core.upcalls import at_once
from ..device import Device
from ..dtype import numpy_of
from ..registry import Backend, Kernel, add_backend, backend_for, body_of
from . import indexing, layers, shapes
from .array import MappedArray, Summable, at, innermost, kind_of, mapped, mapped_in, repeated
from .elements import OF_ELEMENTS, elementwise
from .rules import RULES, TOTALS, Rule

Array = Any
__all__ = ["BACKEND", "MappedBackend", "indexing", "layers", "shapes"]

_OF_PARTS = frozenset(("getitem", "sum_to", "weight_gradient"))
"""Kernels that are made of others here, as their portable bodies are."""

_REFUSED = frozenset(("dropout", "empty", "move", "nonzero", "on", "overwrite", "view_dtype"))
"""Kernels that draw, write or look at memory."""


class MappedBackend(Backend):
    """Kernels on MappedArrays of any level."""

    places = False

    def _find(self, name: str) -> Kernel:
        if name in _REFUSED or name[-1] == "_":
            return _refuse
        if name == "asarray":
            return _asarray
        body = body_of(name)
        if name in _OF_PARTS and body is not None:
            return lambda *args: body(self, *args)
        rule = RULES.get(name)
        if rule is None and body is not None and body.__module__.startswith(OF_ELEMENTS):
            rule = elementwise(name)
        return _at_once(name, rule)


def _refuse(*args: Any, **options: Any) -> Any:
    raise NotMapped


def _asarray(data: Any, dtype: Any = None, like: Any = None) -> Any:
    if not isinstance(data, MappedArray):
        return np.asarray(data, None if dtype is None else numpy_of(dtype))
    return data if dtype is None else BACKEND.cast(data, dtype)


def _at_once(name: str, rule: Rule | None) -> Kernel:
    total = TOTALS.get(name)

    def kernel(*args: Any) -> Any:
        some = innermost(args)
        if some is None:
            return getattr(backend_for(next(a for a in args if hasattr(a, "dtype"))), name)(*args)
        level, whole = some.level, some.whole
        seen = [_seen(value, level) for value in args]
        among = list(mapped_in(seen))
        outer = any(value.level or isinstance(value.whole, MappedArray) for value in among)
        H = BACKEND if outer else backend_for(whole)
        count = len(whole)
        if not any(value.__class__ is MappedArray for value in among):
            return _made(getattr(H, name)(*seen), lambda one: at(level, repeated(H.asarray(one), count)))
        if total is not None and not at_once():  # in backward from outside, which may want the sum only
            try:
                return _later(*total(H, *seen), seen, level, lambda: result(H, seen, count, level).whole)
            except NotMapped:
                pass
        return result(H, seen, count, level)

    def result(H: Any, seen: Sequence[Any], count: int, level: int) -> Any:
        if rule is not None:
            try:
                return _made(rule(H, *seen), lambda whole: mapped(whole, count, level))
            except NotMapped:
                pass
        return _one_by_one(H, name, seen, count, level)

    kernel.__name__ = name
    return kernel


def _later(
    shape: tuple[int, ...],
    total: Callable[[], Array],
    seen: Sequence[Any],
    level: int,
    make: Callable[[], Array],
) -> Summable:
    """The result of a kernel of which perhaps only the sum over the examples is wanted."""
    wholes = [value.whole for value in seen if value.__class__ is MappedArray]
    kinds = {whole.__class__ for whole in wholes}
    if len(kinds) > 1:
        raise NotMapped
    return kind_of(level, kinds.pop(), Summable)(make, total, shape, wholes[0].dtype, len(wholes[0]))


def _seen(value: Any, level: int) -> Any:
    """`value` as a rule sees it that is asked about the vmap at `level`: as a single array where it is one for all examples."""
    if isinstance(value, MappedArray):
        if value.level != level:
            return value
        whole = value.whole
        return whole[0, ...] if whole.strides[0] == 0 and len(whole) > 1 else MappedArray(whole)
    kind = value.__class__
    return kind([_seen(part, level) for part in value]) if kind is tuple or kind is list else value


def _made(result: Any, made: Callable[[Array], MappedArray]) -> Any:
    """What a kernel returned, with MappedArrays for arrays."""
    if isinstance(result, (tuple, list)):
        return result.__class__([_made(part, made) for part in result])
    return None if result is None else made(result)


def _example(value: Any, i: int) -> Any:
    if value.__class__ is MappedArray:
        return value.whole[i, ...]
    if value.__class__ is tuple or value.__class__ is list:
        return value.__class__([_example(part, i) for part in value])
    return value


def _one_by_one(H: Backend, name: str, seen: Sequence[Any], count: int, level: int) -> Any:
    """The results of all examples, one after another."""
    kernel = getattr(H, name)
    return _stacked(H, [kernel(*[_example(value, i) for value in seen]) for i in range(count)], level)


def _stacked(H: Backend, results: Sequence[Any], level: int) -> Any:
    first = results[0]
    if isinstance(first, (tuple, list)):
        return first.__class__([_stacked(H, parts, level) for parts in zip(*results, strict=True)])
    if first is None:
        return None
    if not hasattr(first, "dtype") or any(one.shape != first.shape for one in results):
        raise NotMapped
    return at(level, H.stack([H.asarray(one) for one in results], 0))


def _device_of(array: MappedArray) -> Device:
    return backend_for(array.whole).device_of(array.whole)


BACKEND = MappedBackend("cpu", MappedArray, {}, {}, _device_of)
add_backend(BACKEND)

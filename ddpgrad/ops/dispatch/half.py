"""16-bit floating point: bodies compute in float32, and the result is rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend.registry import Backend, backend_for

if TYPE_CHECKING:
    from .declare import Op

_FLOAT32 = np.dtype(np.float32)


# Bodies that only move elements, in whatever type they have.
_MOVES = frozenset({"masked_fill", "place", "place_diagonal", "repeat", "to_contiguous"})
DIGITS_KEPT = {"mul": "multiply", "div": "divide", "floor_divide": "floor_divide"}


def of_numbers(op: Op, kernel: Callable[..., Any], dtype: Any) -> Callable[..., Any]:
    """The kernel of `op`, which has no body, for operands of 16 bits and numbers, which are rounded as PyTorch does.

    A product and a quotient take a number in float32, also one in an array of no dimensions; anything else takes it
    as a tensor of `dtype`.
    """
    if op.name in DIGITS_KEPT:

        def scaled(input: Any, other: Any) -> Any:
            arrays = [x for x in (input, other) if hasattr(x, "dtype")]
            if len(arrays) == 2 and other.dtype is input.dtype:
                return kernel(input, other)
            product = _by_a_number(backend_for(arrays[0]), DIGITS_KEPT[op.name])
            watching = getattr(kernel, "watching", None)
            return (product if watching is None else watching(product))(input, other)

        return scaled
    number = dtype.numpy.type
    return lambda *args: kernel(
        *[number(x) if i in op.tensors and isinstance(x, (int, float)) else x for i, x in enumerate(args)]
    )


@cache
def _by_a_number(backend: Backend, name: str) -> Callable[..., Any]:
    """One object for each: captured steps compare what runs."""
    return partial(backend.by_a_number, name)


def rounded_once(
    name: str,
    body: Callable[..., Any],
    tensors: Sequence[int] | None,
    outputs: int,
    dtype_place: int | None = None,
) -> Callable[..., Any]:
    """The body of kernel `name`, computing in float32 if the first of its arrays is of a 16-bit type.

    The results that have a gradient get that type.

    The others are of that type, or float32, as the parameters of a norm may be. tensors: positions of
    the arrays among the arguments, None for all; outputs: how many results have a gradient. What there is besides, the
    statistics of a batch norm and what a forward keeps, stays float32. dtype_place: position of the result's dtype, which is as the user says if given.
    """
    if name in _MOVES:
        return body

    @wraps(body)
    def computed(F: Any, *args: Any, **kwargs: Any) -> Any:
        if dtype_place is not None and len(args) > dtype_place and args[dtype_place] is not None:
            return body(F, *args, **kwargs)
        places = range(len(args)) if tensors is None else tensors
        for i in places:
            if i < len(args) and getattr(args[i], "itemsize", 0) == 2:
                break
        else:
            return body(F, *args, **kwargs)
        types = [args[i].dtype for i in places if i < len(args) and _is_floating(args[i])]
        if not types or any(kind not in (types[0], _FLOAT32) for kind in types):
            return body(F, *args, **kwargs)
        dtype = types[0]
        wide = [
            F.cast(value, _FLOAT32) if i in places and _is_floating(value) else value
            for i, value in enumerate(args)
        ]
        result = getattr(F, name)(*wide, **kwargs)  # the fast kernel, where there is one
        if not isinstance(result, tuple):
            return _narrowed(F, result, dtype) if outputs else result
        return *(_narrowed(F, value, dtype) for value in result[:outputs]), *result[outputs:]

    return computed


def _is_floating(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return dtype is not None and (dtype.kind == "f" or (dtype.kind == "V" and dtype.itemsize == 2))


def _narrowed(F: Any, value: Any, dtype: Any) -> Any:
    return F.cast(value, dtype) if getattr(value, "dtype", None) == _FLOAT32 else value

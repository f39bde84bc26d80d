"""16-bit floating point: bodies compute in float32, and the result is rounded once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_FLOAT32 = np.dtype(np.float32)


def rounded_once(
    body: Callable[..., Any], tensors: Sequence[int], outputs: int, dtype_place: int | None = None
) -> Callable[..., Any]:
    """An op's body that computes in float32 if the first of its arrays is of a 16-bit type, which the result gets.

    The others are of that type, or float32, as the parameters of a norm may be. tensors: positions of
    the arrays among the arguments; outputs: how many results users see. What the forward keeps
    besides them stays float32. dtype_place: position of the result's dtype, which is as the user says if given.
    """

    @functools.wraps(body)
    def computed(F: Any, *args: Any, **kwargs: Any) -> Any:
        if dtype_place is not None and len(args) > dtype_place and args[dtype_place] is not None:
            return body(F, *args, **kwargs)
        for i in tensors:
            if i < len(args) and getattr(args[i], "itemsize", 0) == 2:
                break
        else:
            return body(F, *args, **kwargs)
        types = [args[i].dtype for i in tensors if i < len(args) and _is_floating(args[i])]
        if not types or any(kind not in (types[0], _FLOAT32) for kind in types):
            return body(F, *args, **kwargs)
        dtype = types[0]
        wide = [
            F.cast(value, _FLOAT32) if i in tensors and _is_floating(value) else value
            for i, value in enumerate(args)
        ]
        result = body(F, *wide, **kwargs)
        if not isinstance(result, tuple):
            return _narrowed(F, result, dtype)
        return *(_narrowed(F, value, dtype) for value in result[:outputs]), *result[outputs:]

    return computed


def _is_floating(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return dtype is not None and (dtype.kind == "f" or (dtype.kind == "V" and dtype.itemsize == 2))


def _narrowed(F: Any, value: Any, dtype: Any) -> Any:
    return F.cast(value, dtype) if getattr(value, "dtype", None) == _FLOAT32 else value

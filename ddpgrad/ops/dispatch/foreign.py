"""Objects that are no Tensors and have a `__torch_function__`, such as the lazy matrices of a library, as arguments.

They are asked where a call of an op or of a function made of ops has failed, so that calls with tensors pay nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...core.tensor import Tensor


def answer(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> Any:
    """What the first class with a `__torch_function__` among the arguments makes of `function`; raises `error` if none does.

    args: as they were given, or filled up with defaults, which are left out again.
    """
    foreign = [a for a in _flat((*args, *kwargs.values())) if _is_foreign(a)]
    if foreign:
        parameters = list(inspect.signature(function).parameters.values())
        while args and len(args) <= len(parameters) and args[-1] is parameters[len(args) - 1].default:
            args = args[:-1]
        types = tuple(dict.fromkeys(type(a) for a in _flat(args) if isinstance(a, Tensor) or _is_foreign(a)))
        for one in foreign:
            result = type(one).__torch_function__(function, types, tuple(args), dict(kwargs))
            if result is not NotImplemented:
                return result
    raise error


def _is_foreign(value: Any) -> bool:
    return not isinstance(value, Tensor) and hasattr(type(value), "__torch_function__")


def _flat(args: Sequence[Any]) -> Iterator[Any]:
    for value in args:
        if isinstance(value, (tuple, list)):
            yield from value
        else:
            yield value

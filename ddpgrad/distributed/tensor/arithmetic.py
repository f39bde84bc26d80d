"""Arithmetic on DTensors: element by element on each rank's part, and reductions of the whole. Without history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...autograd.grad_mode import is_grad_enabled, no_grad
from ...core.tensor import Tensor, wrap

BY_ELEMENT = [
    "__add__",
    "__radd__",
    "__sub__",
    "__rsub__",
    "__mul__",
    "__rmul__",
    "__truediv__",
    "__rtruediv__",
    "__pow__",
    "__rpow__",
    "__neg__",
    "__abs__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__eq__",
    "__ne__",
    "abs",
    "add",
    "addcdiv",
    "addcmul",
    "bfloat16",
    "clamp",
    "clamp_max",
    "clamp_min",
    "div",
    "double",
    "exp",
    "float",
    "half",
    "isfinite",
    "isinf",
    "isnan",
    "lerp",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "maximum",
    "minimum",
    "mul",
    "nan_to_num",
    "neg",
    "pow",
    "reciprocal",
    "relu",
    "rsqrt",
    "sigmoid",
    "sign",
    "sqrt",
    "square",
    "sub",
    "tanh",
    "where",
]
OF_THE_WHOLE = [
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "max",
    "mean",
    "min",
    "norm",
    "prod",
    "std",
    "sum",
    "var",
]


def methods() -> dict[str, Callable[..., Any]]:
    """By name, those that DTensor has in place of Tensor's."""
    return {name: _by_element(name) for name in BY_ELEMENT} | {
        name: _of_the_whole(name) for name in OF_THE_WHOLE
    }


def _by_element(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _check(name, self, *args, *kwargs.values())

        def part(value: Any) -> Any:
            return wrap(self._taken(value)) if isinstance(value, Tensor) and value.ndim else value

        with no_grad():
            found = getattr(self.part(), name)(
                *map(part, args), **{key: part(value) for key, value in kwargs.items()}
            )
        return self._with(found._array) if isinstance(found, Tensor) else found

    return _named(
        method, name, "of each rank's part; tensors among the arguments lie likewise, or are whole."
    )


def _of_the_whole(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _check(name, self)
        with no_grad():
            found = getattr(self.whole(), name)(*args, **kwargs)
        return self.replicated(found) if type(found) is Tensor else found

    return _named(method, name, "of the whole, with its bits on one rank. Collective.")


def _named(method: Any, name: str, what: str) -> Callable[..., Any]:
    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"As `Tensor.{name}` {what}"
    return method


def _check(name: str, *operands: Any) -> None:
    if is_grad_enabled() and any(isinstance(x, Tensor) and x._requires_grad for x in operands):
        raise NotImplementedError(
            f"{name}: arithmetic on DTensors has no history here, so that gradients would be lost in silence: compute under "
            "torch.no_grad(), or on x.detach() or x.full_tensor(). Under fully_shard call the module that was sharded: its parts have "
            "no whole parameters by themselves"
        )

"""`torch._foreach_NAME`: one op on each tensor of a list, which optimizers outside of PyTorch are written in.

`_foreach_add(tensors, other)` is a tuple of `tensor.add(other)`, and `_foreach_add_` writes into the tensors. Every
other argument may be one value for all or a list with one for each; the `value` of addcdiv and addcmul, a tensor of
scalars too. Every op that is a Tensor method has such a form here, where PyTorch has some fifty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ...core.tensor import Tensor
from . import arithmetic, binary, fused_sums


def _bound(method: Callable[..., Tensor], clamp: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`maximum` or `minimum`, which take numbers as well in lists."""
    return lambda tensor, other: (method if isinstance(other, Tensor) else clamp)(tensor, other)


_OWN: dict[str, Callable[..., Any]] = {
    "maximum": _bound(binary.maximum, arithmetic.clamp_min),
    "minimum": _bound(binary.minimum, arithmetic.clamp_max),
    "clamp_min": _bound(binary.maximum, arithmetic.clamp_min),
    "clamp_max": _bound(binary.minimum, arithmetic.clamp_max),
    "norm": lambda tensor, ord=2, dtype=None: tensor.norm(ord, dtype=dtype),
    "powsum": lambda tensor, ord=2, dtype=None: tensor.to(dtype or tensor.dtype).abs().pow(ord).sum(),
    "pow": binary.pow,
    "addcdiv": lambda tensor, tensor1, tensor2, value=1: fused_sums.addcdiv(tensor, tensor1, tensor2, value=value),
    "addcdiv_": lambda tensor, tensor1, tensor2, value=1: tensor.addcdiv_(tensor1, tensor2, value=value),
    "addcmul_": lambda tensor, tensor1, tensor2, value=1: tensor.addcmul_(tensor1, tensor2, value=value),
    "addcmul": lambda tensor, tensor1, tensor2, value=1: fused_sums.addcmul(tensor, tensor1, tensor2, value=value),
}  # fmt: skip
"""Ops whose form for lists takes other arguments than the method."""

_NAMES = {"scalar": "other", "scalars": "other", "tensors1": "end", "weights": "weight"}
"""What lists call the arguments of methods."""


@cache
def foreach(name: str) -> Callable[..., Any] | None:
    """The function `name`, such as `_foreach_add_`; None where no method is called so."""
    op = name.removeprefix("_foreach_")
    # In two steps, where no method does it in place.
    written = _OWN.get(op[:-1]) if op.endswith("_") and op not in _OWN else None
    method = _OWN.get(op) or written or getattr(Tensor, op, None)
    if name == op or method is None:
        return None

    def call(self: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...] | list[Tensor]:
        for key in _NAMES.keys() & kwargs.keys():
            kwargs["value" if op.startswith("addc") else _NAMES[key]] = kwargs.pop(key)
        if op.endswith("_") and not isinstance(self, (list, tuple)):
            raise TypeError(f"{name}(): argument 'self' must be tuple of Tensors, not {type(self).__name__}")
        for value in (self, *args):
            if isinstance(value, (list, tuple)):
                _require_tensors(name, value, first=value is self)
        results = [method(*each, **named) for each, named in _calls(self, args, kwargs)]
        if written is not None:
            for tensor, result in zip(self, results, strict=True):
                _write(name, tensor, result)
        return self if op.endswith("_") else tuple(results)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{op}` of each tensor in a list; other arguments: one for all, or a list."
    return call


def _require_tensors(name: str, given: Sequence[Any], first: bool) -> None:
    for place, value in enumerate(given):
        if not isinstance(value, Tensor) and (first or not isinstance(value, (int, float, complex))):
            raise TypeError(
                f"{name}(): expected a list of Tensors, but found element of type {type(value).__name__} at pos {place}"
            )


def _write(name: str, tensor: Tensor, result: Tensor) -> None:
    if result.dtype.category > tensor.dtype.category:
        raise RuntimeError(
            f"{name}(): result type {result.dtype.name} can't be cast to the desired output type {tensor.dtype.name}"
        )
    tensor.copy_(result)


def _calls(
    self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The positional and the named arguments for each tensor."""
    lists = [v for v in (self, *args) if isinstance(v, (list, tuple))]
    if not lists or not lists[0]:
        raise RuntimeError("Tensor list must have at least one tensor.")
    count = len(lists[0])
    spread = [_each(v, count, last=i > 1) for i, v in enumerate((self, *args))]
    named = {key: _each(value, count, last=True) for key, value in kwargs.items()}
    return [
        (tuple(values[i] for values in spread), {key: values[i] for key, values in named.items()})
        for i in range(count)
    ]


def _each(value: Any, count: int, last: bool) -> Sequence[Any]:
    """`value` for each of `count` tensors; `last` for an argument after two others, or a named one."""
    if last and isinstance(value, Tensor) and value.ndim == 1:
        value = value.tolist()  # the scalars of addcdiv and addcmul
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(
            f"scalar tensor expected to be 0 dim but it has {value.ndim} dimensions and {value.numel()} elements."
        )
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) == count:
        return value
    if all(isinstance(v, Tensor) for v in value):
        raise RuntimeError(f"Tensor lists must have the same number of tensors, got {count} and {len(value)}")
    raise RuntimeError(
        f"Tensor list must have same number of elements as scalar list, got {count} and {len(value)}."
    )

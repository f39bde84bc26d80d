"""Sums with a weight, each one op: what optimizers are written in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core.tensor import Tensor
from ..dispatch import inplace
from ..dispatch.declare import OPS, op
from ..dispatch.vocabulary import VOCABULARY as F
from .arithmetic import factor_first, factor_of, scaled


def _samples(least: float, count: int) -> Callable[[Any], Any]:
    return lambda rng: [((*rng.uniform(least, 2.0, (count, 2, 3)), 0.3), {})]


@op(
    grads={"input": lambda F, g: g, "other": lambda F, g, alpha: g * alpha},
    promotion="same",
    samples=_samples(-2.0, 2),
    reference=lambda a, b, alpha: a + alpha * b,
    method=False,
    grad_name="AddBackward0",
)
def scaled_sum(F: Any, input: Tensor, other: Tensor, alpha: float) -> Tensor:
    """input + alpha * other, of floats."""
    return input + other * alpha


def _operands(name: str, tensor1: Any, tensor2: Any, former: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    """The two tensors and the number of a call, which may be in the former order."""
    tensors: Sequence[Any] = (tensor1, tensor2)
    if former:
        *tensors, value = factor_first(name, "value", (*tensors, *former))
    return (*tensors, value.item() if isinstance(value, Tensor) else value)


def _addcmul(
    input: Tensor, tensor1: Tensor, tensor2: Tensor, *former: Any, value: Any = 1, out: Tensor | None = None
) -> Tensor:
    """input + value * tensor1 * tensor2."""
    return F.addcmul(input, *_operands("addcmul", tensor1, tensor2, former, value), out=out)


@op(
    public=_addcmul,
    grads={
        "input": lambda F, g: g,
        "tensor1": lambda F, g, tensor2, value: g * (tensor2 * value),
        "tensor2": lambda F, g, tensor1, value: g * (tensor1 * value),
    },
    promotion="same",
    samples=_samples(-2.0, 3),
    reference=lambda a, b, c, value: a + value * b * c,
)
def addcmul(F: Any, input: Tensor, tensor1: Tensor, tensor2: Tensor, value: float = 1) -> Tensor:
    """input + value * tensor1 * tensor2."""
    if isinstance(value, float) and input.dtype.kind not in "fc":
        value = int(value)  # as PyTorch
    return input + (tensor1 * tensor2 if value == 1 else tensor1 * tensor2 * value)


def _addcdiv(
    input: Tensor, tensor1: Tensor, tensor2: Tensor, *former: Any, value: Any = 1, out: Tensor | None = None
) -> Tensor:
    """input + value * tensor1 / tensor2."""
    return F.addcdiv(input, *_operands("addcdiv", tensor1, tensor2, former, value), out=out)


def _check_addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, value: float) -> None:
    if tensor1.dtype.category < 2 and tensor2.dtype.category < 2:
        raise RuntimeError(
            f"addcdiv(): Integer division with addcdiv is not supported, got {tensor1.dtype.name} and "
            f"{tensor2.dtype.name}. Use torch.div(tensor1, tensor2, rounding_mode='trunc') or convert to floats."
        )


@op(
    public=_addcdiv,
    check=_check_addcdiv,
    grads={
        "input": lambda F, g: g,
        "tensor1": lambda F, g, tensor2, value: g * (value / tensor2),
        "tensor2": lambda F, g, tensor1, tensor2, value: -g * (tensor1 * value / (tensor2 * tensor2)),
    },
    promotion="same",
    samples=_samples(0.5, 3),
    reference=lambda a, b, c, value: a + value * b / c,
)
def addcdiv(F: Any, input: Tensor, tensor1: Tensor, tensor2: Tensor, value: float = 1) -> Tensor:
    """input + value * tensor1 / tensor2."""
    return input + (tensor1 / tensor2 if value == 1 else tensor1 / tensor2 * value)


# -- in place ------------------------------------------------------------------------------------


def with_alpha(name: str) -> Callable[..., Tensor]:
    """`x.add_(other, alpha=…)`, or `x.sub_`, which write one sum."""
    plain, weighted = inplace.inplace(OPS[name]), inplace.inplace(OPS["scaled_sum"])

    def method(input: Tensor, other: Any, *former: Any, alpha: Any = 1) -> Tensor:
        if former:
            other, alpha = factor_first(f"{name}_", "alpha", (other, *former))
        if alpha.__class__ is int and alpha == 1:
            return plain(input, other)
        factor = factor_of(name, input, other, alpha)
        if factor is None:
            return plain(input, scaled(name, input, other, alpha))
        return weighted(input, other, factor)

    return method


def with_value(name: str) -> Callable[..., Tensor]:
    """`x.addcmul_(tensor1, tensor2, value=…)`, or `x.addcdiv_`."""
    plain = inplace.inplace(OPS[name])

    def method(input: Tensor, tensor1: Tensor, tensor2: Tensor, *former: Any, value: Any = 1) -> Tensor:
        return plain(input, *_operands(name, tensor1, tensor2, former, value))

    return method

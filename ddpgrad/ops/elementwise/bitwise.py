"""More elementwise ops of two operands: bitwise and integer functions, and functions of floating-point numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ..dispatch.declare import Sample, TensorLike, op, primitive
from ..dispatch.explain import no_rule, require_integers
from ..dispatch.samples import Rng, tensors, two


@primitive(
    grads={
        "input": lambda F, g, out, input: g * (input / out),
        "other": lambda F, g, out, other: g * (other / out),
    },
    promotion="same",
    samples=tensors,
    reference=np.hypot,
    inplace=True,
)
def hypot(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """The length of the vector (input, other)."""
    ...


@primitive(
    grads={
        "input": lambda F, g, input, other: g / (1 + F.exp2(other - input)),
        "other": lambda F, g, input, other: g / (1 + F.exp2(input - other)),
    },
    promotion="float",
    samples=tensors,
    reference=np.logaddexp2,
)
def logaddexp2(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """log2(2**input + 2**other) without overflow."""
    ...


def _wins(F: Any, g: Any, larger: Any, other: Any) -> Any:
    """`g` where an operand is the result: it is beyond the other, or the other is nan."""
    return F.where(F.logical_or(larger, F.isnan(other)), g, F.full_like(g, 0))


def _loses(F: Any, g: Any, larger: Any, other: Any) -> Any:
    return F.where(F.logical_or(larger, F.isnan(other)), F.full_like(g, 0), g)


@primitive(
    grads={
        "input": lambda F, g, input, other: _wins(F, g, input >= other, other),
        "other": lambda F, g, input, other: _loses(F, g, input >= other, other),
    },
    promotion="ordered",
    samples=tensors,
    reference=np.fmax,
)
def fmax(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """The larger of both; where one is nan, the other."""
    ...


@primitive(
    grads={
        "input": lambda F, g, input, other: _wins(F, g, input <= other, other),
        "other": lambda F, g, input, other: _loses(F, g, input <= other, other),
    },
    promotion="ordered",
    samples=tensors,
    reference=np.fmin,
)
def fmin(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """The smaller of both; where one is nan, the other."""
    ...


@primitive(
    grads={
        # The ratio is 1 or -1, and 0 where the input is 0.
        "input": lambda F, g, out, input: (
            g
            * F.where(input == 0, F.full_like(out, 0), out / F.where(input == 0, F.full_like(out, 1), input))
        ),
        "other": lambda F, g: F.full_like(g, 0),
    },
    promotion="float",
    samples=two(),
    reference=np.copysign,
    inplace=True,
)
def copysign(F: Any, input: Tensor, other: TensorLike) -> Tensor:
    """The size of `input` with the sign of `other`."""
    ...


@primitive(
    grads={
        "input": lambda F, g, input, other: F.where(input == other, F.full_like(g, 0), g),
        "other": lambda F, g: F.full_like(g, 0),
    },
    promotion="same",
    samples=tensors,
    reference=np.nextafter,
    inplace=True,
)
def nextafter(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """The next number of the dtype after `input` towards `other`."""
    ...


def _require_one_dtype(input: Tensor, values: Tensor) -> None:
    if input.dtype is not values.dtype:
        raise RuntimeError(
            f"heaviside(): not implemented for tensors with different dtypes: {input.dtype.name}, {values.dtype.name}"
        )


@primitive(
    grads={"input": no_rule("heaviside"), "values": no_rule("heaviside")},
    check=_require_one_dtype,
    adapt=lambda input, values: (input, values),  # so that `check` is asked first
    inplace=True,
)
def heaviside(F: Any, input: Tensor, values: Tensor) -> Tensor:
    """0 where the input is negative, `values` where it is 0, else 1."""
    ...


@op(
    grads={"input": lambda F, g, other: g * F.exp2(other), "other": lambda F, g, out: g * out * math.log(2)},
    promotion="float",
    samples=tensors,
    reference=lambda x, n: x * np.exp2(n),
    inplace=True,
)
def ldexp(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """input * 2**other."""
    return input * F.exp2(other)


# -- integers and bits ---------------------------------------------------------------------


def _integers(rng: Rng) -> Iterable[Sample]:
    yield (rng.integers(1, 99, (2, 3)), rng.integers(1, 99, 3)), {}


def _shifts(rng: Rng) -> Iterable[Sample]:
    yield (rng.integers(-99, 99, (2, 3)), rng.integers(0, 9, 3)), {}


@primitive(promotion="same", samples=_integers, reference=np.gcd, inplace=True)
def gcd(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """The greatest common divisor of integers."""
    ...


@primitive(promotion="same", samples=_integers, reference=np.lcm, inplace=True)
def lcm(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """The least common multiple of integers."""
    ...


def _of_bits(name: str, doc: str, reference: Any, samples: Any) -> Callable[[TensorLike, TensorLike], Tensor]:
    """Declare the primitive `name` of two operands of integers or bools."""

    def function(F: Any, input: TensorLike, other: TensorLike) -> Tensor: ...

    function.__name__ = name
    function.__doc__ = doc
    return primitive(
        promotion="same",
        check=lambda input, other: require_integers(name, input, other),
        samples=samples,
        reference=reference,
        inplace=True,
    )(function)


bitwise_and = _of_bits("bitwise_and", "Bitwise and; logical and of bools.", np.bitwise_and, _integers)
bitwise_or = _of_bits("bitwise_or", "Bitwise or; logical or of bools.", np.bitwise_or, _integers)
bitwise_xor = _of_bits("bitwise_xor", "Bitwise exclusive or.", np.bitwise_xor, _integers)
bitwise_left_shift = _of_bits(
    "bitwise_left_shift", "Integers shifted towards higher bits by `other`.", np.left_shift, _shifts
)
bitwise_right_shift = _of_bits(
    "bitwise_right_shift",
    "Integers shifted towards lower bits by `other`, the sign kept.",
    np.right_shift,
    _shifts,
)


@op(
    grads={
        "input": lambda F, g, input, weight: F.where(input > 0, g, g * weight),
        "weight": lambda F, g, input, weight: F.where(input > 0, F.full_like(input, 0), g * input),
    },
    samples=lambda rng: [((rng.uniform(-2, 2, (2, 3)), rng.uniform(0.1, 1, n)), {}) for n in ((1,), (3,))],
    reference=lambda x, w: np.where(x > 0, x, x * w),
    method=False,
)
def prelu_kernel(F: Any, input: Tensor, weight: Tensor) -> Tensor:
    """input where positive, else input * weight, which is broadcast."""
    return F.where(input > 0, input, input * weight)

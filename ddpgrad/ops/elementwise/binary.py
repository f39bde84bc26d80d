"""Elementwise ops of two operands, with broadcasting and type promotion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, overload

import numpy as np

from ...backend import dtype as dtypes
from ...backend.registry import backend_for
from ...core.errors import must_be_tensor, warn_program
from ...core.tensor import Tensor, wrap
from ..creation.factories import as_element
from ..dispatch.declare import OPS, Sample, TensorLike, op, primitive
from ..dispatch.samples import Rng, tensors, two
from ..dispatch.tensor_function import takes_out
from ..dispatch.vocabulary import VOCABULARY as F


def scaled(F: Any, name: str, g: Any, other: Any) -> Any:
    """g * other, or g / other for "divide": one number beside 16-bit floats is not rounded before."""
    kinds = getattr(g, "dtype", None), getattr(other, "dtype", None)
    if kinds[0] is not kinds[1] and (kinds[0] or kinds[1]) in dtypes.NARROW:  # arrays: Tensors have PyTorch's
        return F.by_a_number(name, g, other)
    return g * other if name == "multiply" else g / other


@primitive(
    grads={
        "input": lambda F, g, other: scaled(F, "multiply", g, other),
        "other": lambda F, g, input: scaled(F, "multiply", g, input),
    },
    promotion="same",
    samples=two(),
    reference=np.multiply,
    aliases=("multiply",),
    inplace=True,
)
def mul(F: Any, input: TensorLike, other: TensorLike) -> Tensor:
    """Elementwise product."""
    ...


def _pow_grad_input(F: Any, g: Any, input: Any, other: Any) -> Any:
    if _is_number(other):
        return g * 0 if other == 0 else g * (other * input if other == 2 else other * F.pow(input, other - 1))
    # Where the exponent is 0 the derivative is 0, also at input 0, where 0 * 0**-1 would be nan.
    return g * F.where(other == 0, F.full_like(other, 0), other * F.pow(input, other - 1))


def _is_number(x: Any) -> bool:
    return isinstance(x, (bool, int, float, complex))


def _is_complex(x: Any) -> bool:
    return getattr(x, "_array", x).dtype.kind == "c"


def _pow_grad_other(F: Any, g: Any, out: Any, input: Any, other: Any) -> Any:
    if _is_number(input):
        with np.errstate(all="ignore"):
            log = complex(np.log(complex(input))) if _is_complex(out) else float(np.log(input))
        slope = out * log
        if input != 0:
            return g * slope
    else:
        slope = out * F.log(input)
    # 0**x is 0 for x > 0, and so is its derivative, where log(0) would give nan.
    flat = (F.real(other) if _is_complex(other) else other) >= 0
    if not _is_number(input):
        flat = F.logical_and(input == 0, flat)
    return g * F.where(flat, F.full_like(out, 0), slope)


def _check_pow(input: TensorLike, other: TensorLike) -> None:
    if isinstance(other, int) and other < 0 and isinstance(input, Tensor) and input.dtype.category < 2:
        raise RuntimeError("pow(): Integers to negative integer powers are not allowed. Use x.double().")
    if isinstance(other, int) and other > 127 and isinstance(input, Tensor) and input.dtype.category == 1:
        as_element(other, input.dtype)  # which refuses what does not fit


def _pow(input: TensorLike, exponent: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """`input` to the power of `exponent`."""
    return F.pow(input, exponent, out=out)


@primitive(
    public=_pow,
    grads={"input": _pow_grad_input, "other": _pow_grad_other},
    promotion="same",
    check=_check_pow,
    samples=lambda rng: [
        *two(0.5, 2.0)(rng),
        ((rng.uniform(0.5, 2, (3,)), 2), {}),
        ((rng.uniform(0.5, 2, 3), 3), {}),
    ],
    reference=np.power,
    inplace=True,
    grad_name=lambda input, other: f"PowBackward{0 if _is_number(other) else 2 if _is_number(input) else 1}",
)
def pow(F: Any, input: TensorLike, other: TensorLike) -> Tensor:
    """`input` to the power of `other`."""
    ...


@primitive(
    grads={
        "input": lambda F, g, input, other: g * _share(F, input, other, g),
        "other": lambda F, g, input, other: g * _share(F, other, input, g),
    },
    promotion="ordered",
    samples=tensors,
    reference=np.maximum,
)
def maximum(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """The larger of both; where they are equal, each gets half of the gradient."""
    ...


@primitive(
    grads={
        "input": lambda F, g, input, other: g * _share(F, other, input, g),
        "other": lambda F, g, input, other: g * _share(F, input, other, g),
    },
    promotion="ordered",
    samples=tensors,
    reference=np.minimum,
)
def minimum(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """The smaller of both; where they are equal, each gets half of the gradient."""
    ...


def _share(F: Any, a: Any, b: Any, g: Any) -> Any:
    """0 where a < b, a half where they are equal, else 1, as where one is nan; in the dtype of `g`."""
    return 1 - F.cast(a < b, g.dtype) - F.cast(a == b, g.dtype) * 0.5


@primitive(
    grads={"input": lambda F, g: g, "other": lambda F, g, input, other: -g * F.div_floor(input, other)},
    promotion="ordered",
    samples=two(0.6, 5.0),
    reference=np.remainder,
    inplace=True,
)
def remainder(F: Any, input: TensorLike, other: TensorLike) -> Tensor:
    """Python's `%`: the result has the sign of `other`."""
    ...


@primitive(
    grads={"input": lambda F, g: g, "other": lambda F, g, input, other: -g * F.trunc(input / other)},
    promotion="ordered",
    samples=two(0.6, 5.0),
    reference=np.fmod,
    inplace=True,
)
def fmod(F: Any, input: Tensor, other: TensorLike) -> Tensor:
    """C's `fmod`: the result has the sign of `input`."""
    ...


def _positive(rng: Rng) -> Iterable[Sample]:
    return list(two(0.5, 2.0)(rng))[:-1]


@primitive(
    grads={
        "input": lambda F, g, input, other: g * other * _per_square(F, input, other),
        "other": lambda F, g, input, other: -g * input * _per_square(F, input, other),
    },
    promotion="float",
    samples=_positive,
    reference=np.arctan2,
    aliases=("arctan2",),
    inplace=True,
)
def atan2(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """The angle of the point (other, input)."""
    ...


def _per_square(F: Any, a: Any, b: Any) -> Any:
    """1 / (a² + b²), and 0 where both are 0."""
    square = a * a + b * b
    nowhere = square == 0
    return F.where(nowhere, F.full_like(square, 0), 1 / F.where(nowhere, F.full_like(square, 1), square))


@primitive(
    grads={
        "input": lambda F, g, input, other: g * F.sigmoid(input - other),
        "other": lambda F, g, input, other: g * F.sigmoid(other - input),
    },
    promotion="float",
    samples=tensors,
    reference=np.logaddexp,
)
def logaddexp(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """log(exp(input) + exp(other)) without overflow."""
    ...


def _comparison(
    name: str, sign: str, promotion: str, reference: Any, *aliases: str
) -> Callable[[Tensor, TensorLike], Tensor]:
    """Declare the primitive `name` of two operands that gives bools."""

    def function(F: Any, input: Tensor, other: TensorLike) -> Tensor: ...

    function.__name__ = name
    function.__doc__ = f"Elementwise `{sign}`, as bool."
    return primitive(promotion=promotion, samples=two(), reference=reference, aliases=aliases, inplace=True)(
        function
    )


eq = _comparison("eq", "==", "same", np.equal)
ne = _comparison("ne", "!=", "same", np.not_equal, "not_equal")
lt = _comparison("lt", "<", "ordered", np.less, "less")
le = _comparison("le", "<=", "ordered", np.less_equal, "less_equal")
gt = _comparison("gt", ">", "ordered", np.greater, "greater")
ge = _comparison("ge", ">=", "ordered", np.greater_equal, "greater_equal")


def _bools(rng: Rng) -> Iterable[Sample]:
    yield (rng.random((2, 3)) > 0.5, rng.random(3) > 0.5), {}


@primitive(samples=_bools, reference=np.logical_and, inplace=True)
def logical_and(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """True where both are non-zero."""
    ...


@primitive(samples=_bools, reference=np.logical_or, inplace=True)
def logical_or(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """True where at least one is non-zero."""
    ...


@primitive(samples=_bools, reference=np.logical_xor, inplace=True)
def logical_xor(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """True where exactly one is non-zero."""
    ...


def _choices(rng: Rng) -> Iterable[Sample]:
    mask = rng.random((2, 3)) > 0.5
    yield (mask, rng.standard_normal((2, 3)), rng.standard_normal(3)), {}
    yield (mask, rng.standard_normal((2, 3)), 0.5), {}
    yield (mask[0], 2.0, rng.standard_normal((2, 3))), {}


def _require_mask(name: str, mask: Any) -> None:
    if isinstance(mask, Tensor) and mask._array.dtype != bool:
        said = (
            "(): expected condition to be a boolean tensor, but got a tensor"
            if name == "where"
            else " only supports boolean masks, but got mask"
        )
        raise RuntimeError(
            f"{name}{said} with dtype {mask.dtype.name}. Compare, as in `mask != 0`, or use Tensor.bool()."
        )


def _adapt_where(condition: Tensor, input: TensorLike, other: TensorLike) -> tuple[Any, ...]:
    if not isinstance(condition, (Tensor, np.ndarray)):
        raise must_be_tensor("where", "condition", 0, condition)
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        dtype = dtypes.result_type([], [dtypes.scalar_category(input), dtypes.scalar_category(other)])
        input = wrap(backend_for(condition._array).asarray(input, dtype))
    return condition, input, other


def _check_where(condition: Tensor, input: TensorLike, other: TensorLike) -> None:
    _require_mask("where", condition)
    for number, beside in ((input, other), (other, input)):
        if not isinstance(beside, Tensor) or isinstance(number, (Tensor, np.ndarray)):
            continue
        if beside.dtype.category == 1 and isinstance(number, int):
            as_element(number, beside.dtype)
        elif (
            beside.dtype.category != 3
            and beside.dtype is not dtypes.float64
            and not isinstance(number, complex)
        ):
            as_element(
                number, dtypes.float32
            )  # also beside 16-bit floats, which take what is too large as infinite


@overload
def _where(condition: Tensor) -> tuple[Tensor, ...]: ...
@overload
def _where(condition: Tensor, input: Any, other: Any, *, out: Tensor | None = None) -> Tensor: ...
@takes_out
def _where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """`input` where the condition is True and `other` elsewhere; alone, the places where it is not zero."""
    if input is None and other is None:
        return OPS["nonzero"].public(condition, as_tuple=True)
    if isinstance(condition, Tensor) and condition.dtype is dtypes.uint8:
        warn_program("where received a uint8 condition tensor, which is deprecated; use a bool tensor")
        condition = condition != 0
    return F.where(condition, input, other)


@primitive(
    public=_where,
    check=_check_where,
    adapt=_adapt_where,
    grads={
        "input": lambda F, g, condition: F.where(condition, g, F.full_like(g, 0)),
        "other": lambda F, g, condition: F.where(condition, F.full_like(g, 0), g),
    },
    promotion="same",
    promoted=("input", "other"),
    samples=_choices,
    reference=np.where,
    method=False,
)
def where(F: Any, condition: Tensor, input: TensorLike, other: TensorLike) -> Tensor:
    """`input` where `condition` is true, elsewhere `other`."""
    ...


def _check_masked_fill(input: Tensor, mask: Tensor, value: TensorLike) -> None:
    _require_mask("masked_fill", mask)
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(
            f"masked_fill(): only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s). "
            "Use torch.where(mask, value, input)."
        )
    if isinstance(value, (int, float)):
        if not 0 <= value <= 127:  # which fits everywhere
            as_element(value, input.dtype)
    elif not isinstance(value, Tensor):
        as_element(value, input.dtype)
    elif value._array.dtype != input._array.dtype and not value.is_meta:
        as_element(value.item(), input.dtype)  # which refuses what does not fit


@op(
    grads={
        "input": lambda F, g, mask: F.where(mask, F.full_like(g, 0), g),
        "value": lambda F, g, mask: F.where(mask, g, F.full_like(g, 0)),
    },
    check=_check_masked_fill,
    samples=lambda rng: [((rng.standard_normal((2, 3)), rng.random(3) > 0.5, -1.5), {})],
    reference=lambda x, m, v: np.where(m, v, x),
    inplace=True,
)
def masked_fill(F: Any, input: Tensor, mask: Tensor, value: TensorLike) -> Tensor:
    """`input` with `value` where `mask` is true."""
    if not hasattr(value, "dtype"):
        value = as_element(value, dtypes.of(input.dtype))
    value = F.asarray(value, dtype=input.dtype)
    return F.contiguous(F.where(mask, value, input))  # as PyTorch's, whatever the order of the input


def _check_lerp(input: Tensor, end: Tensor, weight: TensorLike) -> None:
    for name, value in (("end", end), ("weight", weight)):
        if (
            isinstance(value, Tensor)
            and value.dtype is not input.dtype
            and not (name == "weight" and not value.ndim)
        ):
            raise RuntimeError(
                f"lerp(): expected dtype {input.dtype.name} for `{name}` but got dtype {value.dtype.name}"
            )


@op(
    check=_check_lerp,
    grads={
        "input": lambda F, g, weight: g * (1 - weight),
        "end": lambda F, g, weight: g * weight,
        "weight": lambda F, g, input, end: g * (end - input),
    },
    promotion="same",
    samples=lambda rng: [
        ((*rng.standard_normal((2, 2, 3)), 0.3), {}),
        (tuple(rng.standard_normal((3, 3))), {}),
    ],
    reference=lambda a, b, w: a + w * (b - a),
    inplace=True,
)
def lerp(F: Any, input: Tensor, end: Tensor, weight: TensorLike) -> Tensor:
    """`input` moved towards `end` by the fraction `weight`, from the nearer of both: by 1 it is `end` itself."""
    way = end - input
    if not hasattr(weight, "dtype"):
        return input + weight * way if abs(weight) < 0.5 else end - way * (1 - weight)
    return F.where(F.abs(weight) < 0.5, input + weight * way, end - way * (1 - weight))

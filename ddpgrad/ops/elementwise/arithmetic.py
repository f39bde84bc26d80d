"""Arithmetic composed of ops: scaled sums, rounding divisions, one-sided clamps."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...backend.registry import SparseArray
from ...core.errors import must_be_tensor, warn_program
from ...core.tensor import Tensor
from ..creation.factories import as_element
from ..dispatch.declare import TensorLike, op, primitive
from ..dispatch.explain import BOOL_MINUS, BOOLS_MINUS, no_rule
from ..dispatch.out import write_out
from ..dispatch.samples import two
from ..dispatch.tensor_function import tensor_function
from ..dispatch.vocabulary import VOCABULARY as F
from . import binary, unary
from .conversion import to


def scaled(name: str, input: Any, other: Any, alpha: Any) -> Any:
    """alpha * other, with PyTorch's rules of which `alpha` goes with which operands."""
    if isinstance(alpha, Tensor) and not alpha.requires_grad and alpha.ndim == 0:
        alpha = alpha.item()
    if isinstance(alpha, (int, float)) and alpha == 1 and not isinstance(alpha, bool):
        return other
    if name in ("sub", "rsub"):
        _check_sub(input, other)
    category = max(_category(input), _category(other))
    if isinstance(alpha, bool):
        if category:
            raise RuntimeError(f"{name}(): Boolean alpha only supported for Boolean results.")
        return other if alpha else other * False if isinstance(other, Tensor) else False
    elif not category and isinstance(alpha, int):
        return scaled(name, input, other, bool(alpha))
    elif dtypes.scalar_category(alpha) > max(category, 1):
        kind = "a complex" if category == 2 else "a floating point"
        raise RuntimeError(
            f"{name}(): For {'integral' if category < 2 else 'non-complex'} input tensors, argument alpha must not be "
            f"{kind} number."
        )
    tensors = [(x._array.dtype, x.ndim) for x in (input, other) if isinstance(x, Tensor)]
    dtype = dtypes.result_type(tensors, [_category(x) for x in (input, other)])
    if isinstance(alpha, int) and category == 1:
        alpha = as_element(alpha, dtype)
    if (
        isinstance(other, Tensor)
        and other.dtype is not dtype
        and dtypes.promote_types(other.dtype, dtype) is dtype
    ):
        other = to(other, dtype)  # the product of a narrower type would be rounded, or overflow
    return other * alpha


def _are_floats(input: Any, other: Any) -> bool:
    """Whether both are dense tensors of one floating-point type, whose weighted sum is one op."""
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        return False
    a, b = input._array, other._array
    alike = a.dtype == b.dtype and a.__class__ is b.__class__
    return alike and input.dtype.category == 2 and not isinstance(a, SparseArray)


def factor_of(name: str, input: Any, other: Any, alpha: Any) -> Any:
    """What `other` is multiplied by in `add`, `sub` or `rsub`, where one op does it all; else None. The errors of `scaled`."""
    if not _are_floats(input, other):
        return None
    if alpha.__class__ is not float or input._array.dtype.itemsize == 2 or abs(alpha) > 3e38:
        if isinstance(alpha, Tensor) and not alpha.requires_grad and alpha.ndim == 0:
            alpha = alpha.item()
        if isinstance(alpha, bool) or not isinstance(alpha, (int, float)):
            scaled(name, input, other, alpha)
        alpha = as_element_of(alpha, input.dtype)
    return alpha if name == "add" else -alpha


def as_element_of(alpha: Any, dtype: dtypes.DType) -> Any:
    """The number `alpha` as PyTorch holds it beside elements of `dtype`: rounded to a 16-bit float, else as it is."""
    if isinstance(alpha, int) or (isinstance(alpha, float) and dtype.category > 1):
        alpha = as_element(alpha, dtype)
    rounded = isinstance(alpha, float) and dtype.is_floating_point and dtype.itemsize == 2
    return float(dtype.numpy.type(alpha)) if rounded else alpha


def factor_first(name: str, keyword: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands and then the factor of a call in the former order: `add(input, alpha, other)`."""
    factor, *operands = args
    if isinstance(factor, Tensor) or not all(isinstance(operand, Tensor) for operand in operands):
        kinds = ", ".join(type(arg).__name__ for arg in args)
        raise TypeError(
            f"{name}(): the arguments after the first, ({kinds}), are not {len(operands)} operands"
        )
    warn_program(
        f"This overload of {name} is deprecated; instead of a factor before the operands write {name}(..., {keyword}={factor})"
    )
    return (*operands, factor)


def factors_first(
    name: str, args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call in the former order: `addmm(beta, input, alpha, mat1, mat2)`, `x.addmm_(beta, alpha, a, b)`."""
    operands = tuple([a for a in args if isinstance(a, Tensor)])
    factors: dict[str, Any] = dict(
        zip(("beta", "alpha"), (a for a in args if not isinstance(a, Tensor)), strict=False)
    )
    if len(operands) != 3 or len(args) > 5 or named:
        raise TypeError(f"{name}(): expected three tensors, and beta= and alpha= by name")
    shown = ", ".join(f"{key}={value}" for key, value in factors.items())
    warn_program(f"{name}(): factors before the operands are deprecated; write {name}(..., {shown})")
    return operands, factors


def _category(value: Any) -> int:
    return value.dtype.category if isinstance(value, Tensor) else dtypes.scalar_category(value)


def _add(input: Any, other: Any, *former: Any, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
    """input + alpha * other."""
    if former:
        other, alpha = factor_first("add", "alpha", (other, *former))
    if alpha.__class__ is not int or alpha != 1:
        return _with_scaled("add", input, other, alpha, out)
    return F.add(input, other, out=out)


def _with_scaled(name: str, input: Any, other: Any, alpha: Any, out: Tensor | None) -> Tensor:
    """The sum or difference of `input` and alpha * other."""
    factor = factor_of(name, input, other, alpha)
    if factor is not None:
        return F.scaled_sum(input, other, factor, out=out)
    combine = F.add if name == "add" else F.sub
    return combine(input, scaled(name, input, other, alpha), out=out)


@primitive(
    public=_add,
    grads={"input": lambda F, g: g, "other": lambda F, g: g},
    promotion="same",
    samples=two(),
    reference=np.add,
    inplace=True,
)
def add(F: Any, input: TensorLike, other: TensorLike) -> Tensor:
    """Elementwise sum."""
    ...


def _check_sub(input: TensorLike, other: TensorLike) -> None:
    bools = [isinstance(x, bool) or (isinstance(x, Tensor) and x.dtype.category == 0) for x in (input, other)]
    if any(bools):
        raise RuntimeError(BOOLS_MINUS if all(bools) else BOOL_MINUS)


def _sub(input: Any, other: Any, *former: Any, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
    """input - alpha * other."""
    if former:
        other, alpha = factor_first("sub", "alpha", (other, *former))
    if alpha.__class__ is not int or alpha != 1:
        return _with_scaled("sub", input, other, alpha, out)
    return F.sub(input, other, out=out)


@primitive(
    public=_sub,
    grads={"input": lambda F, g: g, "other": lambda F, g: -g},
    promotion="same",
    check=_check_sub,
    samples=two(),
    reference=np.subtract,
    reflected_name="RsubBackward1",
    aliases=("subtract",),
    inplace=True,
)
def sub(F: Any, input: TensorLike, other: TensorLike) -> Tensor:
    """Elementwise difference."""
    ...


@tensor_function()
def rsub(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """other - alpha * input."""
    if not isinstance(input, Tensor):
        raise must_be_tensor("rsub", "input", 0, input)
    return _with_scaled("rsub", other, input, alpha, None)


@primitive(
    grads={"input": no_rule("floor_divide"), "other": no_rule("floor_divide")},
    promotion="ordered",
    inplace=True,
)
def floor_divide(F: Any, input: TensorLike, other: TensorLike) -> Tensor:
    """The quotient rounded down."""
    ...


def _zero(F: Any, g: Any) -> Any:
    return F.full_like(g, 0)


@op(
    grads={"input": _zero, "other": _zero},
    promotion="same",
    samples=two(0.6, 5.0),
    reference=np.floor_divide,
    method=False,
    grad_name="DivBackward1",
)
def div_floor(F: Any, input: TensorLike, other: TensorLike) -> Tensor:
    """The quotient rounded down; unlike that of `floor_divide`, its gradient is 0."""
    return F.floor_divide(input, other)


@op(
    grads={"input": _zero, "other": _zero},
    promotion="same",
    samples=two(0.6, 5.0),
    reference=lambda x, y: np.trunc(x / y),
    method=False,
    grad_name="DivBackward1",
)
def div_trunc(F: Any, input: TensorLike, other: TensorLike) -> Tensor:
    """The quotient rounded towards 0."""
    operands: tuple[Any, ...] = input, other
    if any(x.dtype.kind not in "iub" if hasattr(x, "dtype") else not isinstance(x, int) for x in operands):
        return F.trunc(input / other)
    down = F.floor_divide(input, other)
    return down + F.cast((down < 0) & (down * other != input), down.dtype)


def _div(input: Any, other: Any, *, rounding_mode: str | None = None, out: Tensor | None = None) -> Tensor:
    """input / other, rounded as asked: None, 'floor' or 'trunc'."""
    if rounding_mode is None:
        return F.div(input, other, out=out)
    if rounding_mode not in ("floor", "trunc"):
        raise RuntimeError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found {rounding_mode!r}"
        )
    quotient = (div_floor if rounding_mode == "floor" else div_trunc)(input, other)
    return quotient if out is None else write_out("div", out, quotient, (input, other))


@primitive(
    public=_div,
    grads={
        "input": lambda F, g, other: binary.scaled(F, "divide", g, other),
        "other": lambda F, g, input, other: (
            -g * binary.scaled(F, "divide", binary.scaled(F, "divide", input, other), other)
        ),
    },
    promotion="float",
    samples=two(0.5, 2.0),
    reference=np.true_divide,
    aliases=("divide", "true_divide"),
    inplace=True,
)
def div(F: Any, input: TensorLike, other: TensorLike) -> Tensor:
    """Elementwise quotient; integers give floats."""
    ...


@tensor_function(inplace=True, out=True)
def float_power(input: Any, exponent: Any) -> Tensor:
    """`input` to the power of `exponent`, in float64, or complex128 where one is complex."""
    is_complex = max(_category(input), _category(exponent)) == 3
    dtype = dtypes.complex128 if is_complex else dtypes.float64
    return binary.pow(*(to(x, dtype) if isinstance(x, Tensor) else x for x in (input, exponent)))


@tensor_function(inplace=True, out=True)
def clamp_min(input: Tensor, min: TensorLike) -> Tensor:
    """The input where it is above `min`, else `min`."""
    return unary.clamp(input, min)


@tensor_function(inplace=True, out=True)
def clamp_max(input: Tensor, max: TensorLike) -> Tensor:
    """The input where it is below `max`, else `max`."""
    return unary.clamp(input, None, max)


@tensor_function()
def positive(input: Tensor) -> Tensor:
    """The tensor itself."""
    if input.dtype is dtypes.bool_:
        raise RuntimeError("positive(): the `+` operator on a bool tensor is not supported.")
    return input

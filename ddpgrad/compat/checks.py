"""Checks and arithmetic as functions, which compilers can read: `torch._check`, `torch.sym_max` and their like."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..backend import dtype as dtypes
from ..core.overrides import overridable
from ..core.tensor import Tensor, wrap

Message = Callable[[], Any] | None


@overridable
def _assert(condition: Any, message: str) -> None:
    """AssertionError(message) unless `condition`, which may be a tensor of one element."""
    if not condition:
        raise AssertionError(message)


def _assert_async(condition: Any, message: str | None = None) -> None:
    """RuntimeError unless `condition`, a tensor of one element; at once, not when the device gets there."""
    if not condition:
        raise RuntimeError(message or "Expected Tensor with single nonzero value, but got zero")


@overridable
def _shape_as_tensor(self: Tensor) -> Tensor:
    """The sizes of a tensor, int64 on the CPU."""
    return wrap(np.array(tuple(self.shape), np.int64))


def _check_with(error: type[Exception], cond: Any, message: Message) -> None:
    """`error`(message()) unless `cond`."""
    if not cond:
        raise error(
            "Expected cond to be True, but got False: a check of the program failed"
            if message is None
            else str(message())
        )


def _check(cond: Any, message: Message = None) -> None:
    """RuntimeError(message()) unless `cond`."""
    _check_with(RuntimeError, cond, message)


def _check_value(cond: Any, message: Message = None) -> None:
    """ValueError(message()) unless `cond`."""
    _check_with(ValueError, cond, message)


def _check_index(cond: Any, message: Message = None) -> None:
    """IndexError(message()) unless `cond`."""
    _check_with(IndexError, cond, message)


def _check_type(cond: Any, message: Message = None) -> None:
    """TypeError(message()) unless `cond`."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Message = None) -> None:
    """NotImplementedError(message()) unless `cond`."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: int, message: Message = None, *, max: int | None = None) -> None:
    """RuntimeError unless `i` is a size: not negative, and at most `max`."""
    _check(i >= 0 and (max is None or i <= max), message)


def _check_tensor_all_with(error: type[Exception], cond: Tensor, message: Message = None) -> None:
    """`error`(message()) unless all elements of `cond`, a bool tensor, are true."""
    if not isinstance(cond, Tensor) or cond.dtype != dtypes.bool_:
        raise TypeError(
            f"cond must be a bool tensor, got {cond.dtype if isinstance(cond, Tensor) else type(cond)}"
        )
    _check_with(error, bool(cond._array.all()), message)


def _check_tensor_all(cond: Tensor, message: Message = None) -> None:
    """RuntimeError(message()) unless all elements of `cond`, a bool tensor, are true."""
    _check_tensor_all_with(RuntimeError, cond, message)


def sym_float(a: Any) -> float:
    """`a` as a float."""
    return float(a)


def sym_int(a: Any) -> int:
    """`a` as an int, towards zero."""
    return math.trunc(a)


def sym_not(a: bool) -> bool:
    """`not a`."""
    return not a


def sym_max(a: float, b: float) -> float:
    """The larger number; a float if one of them is."""
    return float(max(a, b)) if float in (type(a), type(b)) else max(a, b)


def sym_min(a: float, b: float) -> float:
    """The smaller number; a float if one of them is."""
    return float(min(a, b)) if float in (type(a), type(b)) else min(a, b)


def sym_ite(b: bool, t: Any, f: Any) -> Any:
    """`t` if `b`, else `f`."""
    return t if b else f


def sym_sum(args: Iterable[Any]) -> Any:
    """The sum of numbers."""
    return sum(args)

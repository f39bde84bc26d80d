"""Attaches the ops to Tensor: methods, operators and in-place forms."""

from __future__ import annotations

from typing import Any

from .._tensor import Tensor
from ..autograd import entry
from ..autograd.variable import volatile
from ..backend import dtype as dtypes
from . import (
    arithmetic,
    binary,
    by_element,
    composed,
    creation,
    data,
    diagonal,
    draws,
    elementwise,
    index,
    inplace,
    interop,
    matrix,
    pointwise,
    rearranging,
    strided,
    writing,
)
from .complex import imag, real
from .declare import OPS
from .tensor_function import FUNCTIONS


def _reflected(op: Any) -> Any:
    """`2 - x`: the number, or NumPy array, becomes the first operand."""
    return lambda self, other: op(other, self)


def _operator(op: Any) -> Any:
    """An operator that leaves unknown operands to the other side."""

    def method(self: Tensor, other: Any) -> Any:
        if other is None:
            return NotImplemented
        try:
            return op(self, other)
        except TypeError:
            if isinstance(other, (Tensor, bool, int, float, complex)):
                raise
            return NotImplemented

    return method


def _invert(self: Tensor) -> Tensor:
    """`~self`: of bools the opposite, of integers the complement."""
    if self.dtype.category > 1:
        raise TypeError(
            f"~ (operator.invert) is only implemented on integer and Boolean-type tensors, got {self.dtype}"
        )
    return elementwise.bitwise_not(self)


def _attach_operators() -> None:
    table: dict[str, Any] = {
        "__add__": pointwise.add, "__radd__": pointwise.add, "__sub__": pointwise.sub, "__mul__": pointwise.mul,
        "__rmul__": pointwise.mul, "__truediv__": pointwise.div, "__pow__": pointwise.pow,
        "__mod__": pointwise.remainder, "__floordiv__": pointwise.floor_divide, "__matmul__": matrix.matmul,
        "__neg__": elementwise.neg, "__abs__": elementwise.abs, "__lt__": pointwise.lt, "__le__": pointwise.le,
        "__gt__": pointwise.gt, "__ge__": pointwise.ge, "__and__": binary.bitwise_and, "__or__": binary.bitwise_or,
        "__xor__": binary.bitwise_xor, "__invert__": _invert, "__getitem__": index.subscript,
        "__eq__": _operator(pointwise.eq), "__ne__": _operator(pointwise.ne), "__setitem__": inplace.setitem,
        "__rsub__": _reflected(pointwise.sub), "__rtruediv__": _reflected(pointwise.div),
        "__rpow__": _reflected(pointwise.pow), "__rmod__": _reflected(pointwise.remainder),
        "__rfloordiv__": _reflected(pointwise.floor_divide), "__rand__": binary.bitwise_and,
        "__ror__": binary.bitwise_or, "__rxor__": binary.bitwise_xor, "__pos__": arithmetic.positive,
        "__lshift__": binary.bitwise_left_shift, "__rshift__": binary.bitwise_right_shift,
        "__rlshift__": _reflected(binary.bitwise_left_shift), "__rrshift__": _reflected(binary.bitwise_right_shift),
        "__rdiv__": _reflected(pointwise.div), "__rmatmul__": lambda self, other: matrix.matmul(data.as_tensor(other), self),
    }  # fmt: skip
    for name, function in table.items():
        setattr(Tensor, name, function)
    Tensor.__hash__ = object.__hash__  # type: ignore[method-assign]
    for name in ("add", "sub", "mul", "div", "pow", "remainder", "floor_divide"):
        python = {"div": "truediv", "remainder": "mod", "floor_divide": "floordiv"}.get(name, name)
        setattr(Tensor, f"__i{python}__", inplace.inplace(OPS[name]))
    for name in ("and", "or", "xor", "left_shift", "right_shift"):
        python = {"left_shift": "lshift", "right_shift": "rshift"}.get(name, name)
        setattr(Tensor, f"__i{python}__", inplace.inplace(OPS[f"bitwise_{name}"]))


def _attach_methods() -> None:
    for name, op in OPS.items():
        if op.method:
            setattr(Tensor, name, op.call)
        if op.inplace:
            setattr(Tensor, f"{name}_", inplace.inplace(op))
    for name, function in FUNCTIONS.items():
        if function.method:
            setattr(Tensor, name, function.call)
        if function.inplace:
            setattr(Tensor, f"{name}_", inplace.inplace_function(name, function.call))
    for name in ("copy_", "fill_", "zero_", "detach_"):
        setattr(Tensor, name, getattr(inplace, name))
    for name in ("register_hook", "register_post_accumulate_grad_hook", "retain_grad"):
        setattr(Tensor, name, getattr(entry, name))
    Tensor.backward = entry.tensor_backward  # type: ignore[attr-defined]
    Tensor.grad_fn = property(entry.grad_fn)  # type: ignore[attr-defined]
    Tensor.volatile = property(volatile)  # type: ignore[attr-defined]
    _attach_scaled_inplace()
    _attach_writing()
    _attach_conversions()
    _attach_shorthands()


def _attach_scaled_inplace() -> None:
    for name in ("add", "sub"):
        plain = inplace.inplace(OPS[name])

        def scaled(
            self: Tensor, other: Any, *former: Any, alpha: Any = 1, _plain: Any = plain, _name: str = name
        ) -> Tensor:
            if former:
                other, alpha = arithmetic.factor_first(f"{_name}_", "alpha", (other, *former))
            return _plain(self, arithmetic.scaled(_name, self, other, alpha))

        for alias in (name, *OPS[name].aliases):
            setattr(Tensor, f"{alias}_", scaled)


def _attach_writing() -> None:
    for name in writing.WRITERS:
        function = FUNCTIONS[name].call if name in FUNCTIONS else OPS[name].call
        setattr(Tensor, f"{name}_", writing.directly(getattr(Tensor, f"{name}_"), function))
    Tensor.masked_fill_ = writing.masked_fill_directly(Tensor.masked_fill_)  # type: ignore[method-assign]


def _attach_conversions() -> None:
    names = {
        "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16,
        "int": dtypes.int32, "long": dtypes.int64, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8,
        "bool": dtypes.bool_, "cfloat": dtypes.complex64, "cdouble": dtypes.complex128,
    }  # fmt: skip
    for name, dtype in names.items():
        setattr(Tensor, name, _converter(name, dtype))
    Tensor.cpu = lambda self: composed.to(self, "cpu")  # type: ignore[attr-defined]
    Tensor.cuda = lambda self, device=None: composed.to(self, "cuda" if device is None else device)  # type: ignore


def _converter(name: str, dtype: dtypes.DType) -> Any:
    def method(self: Tensor, memory_format: Any = None) -> Tensor:
        return composed.to(self, dtype)

    method.__name__ = name
    method.__doc__ = f"In dtype {dtype!r}."
    return method


def _attach_shorthands() -> None:
    extra: dict[str, Any] = {
        "where": lambda self, condition, other: pointwise.where(condition, self, other),
        "broadcast_to": rearranging.broadcast_to,
        "resize_": rearranging.resize_,
        "resize_as_": rearranging.resize_as_,
        "set_": rearranging.set_,
        "new": creation.new_as_its_class,
        "fill_diagonal_": diagonal.fill_diagonal_,
        "view": strided.view,
        "storage_offset": strided.storage_offset,
        "untyped_storage": strided.untyped_storage,
        **rearranging.IN_PLACE,
        "real": property(real, _set_part(real)),
        "imag": property(imag, _set_part(imag)),
        **{
            f"new_{f.__name__}": creation.new(f)
            for f in (
                creation.zeros,
                creation.ones,
                creation.empty,
                creation.full,
                creation.empty_strided,
                data.tensor,
            )
        },
        **by_element.METHODS,
        **draws.METHODS,
        **interop.METHODS,
    }
    for name, function in extra.items():
        if getattr(function, "__name__", "") == "<lambda>":
            function.__name__ = name
        setattr(Tensor, name, function)
    for name, function in rearranging.PROPERTIES.items():
        setattr(Tensor, name, property(function))


def _set_part(part: Any) -> Any:
    """`x.real = y`: writes through the view."""
    return lambda self, value: inplace.copy_(part(self), value)


def attach() -> None:
    """Give the class Tensor its methods: to be called once, when all ops are declared."""
    _attach_operators()
    _attach_methods()

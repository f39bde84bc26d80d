"""Attaches the ops to Tensor: methods, operators and in-place forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._tensor import Tensor
from ..autograd import functional
from ..backend import dtype as dtypes
from . import composed, creation, elementwise, index, inplace, matrix, pointwise, shape
from .declare import OPS
from .reduce import wrap_dim
from .tensor_function import FUNCTIONS


def _reflected(op: Any) -> Any:
    """`2 - x`: the number becomes the first operand."""

    def method(self: Tensor, other: Any) -> Any:
        return op(_tensor(self, other), self)

    return method


def _tensor(like: Tensor, value: Any) -> Tensor:
    """A number as a 0-dimensional tensor, which takes part in promotion as a number does; an array as it is."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray):
        return creation.from_numpy(value)
    category = dtypes.scalar_category(value)
    dtype = like.dtype if category <= like.dtype.category else dtypes.result_type([], [category])
    return creation.full((), value, dtype=dtype, device=like.device)


def _operator(op: Any) -> Any:
    """An operator that leaves unknown operands to the other side."""

    def method(self: Tensor, other: Any) -> Any:
        try:
            return op(self, other)
        except TypeError:
            if isinstance(other, (Tensor, bool, int, float, complex)):
                raise
            return NotImplemented

    return method


def _attach_operators() -> None:
    table: dict[str, Any] = {
        "__add__": pointwise.add, "__radd__": pointwise.add, "__sub__": pointwise.sub, "__mul__": pointwise.mul,
        "__rmul__": pointwise.mul, "__truediv__": pointwise.div, "__pow__": pointwise.pow,
        "__mod__": pointwise.remainder, "__floordiv__": pointwise.floor_divide, "__matmul__": matrix.matmul,
        "__neg__": elementwise.neg, "__abs__": elementwise.abs, "__lt__": pointwise.lt, "__le__": pointwise.le,
        "__gt__": pointwise.gt, "__ge__": pointwise.ge, "__and__": pointwise.bitwise_and, "__or__": pointwise.bitwise_or,
        "__xor__": pointwise.bitwise_xor, "__invert__": elementwise.bitwise_not, "__getitem__": index.subscript,
        "__eq__": _operator(pointwise.eq), "__ne__": _operator(pointwise.ne), "__setitem__": inplace.setitem,
        "__rsub__": _reflected(pointwise.sub), "__rtruediv__": _reflected(pointwise.div),
        "__rpow__": _reflected(pointwise.pow), "__rmod__": _reflected(pointwise.remainder),
        "__rfloordiv__": _reflected(pointwise.floor_divide),
    }  # fmt: skip
    for name, function in table.items():
        setattr(Tensor, name, function)
    Tensor.__hash__ = object.__hash__  # type: ignore[method-assign]
    for name in ("add", "sub", "mul", "div", "pow", "remainder", "floor_divide"):
        python = {"div": "truediv", "remainder": "mod", "floor_divide": "floordiv"}.get(name, name)
        setattr(Tensor, f"__i{python}__", inplace.inplace(OPS[name]))


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
        setattr(Tensor, name, getattr(functional, name))
    Tensor.backward = functional.tensor_backward  # type: ignore[attr-defined]
    Tensor.grad_fn = property(functional.grad_fn)  # type: ignore[attr-defined]
    _attach_scaled_inplace()
    _attach_conversions()
    _attach_shorthands()


def _attach_scaled_inplace() -> None:
    for name in ("add", "sub"):
        plain = inplace.inplace(OPS[name])

        def scaled(self: Tensor, other: Any, *, alpha: Any = 1, _plain: Any = plain) -> Tensor:
            return _plain(self, other if alpha == 1 else other * alpha)

        setattr(Tensor, f"{name}_", scaled)


def _attach_conversions() -> None:
    names = {
        "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16,
        "int": dtypes.int32, "long": dtypes.int64, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8,
        "bool": dtypes.bool_,
    }  # fmt: skip
    for name, dtype in names.items():
        setattr(Tensor, name, _converter(name, dtype))
    Tensor.cpu = lambda self: composed.to(self, "cpu")  # type: ignore[attr-defined]
    Tensor.cuda = lambda self, device=None: composed.to(self, "cuda" if device is None else device)  # type: ignore


def _converter(name: str, dtype: dtypes.DType) -> Any:
    def method(self: Tensor) -> Tensor:
        return composed.to(self, dtype)

    method.__name__ = name
    method.__doc__ = f"In dtype {dtype!r}."
    return method


def _attach_shorthands() -> None:
    def unflatten(self: Tensor, dim: int, sizes: Any) -> Tensor:
        """Dimension `dim` as several, of the given `sizes`; one may be -1."""
        dim = wrap_dim("unflatten", dim, self.ndim)
        return shape.reshape(self, (*self.shape[:dim], *sizes, *self.shape[dim + 1 :]))

    extra: dict[str, Any] = {
        "view_as": lambda self, other: shape.view(self, other.shape),
        "reshape_as": lambda self, other: shape.reshape(self, other.shape),
        "expand_as": lambda self, other: shape.expand(self, other.shape),
        "masked_select": lambda self, mask: index.subscript(self, mask),
        "where": lambda self, condition, other: pointwise.where(condition, self, other),
        "unflatten": unflatten,
        "new_zeros": _new(creation.zeros),
        "new_ones": _new(creation.ones),
        "new_empty": _new(creation.empty),
        "new_full": _new(creation.full),
        "new_tensor": _new(creation.tensor),
        "uniform_": _filled("uniform", 0.0, 1.0),
        "normal_": _filled("normal", 0.0, 1.0),
        "multinomial": creation.multinomial,
    }
    for name, function in extra.items():
        if hasattr(function, "__name__") and function.__name__ == "<lambda>":
            function.__name__ = name
        setattr(Tensor, name, function)
    Tensor.T = property(lambda self: shape.permute(self, *range(self.ndim)[::-1]))  # type: ignore[attr-defined]
    Tensor.mT = property(lambda self: shape.transpose(self, -2, -1))  # type: ignore[attr-defined]


def _new(function: Any) -> Any:
    def method(self: Tensor, *args: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> Tensor:
        return function(*args, dtype=dtype or self.dtype, device=device or self.device, **kwargs)

    method.__name__ = f"new_{function.__name__}"
    method.__doc__ = f"`{function.__name__}` with this tensor's dtype and device."
    return method


def _filled(kind: str, first: float, second: float) -> Any:
    def method(self: Tensor, a: float = first, b: float = second, *, generator: Any = None) -> Tensor:
        from ..random import default_generator

        inplace.check_writable(f"{kind}_", self)
        draw = getattr(generator or default_generator(), kind)
        fresh = creation.from_numpy(draw(self._array.shape, self._array.dtype, a, b))
        return inplace.copy_(self, fresh.to(self.device))

    method.__name__ = f"{kind}_"
    method.__doc__ = f"Overwrite with draws of `Generator.{kind}`."
    return method


_attach_operators()
_attach_methods()

"""Attaches the ops to Tensor: methods, operators and in-place forms."""

from __future__ import annotations

import functools
from inspect import signature
from types import FunctionType
from typing import Any

import numpy as np

from ..autograd import accumulate, entry
from ..backend import dtype as dtypes
from ..core.overrides import DisableTorchFunction, overridable, overriding
from ..core.tensor import Tensor
from ..core.upcalls import declare_all_ops
from .creation import data, draws, factories, interop
from .dispatch import inplace, inplace_elements
from .dispatch.declare import OPS
from .dispatch.lean_calls import make_call
from .dispatch.signatures import in_place
from .dispatch.tensor_function import FUNCTIONS
from .dispatch.vocabulary import VOCABULARY as F
from .elementwise import arithmetic, binary, bitwise, conversion, fused_sums, unary
from .elementwise.complex import imag, real
from .indexing import index, setitem
from .linalg import matrix
from .shape import diagonal, rearranging, strided

ON_USE = (
    "_coalesced_", "_indices", "_nnz", "_values", "apply_", "bincount", "cholesky", "cholesky_inverse", "ccol_indices", "cholesky_solve", "coalesce", "col_indices", "crow_indices", "dense_dim", "det", "diff", "dist", "geqrf", "histc", "histogram", "indices", "inverse", "is_coalesced", "istft", "logdet",
    "lu", "lu_solve", "map2_", "map_", "matrix_exp", "matrix_power", "norm", "orgqr", "ormqr", "pinverse", "qr", "renorm", "renorm_", "row_indices", "slogdet", "sparse_dim",
    "sparse_mask", "stft", "svd", "to_dense", "to_sparse", "to_sparse_bsc", "to_sparse_bsr", "to_sparse_coo", "to_sparse_csc", "to_sparse_csr", "triangular_solve", "unique", "unique_consecutive", "values",
)  # fmt: skip
"""Methods whose ops are declared when one of them is first used."""

_BY_THEIR_OWN_NAMES = (
    "abs", "and", "eq", "floordiv", "iand", "ilshift", "ior", "ipow", "irshift", "ixor", "lshift", "neg", "or", "pow", "rshift",
    "xor",
)  # fmt: skip
"""Operators that a `__torch_function__` is not asked about by the name of their op."""

_attached = {"ops": 0, "functions": 0}


def _as_method(function: Any, operator: bool = False) -> Any:
    """`function` as a method: another object, since a `__torch_function__` tells `torch.add` from `torch.Tensor.add`."""
    op = function.__dict__.get("op")
    if op is not None and function is op.call:
        method: Any = make_call(op, lambda: getattr(Tensor, op.name), operator)
    else:
        defaults, closure = function.__defaults__, function.__closure__
        method = FunctionType(function.__code__, function.__globals__, function.__name__, defaults, closure)
        method.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(method, function)


def _reflected(function: Any) -> Any:
    """`2 - x`: the number, or NumPy array, becomes the first operand."""

    op = function.__dict__["op"]
    call = make_call(op, lambda: getattr(Tensor, op.name), operator=True)

    def method(self: Tensor, other: Any) -> Tensor:
        return call(other, self)

    return method


_divided = _reflected(F.div)


@overridable
def __rdiv__(self: Tensor, other: Any) -> Tensor:
    """`2 / x`: a number times the reciprocal, as PyTorch has it. Its bits are not those of a quotient."""
    if not isinstance(other, (int, float, complex, np.number)):
        return _divided(self, other)
    reciprocal = unary.reciprocal(self)
    return reciprocal if other.__class__ is int and other == 1 else reciprocal * other


def _invert(self: Tensor) -> Tensor:
    """`~self`: of bools the opposite, of integers the complement."""
    if self.dtype.category > 1:
        raise TypeError(
            f"~ (operator.invert) is only implemented on integer and Boolean-type tensors, got {self.dtype}"
        )
    return unary.bitwise_not(self)


def _matmul_from_right(self: Tensor, other: Any) -> Any:
    return (
        matrix.matmul(data.as_tensor(other, device=self.device), self)
        if hasattr(other, "__array__")
        else NotImplemented
    )


def _no_deletion(self: Tensor, index: Any) -> None:
    raise TypeError("Tensor does not support deleting items")


def _attach_operators() -> None:
    table: dict[str, Any] = {
        "__add__": F.add, "__radd__": F.add, "__sub__": F.sub, "__mul__": binary.mul,
        "__rmul__": binary.mul, "__truediv__": F.div, "__pow__": F.pow,
        "__mod__": binary.remainder, "__floordiv__": arithmetic.floor_divide, "__matmul__": matrix.matmul,
        "__neg__": unary.neg, "__abs__": unary.abs, "__lt__": binary.lt, "__le__": binary.le,
        "__gt__": binary.gt, "__ge__": binary.ge, "__and__": bitwise.bitwise_and, "__or__": bitwise.bitwise_or,
        "__xor__": bitwise.bitwise_xor, "__invert__": _invert, "__getitem__": index.subscript,
        "__eq__": binary.eq, "__ne__": binary.ne, "__setitem__": setitem.setitem,
        "__rsub__": _reflected(F.sub), "__rtruediv__": __rdiv__,
        "__rpow__": _reflected(binary.pow), "__rmod__": _reflected(binary.remainder),
        "__rfloordiv__": _reflected(arithmetic.floor_divide), "__rand__": bitwise.bitwise_and,
        "__ror__": bitwise.bitwise_or, "__rxor__": bitwise.bitwise_xor, "__pos__": arithmetic.positive,
        "__lshift__": bitwise.bitwise_left_shift, "__rshift__": bitwise.bitwise_right_shift,
        "__rlshift__": _reflected(bitwise.bitwise_left_shift), "__rrshift__": _reflected(bitwise.bitwise_right_shift),
        "__rdiv__": __rdiv__, "__rmatmul__": _matmul_from_right, "__delitem__": _no_deletion,
    }  # fmt: skip
    for name, function in table.items():
        method = _as_method(function, operator=True)
        if "op" not in method.__dict__:
            method.__name__ = name  # which a `__torch_function__` is told
        setattr(Tensor, name, method)
    Tensor.__hash__ = object.__hash__
    for name in ("add", "sub", "mul", "div", "pow", "remainder", "floor_divide"):
        python = {"div": "truediv", "remainder": "mod", "floor_divide": "floordiv"}.get(name, name)
        setattr(Tensor, f"__i{python}__", inplace.inplace(OPS[name], operator=True))
    for name in ("and", "or", "xor", "left_shift", "right_shift"):
        python = {"left_shift": "lshift", "right_shift": "rshift"}.get(name, name)
        setattr(Tensor, f"__i{python}__", inplace.inplace(OPS[f"bitwise_{name}"], operator=True))
    for name in _BY_THEIR_OWN_NAMES:
        getattr(Tensor, f"__{name}__").__name__ = f"__{name}__"


def attach_declared() -> None:
    """Give the class Tensor the methods of what was declared since this was last called."""
    for name, op in list(OPS.items())[_attached["ops"] :]:
        if op.method:
            setattr(Tensor, name, _as_method(op.public))
        if op.inplace:
            whole = op.public is not op.call
            form = inplace.inplace_function(name, op.public) if whole else inplace.inplace(op)
            setattr(Tensor, f"{name}_", form)
    for name, function in list(FUNCTIONS.items())[_attached["functions"] :]:
        if function.method:
            setattr(Tensor, name, _as_method(function.call))
        if function.inplace:
            setattr(Tensor, f"{name}_", inplace.inplace_function(name, function.call))
    _attached.update(ops=len(OPS), functions=len(FUNCTIONS))


def _attach_others() -> None:
    for function in (setitem.copy_, setitem.fill_, setitem.zero_, inplace.detach_):
        setattr(Tensor, function.__name__, function)
    for name in ("register_hook", "register_post_accumulate_grad_hook", "retain_grad"):
        setattr(Tensor, name, getattr(entry, name))
    Tensor.backward = entry.tensor_backward
    Tensor.grad_fn = property(entry.grad_fn)  # type: ignore[attr-defined]
    Tensor.grad_dtype = property(accumulate.grad_dtype, accumulate.set_grad_dtype)  # type: ignore[attr-defined]
    Tensor.volatile = property(entry.volatile)  # type: ignore[attr-defined]
    Tensor._cdata = property(_cdata)  # type: ignore[attr-defined]
    _attach_scaled_inplace()
    Tensor.div_ = Tensor.divide_ = _division(inplace.inplace(OPS["div"]), Tensor.div_)
    _attach_writing()
    _attach_conversions()
    _attach_shorthands()
    for name in ON_USE:
        setattr(Tensor, name, _OnUse(name))
    for name in ("__deepcopy__", "__reduce_ex__", "backward"):
        getattr(Tensor, name).__name__ = name


class _OnUse:
    """Stands for a method that is declared in a module which few programs use; asked for, it loads all of them."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: Tensor | None, owner: type[Tensor]) -> Any:
        declare_all_ops()
        return getattr(owner if instance is None else instance, self._name)


def _attach_scaled_inplace() -> None:
    makers = dict.fromkeys(("add", "sub"), fused_sums.with_alpha) | dict.fromkeys(
        ("addcmul", "addcdiv"), fused_sums.with_value
    )
    for name, make in makers.items():
        method = make(name)
        method.__name__ = method.__qualname__ = f"{name}_"
        method.__dict__["__signature__"] = in_place(signature(OPS[name].public))
        for alias in (name, *OPS[name].aliases):
            setattr(Tensor, f"{alias}_", method)


def _division(plain: Any, rounding: Any) -> Any:
    """`div_`: `plain`, which may write in place, or with a `rounding_mode`."""

    @functools.wraps(rounding)
    def div_(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return (rounding if kwargs else plain)(input, *args, **kwargs)

    return div_


def _attach_writing() -> None:
    for name in inplace_elements.WRITERS:
        function = FUNCTIONS[name].call if name in FUNCTIONS else OPS[name].public
        setattr(Tensor, f"{name}_", inplace_elements.directly(getattr(Tensor, f"{name}_"), function))
    Tensor.masked_fill_ = inplace_elements.masked_fill_directly(Tensor.masked_fill_, OPS["masked_fill"].check)


def _attach_conversions() -> None:
    names = {
        "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16,
        "int": dtypes.int32, "long": dtypes.int64, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8,
        "bool": dtypes.bool_, "cfloat": dtypes.complex64, "cdouble": dtypes.complex128,
    }  # fmt: skip
    for name, dtype in names.items():
        setattr(Tensor, name, _converter(name, dtype))
    for function in (_cpu, _cuda):
        setattr(Tensor, function.__name__[1:], function)


def _reversed(self: Tensor) -> Tensor:
    """The elements along the first dimension in reverse order."""
    return self.flip(0) if self._array.ndim else self


def _format(self: Tensor, spec: str) -> str:
    """A tensor without dimensions as its number."""
    return (
        format(self.item(), spec)
        if self._array.ndim == 0 and not self.is_meta
        else object.__format__(self, spec)
    )


def _cdata(self: Tensor) -> int:
    """A number that no other tensor has meanwhile."""
    return id(self)


def _cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    if (
        memory_format is None
        and self.__class__ is Tensor
        and self._array.__class__ is np.ndarray
        and not overriding
    ):
        return self
    return conversion.to(self, "cpu", memory_format=memory_format)


def _cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    where = "cuda" if device is None else device
    return conversion.to(self, where, non_blocking=non_blocking, memory_format=memory_format)


def _converter(name: str, dtype: dtypes.DType) -> Any:
    def method(self: Tensor, memory_format: Any = None) -> Tensor:
        if memory_format is None and self.__class__ is Tensor and not overriding:
            return self if self.dtype is dtype else conversion.to_dtype(self, dtype)
        return conversion.to(self, dtype, memory_format=memory_format)

    method.__name__ = name
    method.__doc__ = f"In dtype {dtype!r}."
    return method


def _where(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    return binary.where(condition, self, other)


def _make_subclass(kind: type, data: Tensor, require_grad: bool = False) -> Tensor:
    """The memory of `data`, without its history, as an instance of `kind`."""
    with DisableTorchFunction():
        return interop.as_subclass(data.detach(), kind).requires_grad_(require_grad)


def _make_wrapper_subclass(kind: type, *args: Any, **kwargs: Any) -> Tensor:
    """A tensor without memory of its own, of a class whose `__torch_dispatch__` answers for it."""
    from ..library.aten.members import make_wrapper  # here, as few programs have such tensors

    return make_wrapper(kind, *args, **kwargs)


def _attach_shorthands() -> None:
    extra: dict[str, Any] = {
        "where": _where,
        "__reversed__": _reversed,
        "__format__": _format,
        "polygamma": F.polygamma,
        "polygamma_": inplace.inplace(OPS["polygamma"]),
        "broadcast_to": rearranging.broadcast_to,
        "resize_": strided.resize_,
        "resize_as_": strided.resize_as_,
        "set_": strided.set_,
        "new": data.new_as_its_class,
        "fill_diagonal_": diagonal.fill_diagonal_,
        "storage_offset": strided.storage_offset,
        "storage": interop.storage,
        "untyped_storage": interop.untyped_storage,
        **rearranging.IN_PLACE,
        "real": property(real, _set_part(real)),
        "imag": property(imag, _set_part(imag)),
        **{
            f"new_{f.__name__}": data.new(f)
            for f in (
                factories.zeros,
                factories.ones,
                factories.empty,
                factories.full,
                factories.empty_strided,
                data.tensor,
            )
        },
        **draws.METHODS,
        **interop.METHODS,
        "_make_subclass": staticmethod(_make_subclass),
        "_make_wrapper_subclass": staticmethod(_make_wrapper_subclass),
    }
    for name, function in extra.items():
        setattr(Tensor, name, function)
    for name, function in rearranging.PROPERTIES.items():
        setattr(Tensor, name, property(function))


def _set_part(part: Any) -> Any:
    """`x.real = y`: writes through the view."""
    return lambda self, value: setitem.copy_(part(self), value)


def attach() -> None:
    """Give the class Tensor its methods: to be called once, when the ops that every program needs are declared."""
    _attach_operators()
    attach_declared()
    _attach_others()

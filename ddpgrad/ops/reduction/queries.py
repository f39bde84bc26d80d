"""Queries about tensors and dtypes, whose answers have no gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...backend.registry import backend_for
from ...core.errors import must_be_tensor
from ...core.overrides import overridable
from ...core.tensor import Tensor, wrap
from ..dispatch.tensor_function import tensor_function
from ..elementwise import binary, unary
from ..elementwise.conversion import to
from . import reduce


@tensor_function()
def equal(input: Tensor, other: Tensor) -> bool:
    """True when both have the same shape and elements."""
    if not isinstance(other, Tensor):
        raise must_be_tensor("equal", "other", 1, other)
    mine, others = input._array, other._array
    if mine.__class__ is others.__class__ is np.ndarray and mine.dtype is others.dtype:  # no tensor between
        return mine.shape == others.shape and bool((mine == others).all())
    return input.shape == other.shape and bool(reduce.all(binary.eq(input, other)))


@tensor_function(method=False)
def detach(input: Tensor) -> Tensor:
    """`Tensor.detach`: the same memory without history."""
    return input.detach()


@tensor_function(method=False)
def get_device(input: Tensor) -> int:
    """The number of the GPU that the tensor is on; -1 on the CPU."""
    return input.get_device()


@tensor_function()
def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """True where |input - other| <= atol + rtol * |other|, or both are equal."""
    for place, value in enumerate((input, other)):
        if not isinstance(value, Tensor):
            raise must_be_tensor("isclose", ("input", "other")[place], place, value)
    if input.dtype is not other.dtype:
        raise RuntimeError(f"isclose(): expected one dtype, got {input.dtype.name} and {other.dtype.name}")
    for which, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance < 0:
            raise RuntimeError(
                f"isclose(): {which} must be greater than or equal to zero, but got {tolerance}"
            )
    close = binary.eq(input, other)
    if equal_nan:
        close = binary.logical_or(close, binary.logical_and(unary.isnan(input), unary.isnan(other)))
    if rtol == atol == 0:
        return close
    if not (input.dtype.is_floating_point or input.dtype.is_complex):  # a difference of integers may wrap
        input, other = (to(t, dtypes.get_default_dtype()) for t in (input, other))
    distance = unary.abs(input - other)
    within = distance <= atol + unary.abs(rtol * other)
    return binary.logical_or(close, binary.logical_and(within, unary.isfinite(distance)))


@tensor_function()
def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """True when `isclose` holds everywhere."""
    return bool(reduce.all(isclose(input, other, rtol, atol, equal_nan)))


@tensor_function(method=False, out=True, names={"element": "elements", "test_element": "test_elements"})
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """True where an element is among `test_elements` (with `invert`, where it is not). One of both may be a number."""
    given = elements if isinstance(elements, Tensor) else test_elements
    if not isinstance(given, Tensor):
        raise TypeError("isin(): at least one of elements and test_elements must be a Tensor")
    if isinstance(elements, Tensor) and isinstance(test_elements, Tensor):
        common = dtypes.promote_types(elements.dtype, test_elements.dtype)
        elements, test_elements = to(elements, common), to(test_elements, common)
    for one in (elements, test_elements):
        if isinstance(one, complex) or (isinstance(one, Tensor) and one.is_complex()):
            raise RuntimeError("Unsupported input type encountered for isin(): complex")
    backend = backend_for(given._array)
    raw = [
        x._array if isinstance(x, Tensor) else backend.asarray(x, like=given._array)
        for x in (elements, test_elements)
    ]
    found = wrap(backend.asarray(backend.isin(*raw)))
    return unary.logical_not(found) if invert else found


@tensor_function()
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not 0."""
    if not isinstance(input, Tensor):
        raise must_be_tensor("is_nonzero", "input", 0, input)
    return bool(input)


@tensor_function()
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape."""
    return input.shape == other.shape


@overridable
def _has_compatible_shallow_copy_type(input: Tensor, from_: Tensor) -> bool:
    """Whether one tensor may become the other without a new object: both are of one layout, and on one kind of device."""
    return input.layout is from_.layout and input.device.type == from_.device.type


@overridable
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating-point type."""
    return input.dtype.is_floating_point


@overridable
def is_complex(input: Tensor) -> bool:
    """Whether the dtype is a complex type."""
    return input.dtype.is_complex


@tensor_function()
def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return input.dtype.is_signed


@overridable
def numel(input: Tensor) -> int:
    """The number of elements."""
    return input.numel()


@tensor_function(
    method=False,
    names={
        "tensor": "tensor1",
        "scalar": "tensor1",
        "scalar1": "tensor1",
        "other": "tensor2",
        "scalar2": "tensor2",
    },
)
def result_type(tensor1: Any, tensor2: Any) -> dtypes.DType:
    """The dtype that arithmetic on both gives. One of both, or both, may be numbers."""
    both = (tensor1, tensor2)
    tensors = [(t._array.dtype, t._array.ndim) for t in both if isinstance(t, Tensor)]
    return dtypes.result_type(tensors, [dtypes.scalar_category(v) for v in both if not isinstance(v, Tensor)])


def can_cast(from_: Any, to: Any) -> bool:
    """Whether a result of dtype `from_` may be written to a tensor of dtype `to`: kinds go up, never down."""
    return dtypes.of(from_).category <= dtypes.of(to).category


def is_tensor(obj: object) -> bool:
    """True for a Tensor."""
    return isinstance(obj, Tensor)


@overridable
def is_inference(input: Tensor) -> bool:
    """True for a tensor made in `inference_mode`; see `Tensor.is_inference`."""
    return input.is_inference()


def typename(obj: object) -> str:
    """`'torch.FloatTensor'` for a Tensor; for others the name of their type, with its module."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    kind = obj if isinstance(obj, type) else type(obj)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"

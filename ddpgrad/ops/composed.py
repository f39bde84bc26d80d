"""Functions on Tensors that are made of ops, and so need no gradient rule of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._tensor import Tensor, wrap
from ..backend import device as devices
from ..backend import dtype as dtypes
from ..backend.registry import backend_for, backend_of
from . import activation, elementwise, index, matrix, pointwise, reduce, shape
from .declare import primitive
from .reduce import wrap_dim
from .tensor_function import tensor_function


class MinMax(NamedTuple):
    """Values and indices, as `max(dim)`, `min(dim)`, `sort` and `topk` return them."""

    values: Tensor
    indices: Tensor


@tensor_function()
def add(input: Any, other: Any, *, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
    """input + alpha * other."""
    return pointwise.add(input, other if alpha == 1 else other * alpha, out=out)  # type: ignore[call-arg]


@tensor_function()
def sub(input: Any, other: Any, *, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
    """input - alpha * other."""
    return pointwise.sub(input, other if alpha == 1 else other * alpha, out=out)  # type: ignore[call-arg]


@tensor_function(inplace=True, out=True)
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """input / other, rounded as asked: None, 'floor' or 'trunc'."""
    if rounding_mode is None:
        return pointwise.div(input, other)
    if rounding_mode == "floor":
        return pointwise.floor_divide(input, other)
    if rounding_mode == "trunc":
        return elementwise.trunc(pointwise.div(input, other))
    raise RuntimeError(
        f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found {rounding_mode!r}"
    )


@tensor_function(out=True)
def max(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The largest element; with `dim`, (values, indices) along it; with a Tensor, the larger of both."""
    return _extremum(input, dim, keepdim, reduce.amax, reduce.argmax, pointwise.maximum)


@tensor_function(out=True)
def min(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest element; with `dim`, (values, indices) along it; with a Tensor, the smaller of both."""
    return _extremum(input, dim, keepdim, reduce.amin, reduce.argmin, pointwise.minimum)


def _extremum(input: Tensor, dim: Any, keepdim: bool, whole: Any, position: Any, of_two: Any) -> Any:
    if dim is None:
        return whole(input)
    if isinstance(dim, Tensor):
        return of_two(input, dim)
    indices = position(input, dim, True)
    values = index.gather(input, dim, indices)
    if not keepdim:
        values, indices = shape.squeeze(values, dim), shape.squeeze(indices, dim)
    return MinMax(values, indices)


@tensor_function(out=True)
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> MinMax:
    """(sorted values, their indices) along `dim`; equal elements keep their order."""
    order = index.argsort(input, dim, descending)
    return MinMax(index.gather(input, dim, order), order)


@tensor_function()
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Indices that sort along `dim`; equal elements keep their order."""
    return index.argsort(input, dim, descending)


@tensor_function(out=True)
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> MinMax:
    """The `k` largest (or smallest) elements along `dim`, in order, and their indices."""
    dim = wrap_dim("topk", dim, input.ndim)
    size = input.shape[dim] if input.ndim else 1
    if not 0 <= k <= size:
        raise RuntimeError(f"selected index k out of range: k={k}, dimension {dim} has size {size}")
    order = index.argsort(input, dim, largest)
    if input.ndim:
        order = shape.narrow(order, dim, 0, k)
    return MinMax(index.gather(input, dim, order), order)


@tensor_function(out=True)
def norm(input: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The p-norm of the elements over `dim` (all by default)."""
    if input.dtype.category < 2:
        raise RuntimeError(
            f"norm(): expected a floating point or complex tensor as input, got {input.dtype.name}. Use x.float()."
        )
    if p in (2, 2.0, "fro", None):
        return reduce.euclidean_norm(input, dim, keepdim)
    magnitude = elementwise.abs(input)
    if p == math.inf:
        return reduce.amax(magnitude, dim, keepdim)
    if p == -math.inf:
        return reduce.amin(magnitude, dim, keepdim)
    if p == 0:
        return reduce.sum(to(pointwise.ne(input, 0), input.dtype), dim, keepdim)
    if p == 1:
        return reduce.sum(magnitude, dim, keepdim)
    return reduce.sum(magnitude**p, dim, keepdim) ** (1.0 / p)


@tensor_function()
def split(tensor: Tensor, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive parts along `dim`: of one size (the last may be smaller) or of the sizes given."""
    _require_dimensions("split", tensor)
    dim = wrap_dim("split", dim, tensor.ndim)
    total = tensor.shape[dim]
    if isinstance(split_size, int):
        if split_size <= 0:
            raise RuntimeError(f"split expects split_size be positive, but got split_size={split_size}")
        sizes = [split_size] * (total // split_size) + ([total % split_size] if total % split_size else [])
        sizes = sizes or [0]
    else:
        sizes = [int(n) for n in split_size]
        if math.fsum(sizes) != total:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's size at dimension "
                f"{dim}), but got split_sizes={sizes}"
            )
    parts, start = [], 0
    for n in sizes:
        parts.append(shape.narrow(tensor, dim, start, n))
        start += n
    return tuple(parts)


@tensor_function()
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` views of equal size along `dim` (the last may be smaller)."""
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    _require_dimensions("chunk", input)
    n = input.shape[wrap_dim("chunk", dim, input.ndim)]
    return split(input, -(-n // chunks) if n else [0] * chunks, dim)


def _require_dimensions(name: str, input: Tensor) -> None:
    if not input.ndim:
        raise RuntimeError(f"{name}() expects at least a 1-dimensional tensor")


@tensor_function()
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along `dim`, without that dimension."""
    dim = wrap_dim("unbind", dim, input.ndim)
    return tuple(select(input, dim, i) for i in range(input.shape[dim]))


@tensor_function()
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The slice `index` of `dim`, without that dimension; a view."""
    dim = wrap_dim("select", dim, input.ndim)
    return input[(slice(None),) * dim + (int(index),)]


@tensor_function()
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Indices of the elements that are not zero: one row each, or with `as_tuple` one vector per dimension."""
    if not as_tuple:
        return index.nonzero(input)
    return unbind(index.nonzero(input if input.ndim else shape.reshape(input, (1,))), 1)


@tensor_function()
def t(input: Tensor) -> Tensor:
    """A matrix transposed; a vector as it is."""
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return shape.transpose(input, 0, 1) if input.ndim == 2 else input


@tensor_function()
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions `source` moved to the places `destination`; a view."""
    sources = [source] if isinstance(source, int) else list(source)
    targets = [destination] if isinstance(destination, int) else list(destination)
    sources = [wrap_dim("movedim", d, input.ndim) for d in sources]
    targets = [wrap_dim("movedim", d, input.ndim) for d in targets]
    rest = iter(d for d in range(input.ndim) if d not in sources)
    dims = [sources[targets.index(i)] if i in targets else next(rest) for i in range(input.ndim)]
    return shape.permute(input, *dims)


@tensor_function()
def contiguous(input: Tensor) -> Tensor:
    """The tensor itself when its elements lie in order, else a copy where they do."""
    return input if input._array.flags.c_contiguous else shape.to_contiguous(input)


@tensor_function(out=True)
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """Every product of an element of one vector with one of the other."""
    return shape.unsqueeze(input, 1) * vec2


@tensor_function(inplace=True, out=True)
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * mat1 @ mat2."""
    product = matrix.matmul(mat1, mat2)
    return (input if beta == 1 else input * beta) + (product if alpha == 1 else product * alpha)


@tensor_function(inplace=True, out=True)
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """input + value * tensor1 * tensor2."""
    return input + tensor1 * tensor2 * value


@tensor_function(inplace=True, out=True)
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """input + value * tensor1 / tensor2."""
    return input + tensor1 / tensor2 * value


def _vector_product(name: str, dims: tuple[int, int]) -> Any:
    def function(input: Tensor, other: Tensor) -> Tensor:
        if (input.ndim, other.ndim) != dims:
            raise RuntimeError(
                f"{name}(): expected tensors of {dims[0]} and {dims[1]} dimensions, got {list(input.shape)} and "
                f"{list(other.shape)}"
            )
        return matrix.matmul(input, other)

    function.__name__ = name
    function.__doc__ = f"Matrix product of tensors with {dims[0]} and {dims[1]} dimensions."
    return tensor_function(out=True)(function)


mm, bmm = _vector_product("mm", (2, 2)), _vector_product("bmm", (3, 3))
mv, dot = _vector_product("mv", (2, 1)), _vector_product("dot", (1, 1))


@tensor_function()
def equal(input: Tensor, other: Tensor) -> bool:
    """True when both have the same shape and elements."""
    return input.shape == other.shape and bool(reduce.all(pointwise.eq(input, other)))


@tensor_function()
def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """True where |input - other| <= atol + rtol * |other|."""
    close = elementwise.abs(input - other) <= atol + rtol * elementwise.abs(other)
    close = pointwise.logical_or(
        pointwise.eq(input, other), pointwise.logical_and(close, elementwise.isfinite(other))
    )
    if equal_nan:
        close = pointwise.logical_or(
            close, pointwise.logical_and(elementwise.isnan(input), elementwise.isnan(other))
        )
    return close


@tensor_function()
def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """True when `isclose` holds everywhere."""
    return bool(reduce.all(isclose(input, other, rtol, atol, equal_nan)))


# -- dtype and device ------------------------------------------------------------------------


@primitive(
    grads={"input": lambda F, g, device, source: F.move(g, source, device)},
    method=False,
    grad_name="ToCopyBackward0",
)
def move(F: Any, input: Tensor, device: Any, source: Any) -> Tensor:
    """On another device; the gradient comes back."""
    ...


@tensor_function()
def to(
    input: Tensor,
    *args: Any,
    device: Any = None,
    dtype: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
) -> Tensor:
    """On `device` and in `dtype` (either may be left out, or taken from another tensor); itself if nothing changes."""
    for arg in args:
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, bool):
            pass  # non_blocking by position: copies are ordered by the stream anyway
        elif isinstance(arg, (str, devices.Device, int)):
            device = arg
        elif arg is not None:
            dtype = arg
    out = input
    if device is not None:
        target = devices.of(device)
        if target != input.device:
            backend_of(target.type)  # loads it, or says why not
            out = move(out, target, input.device)
    if dtype is not None and dtypes.of(dtype) is not out.dtype:
        out = _cast(out, dtypes.of(dtype))
    return elementwise.clone(out) if copy and out is input else out


def _cast(input: Tensor, dtype: dtypes.DType) -> Tensor:
    if dtype.category < 2 or input.dtype.category < 2:  # no gradient passes through integers
        return wrap(backend_for(input._array).cast(input._array, dtype))
    return elementwise.cast(input, dtype)


@tensor_function(out=True)
def softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """exp(input) normalised to sum 1 along `dim`, computed in `dtype` if given."""
    return activation.softmax(input if dtype is None else to(input, dtype), dim)


@tensor_function(out=True)
def log_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`, without underflow."""
    return activation.log_softmax(input if dtype is None else to(input, dtype), dim)


@tensor_function()
def type_as(input: Tensor, other: Tensor) -> Tensor:
    """In the dtype of `other`."""
    return to(input, other.dtype)

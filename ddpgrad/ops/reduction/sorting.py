"""Sorting, extrema, medians and quantiles."""

from __future__ import annotations

from typing import Any, overload

from ...backend import dtype as dtypes
from ...core import return_types
from ...core.tensor import Tensor
from ..creation.factories import full
from ..dispatch.signatures import Outs
from ..dispatch.tensor_function import tensor_function
from ..elementwise import binary, unary
from ..elementwise.conversion import to
from ..indexing.gather import gather
from ..shape import shape
from . import order, reduce
from .reduce import require_elements, require_order, wrap_dim


@overload
def max(input: Tensor, dim: None = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor: ...
@overload
def max(input: Tensor, dim: int, keepdim: bool = False, *, out: Outs = None) -> return_types.max: ...
@overload
def max(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@tensor_function(out=True)
def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """The largest element; with `dim`, (values, indices) along it; with a Tensor, the larger of both."""
    return _extremum("max", input, dim if other is None else other, keepdim)


@overload
def min(input: Tensor, dim: None = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor: ...
@overload
def min(input: Tensor, dim: int, keepdim: bool = False, *, out: Outs = None) -> return_types.min: ...
@overload
def min(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@tensor_function(out=True)
def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """The smallest element; with `dim`, (values, indices) along it; with a Tensor, the smaller of both."""
    return _extremum("min", input, dim if other is None else other, keepdim)


_EXTREMA = {
    "max": (order.max_of_all, order.max_values, binary.maximum, return_types.max),
    "min": (order.min_of_all, order.min_values, binary.minimum, return_types.min),
}


def _extremum(name: str, input: Tensor, dim: Any, keepdim: bool) -> Any:
    whole, along, of_two, result = _EXTREMA[name]
    if isinstance(dim, Tensor):
        return of_two(input, dim)
    if dim is None:
        require_order(name, input)
        require_elements(name, input, None)
        return whole(input)
    ndim = input._array.ndim
    dim = wrap_dim(name, dim, ndim)
    if ndim:
        require_elements(name, input, dim)
    return result._make(along(input, dim, keepdim))


@tensor_function(out=True)
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> return_types.aminmax:
    """(smallest, largest) element, over `dim` or all; both share their gradient among equal elements."""
    if not input.numel() and dim is None:
        raise RuntimeError(
            f"aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity, got shape "
            f"{list(input.shape)}"
        )
    if dim is not None:
        dim = wrap_dim("aminmax", dim, input.ndim)
        if input.ndim:
            require_elements("aminmax", input, dim)
    return return_types.aminmax(reduce.amin(input, dim, keepdim), reduce.amax(input, dim, keepdim))


@tensor_function(out=True)
def sort(
    input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> return_types.sort:
    """(sorted values, their indices) along `dim`; equal elements always keep their order, nan counts as the largest."""
    dim = wrap_dim("sort", dim, input.ndim)
    return return_types.sort._make(order.sort_values(input, dim, True, (descending,)))


@tensor_function(out=True)
def msort(input: Tensor) -> Tensor:
    """Sorted along the first dimension."""
    return sort(input, 0).values


@tensor_function(out=True)
def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> return_types.topk:
    """The `k` largest (or smallest) elements along `dim`, in order, and their indices."""
    dim = wrap_dim("topk", dim, input.ndim)
    size = input.shape[dim] if input.ndim else 1
    if not 0 <= k <= size:
        raise RuntimeError(f"selected index k out of range: k={k}, dimension {dim} has size {size}")
    if not input.ndim and k == 0:
        raise RuntimeError("topk(): k=0 needs a tensor with dimensions")
    return return_types.topk._make(order.topk_values(input, dim, True, (int(k), largest, sorted)))


@tensor_function(out=True)
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> return_types.kthvalue:
    """(the `k`-th smallest element along `dim`, its index); k counts from 1."""
    dim = _nonempty_dim("kthvalue", input, dim)
    if not 1 <= k <= (input.shape[dim] if input.ndim else 1):
        raise RuntimeError(
            f"kthvalue(): selected number k out of range for dimension {dim}: k={k}, {input.shape}"
        )
    return return_types.kthvalue._make(order.kthvalue_values(input, dim, keepdim, (k - 1,)))


def _nonempty_dim(name: str, input: Tensor, dim: int) -> int:
    dim = wrap_dim(name, dim, input.ndim)
    if input.ndim:
        require_elements(name, input, dim, IndexError)
        if input.shape[dim] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {dim} to have non-zero size.")
    return dim


@overload
def median(
    input: Tensor, dim: None = None, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor: ...
@overload
def median(input: Tensor, dim: int, keepdim: bool = False, *, out: Outs = None) -> return_types.median: ...
@tensor_function(out=True)
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median (the lower of two), nan if there is a nan; with `dim`, (values, indices) along it."""
    return _median("median", return_types.median, input, dim, keepdim)


@overload
def nanmedian(
    input: Tensor, dim: None = None, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor: ...
@overload
def nanmedian(
    input: Tensor, dim: int, keepdim: bool = False, *, out: Outs = None
) -> return_types.nanmedian: ...
@tensor_function(out=True)
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median of what is not nan; with `dim`, (values, indices) along it."""
    return _median("nanmedian", return_types.nanmedian, input, dim, keepdim)


def _median(name: str, result: Any, input: Tensor, dim: int | None, keepdim: bool) -> Any:
    skip_nan = name == "nanmedian"
    require_order(name, input)
    if dim is None:
        if not input.numel():
            return reduce.sum(input) * float("nan")
        return order.median_of_all(input, skip_nan)
    along = order.nanmedian_values if skip_nan else order.median_values
    return result._make(along(input, _nonempty_dim(name, input, dim), keepdim))


@tensor_function(out=True)
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> return_types.mode:
    """(the most frequent element along `dim`, the smallest of several; the last index of it)."""
    dim = _nonempty_dim("mode", input, dim)
    return return_types.mode._make(order.mode_values(input, dim, keepdim))


@tensor_function(out=True)
def quantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The `q`-th quantiles (a number or a vector in [0, 1]) over `dim` (all by default); nan if there is a nan.

    A vector `q` makes a first dimension. interpolation: "linear", "lower", "higher",
    "midpoint" or "nearest", for a quantile between two elements.
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


@tensor_function(out=True)
def nanquantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """`quantile` of what is not nan."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)


def _quantile(name: str, input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str) -> Tensor:
    quantiles = _checked_q(name, input, q)
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )
    if dim is not None:
        dim = wrap_dim(name, dim, input.ndim)
    if input.shape[dim] == 0 if dim is not None and input.ndim else not input.numel():
        raise RuntimeError(f"{name}() input tensor must be non-empty, got shape {list(input.shape)}")
    if dim is None or not input.ndim:
        ordered = sort(shape.reshape(input, (-1,))).values
    else:
        rest = [d for d in range(input.ndim) if d != dim]
        ordered = sort(shape.permute(input, *rest, dim)).values
    places = _places(ordered, shape.reshape(quantiles, (-1,)), skip_nan=name == "nanquantile")
    found = _between(ordered, places, interpolation)
    found = shape.permute(found, found.ndim - 1, *range(found.ndim - 1))  # the quantiles first
    if keepdim and (dim is None or not input.ndim):
        found = shape.reshape(found, (-1, *(1,) * input.ndim))
    elif keepdim and dim is not None:
        found = shape.unsqueeze(found, dim + 1)
    return found if quantiles.ndim else shape.squeeze(found, 0)


def _checked_q(name: str, input: Tensor, q: Any) -> Tensor:
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(
            f"{name}() input tensor must be either float or double dtype, got {input.dtype.name}"
        )
    if not input.numel():
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        return full((), q, dtype=input.dtype, device=input.device)
    if q.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor, got shape {list(q.shape)}")
    if q.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}() q tensor must be same dtype as the input tensor, got {q.dtype.name} and {input.dtype.name}"
        )
    if not q.is_meta and not bool(reduce.all(binary.logical_and(q >= 0, q <= 1))):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    return q


def _places(ordered: Tensor, quantiles: Tensor, skip_nan: bool) -> Tensor:
    """The fractional index of each quantile along the last dimension, where nans come last."""
    nan = unary.isnan(ordered)
    last = ordered.shape[-1] - 1
    if skip_nan:
        numbers = to(reduce.sum(unary.logical_not(nan), -1, True), ordered.dtype)
        return quantiles * unary.clamp(numbers - 1, min=0)
    return binary.where(reduce.any(nan, -1, True), float(last), quantiles * last)


def _between(ordered: Tensor, places: Tensor, interpolation: str) -> Tensor:
    """The elements of `ordered` at fractional places along the last dimension."""
    if interpolation in ("lower", "higher", "nearest"):
        rounded = {"lower": unary.floor, "higher": unary.ceil, "nearest": unary.round}
        return gather(ordered, -1, to(rounded[interpolation](places), dtypes.int64))
    below = unary.floor(places.detach())
    low = gather(ordered, -1, to(below, dtypes.int64))
    high = gather(ordered, -1, to(unary.ceil(places.detach()), dtypes.int64))
    return low + (high - low) * (0.5 if interpolation == "midpoint" else places - below)

"""`torch.masked`: reductions and normalizations of the elements that a mask keeps.

An element that is masked out counts as the identity of the function: a slice that nothing is left of gives that identity,
or nan where a mean or the like has no answer. The mask is broadcast to the input; None keeps all. As in PyTorch `dim=()`
is all dimensions, results have the dtype of the input where `dtype` is not given, and sums of integers are int64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from ... import broadcast_to, linalg, ones, where
from ... import logaddexp as _logaddexp
from ...backend.dtype import DType, get_default_dtype, iinfo, int64
from ...core.tensor import Tensor
from ...ops.reduction.reduce import wrap_dim

Dim = int | Sequence[int] | None
Mask = Tensor | None
C = TypeVar("C", bound=Callable[..., Any])


def _of_masked(function: C) -> C:
    """`function`, which takes a MaskedTensor as well: its data, and its mask together with the given one."""

    @wraps(function)
    def call(input: Any, *args: Any, mask: Mask = None, **options: Any) -> Any:
        if hasattr(input, "get_mask"):
            mask = input.get_mask() if mask is None else input.get_mask() & mask
            input = input.get_data()
        return function(input, *args, mask=mask, **options)

    return call  # type: ignore[return-value]


def _input_mask(input: Tensor, mask: Mask) -> Tensor:
    """The mask in the shape of `input`, as bools."""
    if mask is None:
        return ones((), dtype=bool, device=input.device).expand(input.shape)
    if mask.ndim > input.ndim:
        raise IndexError(
            f"expected a broadcastable mask, got one of {mask.ndim} dimensions for an input of {input.ndim}"
        )
    return broadcast_to(mask, input.shape).bool()


def _filled(input: Tensor, mask: Mask, identity: Any) -> Tensor:
    """`input` with `identity`, a number or what gives one for a dtype, in the place of what is masked out."""
    if mask is None:
        return input
    value = identity(input.dtype) if callable(identity) else identity
    return where(_input_mask(input, mask), input, input.new_full((), value))


def _dims(input: Tensor, dim: Dim) -> tuple[int, ...]:
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return tuple(range(input.ndim))
    dims = [wrap_dim("masked", d, input.ndim) for d in ((dim,) if isinstance(dim, int) else dim)]
    if len(set(dims)) < len(dims):
        raise RuntimeError(f"dim {dim} appears multiple times in the list of dims")
    return tuple(dims) if input.ndim else ()


def _least(dtype: DType) -> float | int:
    """What no number of `dtype` is less than."""
    _require_order(dtype)
    return -math.inf if dtype.is_floating_point else iinfo(dtype).min


def _greatest(dtype: DType) -> float | int:
    _require_order(dtype)
    return math.inf if dtype.is_floating_point else iinfo(dtype).max


def _require_order(dtype: DType) -> None:
    if dtype.is_complex:
        raise TypeError(f"masked: not implemented for {dtype.name}: complex numbers have no order")
    if dtype.category == 0:
        raise NotImplementedError("masked: not implemented for bool")


def _nothing(dtype: DType) -> float | int:
    """What counts as log(0), which complex numbers have too."""
    return -math.inf if dtype.is_complex else _least(dtype)


# -- reductions --------------------------------------------------------------------------------------


@_of_masked
def sum(
    input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """The sum of what the mask keeps; 0 of nothing."""
    return _filled(input, mask, 0).sum(_dims(input, dim), keepdim, dtype=dtype)


@_of_masked
def prod(
    input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """The product of what the mask keeps; 1 of nothing."""
    dtype = dtype or (int64 if input.dtype.category < 2 else input.dtype)
    out = _filled(input.to(dtype), mask, 1)
    for d in sorted(_dims(input, dim), reverse=True):
        out = out.prod(d, keepdim)
    return out


def _extreme(name: str, identity: Callable[[DType], Any]) -> Any:
    def function(
        input: Tensor,
        dim: Dim = None,
        *,
        keepdim: bool = False,
        dtype: DType | None = None,
        mask: Mask = None,
    ) -> Tensor:
        kind = dtype or input.dtype
        if name.startswith("arg"):  # places, in the dtype of the elements
            return getattr(_filled(input, mask, identity), name)(dim, keepdim).to(kind)
        return getattr(_filled(input.to(kind), mask, identity), name)(_dims(input, dim), keepdim)

    function.__name__ = name
    function.__doc__ = f"`torch.{name}` of what the mask keeps, in the dtype of the input."
    return _of_masked(function)


amax, amin = _extreme("amax", _least), _extreme("amin", _greatest)
argmax, argmin = _extreme("argmax", _least), _extreme("argmin", _greatest)


def _count(input: Tensor, dims: tuple[int, ...], mask: Mask) -> Tensor:
    return _input_mask(input, mask).sum(dims, True)


@_of_masked
def mean(
    input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """The mean of what the mask keeps; nan of nothing."""
    kind = dtype or input.dtype
    if kind.category < 2:
        raise ValueError(f"mean input dtype must be floating point or complex, got {kind.name}")
    dims = _dims(input, dim)
    out = sum(input, dims, keepdim=True, dtype=kind, mask=mask) / _count(input, dims, mask)
    return out if keepdim else out.squeeze(dims)


@_of_masked
def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """The lower median of what the mask keeps, but for nans; nan of nothing."""
    wide = input if input.is_floating_point() else input.float()
    found = _filled(wide, mask, math.nan).nanmedian(dim, keepdim)[0]
    if wide is input:
        return found
    if bool(found.isnan().any()):
        raise ValueError(
            f"median: the mask keeps nothing of a slice, which has no answer in {input.dtype.name}"
        )
    return found.to(dtype or input.dtype)


@_of_masked
def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Dim = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The vector norm of what the mask keeps; 0 of nothing, and infinite if `ord` is negative."""
    ord = 2.0 if ord is None else ord
    filled = _filled(input, mask, _greatest if ord == -math.inf else math.inf if ord < 0 else 0)
    return linalg.vector_norm(filled, ord, _dims(input, dim), keepdim, dtype=dtype)


@_of_masked
def var(
    input: Tensor,
    dim: Dim = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The variance of what the mask keeps, divided by its number less `correction`, 1 by default."""
    if unbiased is not None and correction is not None:
        raise RuntimeError("Only one of unbiased and correction may be given")
    if input.dtype.category == 0:
        raise RuntimeError("var: not implemented for bool")
    less = (1 if unbiased is None else int(unbiased)) if correction is None else correction
    kind = dtype or (input.dtype if input.dtype.category > 1 else get_default_dtype())
    wide, dims = input if input.dtype.category > 1 else input.to(get_default_dtype()), _dims(input, dim)
    count = _count(input, dims, mask)
    center = sum(wide, dims, keepdim=True, mask=mask) / count
    apart = wide - center
    total = sum(apart * apart.conj(), dims, keepdim=True, mask=mask)
    out = (total / (count - less).clamp(min=0)).to(kind)
    return out if keepdim else out.squeeze(dims)


@_of_masked
def std(input: Tensor, dim: Dim = None, unbiased: bool | None = None, **options: Any) -> Tensor:
    """The standard deviation: the root of `var`."""
    return var(input, dim, unbiased, **options).sqrt()


@_of_masked
def logsumexp(
    input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """log(sum(exp(x))) of what the mask keeps; -inf of nothing."""
    kind = dtype or input.dtype
    return _filled(input, mask, _nothing).logsumexp(_dims(input, dim), keepdim).to(kind)


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: DType | None = None,
    input_mask: Mask = None,
    other_mask: Mask = None,
) -> Tensor:
    """log(exp(input) + exp(other)), where what is masked out counts as -inf."""
    kind = dtype or input.dtype
    return _logaddexp(_filled(input, input_mask, _least), _filled(other, other_mask, _least)).to(kind)


# -- along one dimension -----------------------------------------------------------------------------


def _along(name: str, identity: Any, summary: str) -> Any:
    def function(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Mask = None) -> Tensor:
        kind = dtype or input.dtype
        filled = _filled(input.to(kind), mask, identity)
        return getattr(filled, name)(dim, dtype=kind)

    function.__name__ = name
    function.__doc__ = f"{summary} along `dim`, of what the mask keeps."
    return _of_masked(function)


cumsum = _along("cumsum", 0, "Running sums")
cumprod = _along("cumprod", 1, "Running products")
softmax = _along("softmax", _least, "exp(x) / sum(exp(x))")
log_softmax = _along("log_softmax", _least, "log(softmax(x))")


@_of_masked
def softmin(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Mask = None) -> Tensor:
    """softmax(-x) along `dim`, of what the mask keeps."""
    return softmax(-input, dim, dtype=dtype, mask=mask)


@_of_masked
def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """x / max(norm(x), eps) along `dim`, of what the mask keeps; 0 where nothing is kept."""
    input = input if dtype is None else input.to(dtype)
    size = norm(input, ord, dim, keepdim=True, mask=mask)
    return _filled(input, mask, 0) / size.clamp(min=eps)

"""Reductions over dimensions: sums, means, extrema and others."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...core.tensor import Tensor
from ..dispatch.declare import composite, op, primitive
from ..dispatch.samples import along, reductions
from ..dispatch.tensor_function import require_flag, tensor_function

Dim = int | Sequence[int] | None


def wrap_dims(name: str, dim: Any, ndim: int) -> Dim:
    """`dim` as None, an int or a tuple of different ints, non-negative and in range."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return None
    if not isinstance(dim, (tuple, list)):
        return wrap_dim(name, dim, ndim)
    dims = tuple([wrap_dim(name, d, ndim) for d in dim])
    if len(set(dims)) < len(dims):
        repeated = next(d for d in dims if dims.count(d) > 1)
        raise RuntimeError(f"{name}(): dim {repeated} appears multiple times in the list of dims {list(dim)}")
    return dims


def wrap_dim(name: str, dim: Any, ndim: int) -> int:
    """A dimension counted from the front; `IndexError` when out of range."""
    if dim.__class__ is int and -ndim <= dim < ndim:
        return dim if dim >= 0 else dim + ndim
    limit = max(ndim, 1)
    try:
        if isinstance(dim, bool):
            raise TypeError
        index = operator.index(dim)
    except TypeError:
        raise TypeError(f"{name}(): argument 'dim' must be int, not {type(dim).__name__}") from None
    if not -limit <= index < limit:
        raise IndexError(
            f"{name}(): Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {index})"
        )
    return index % limit


def reduced(name: str) -> Any:
    """`adapt` of the reduction `name`: the dims made non-negative, or an error that names the op."""

    def adapt(input: Tensor, dim: Any = None, keepdim: bool = False, *dtype: Any) -> tuple[Any, ...]:
        if keepdim is not True and keepdim is not False:
            require_flag(name, "keepdim", keepdim)
        ndim = input._array.ndim
        if dim.__class__ is int and -ndim <= dim < ndim:
            return input, dim if dim >= 0 else dim + ndim, keepdim, *dtype
        # A 0-dimensional tensor accepts dim 0 and -1, which reduce nothing.
        dims = wrap_dims(name, dim, ndim)
        return input, None if ndim == 0 else dims, keepdim, *dtype

    return adapt


def require_elements(name: str, input: Tensor, dim: Dim, error: type[Exception] = RuntimeError) -> None:
    """An error when what is reduced over has no elements, and the reduction no identity. `dim`: wrapped."""
    if input._array.size:
        return
    if dim is None:
        raise error(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0, got a tensor of shape "
            f"{list(input.shape)}. Specify the reduction dim with the 'dim' argument."
        )
    for d in (dim,) if isinstance(dim, int) else dim:
        if input.shape[d] == 0:
            raise IndexError(
                f"{name}(): Expected reduction dim {d} to have non-zero size, got shape {list(input.shape)}."
            )


def require_order(name: str, input: Tensor) -> None:
    """`NotImplementedError` for complex numbers, which have no order."""
    if input._array.dtype.kind == "c":
        raise NotImplementedError(
            f"{name}(): not implemented for '{input.dtype.scalar_type}': complex numbers have no order"
        )


def _nonempty(name: str, error: type[Exception] = RuntimeError) -> Any:
    """`adapt` of a reduction that has no identity."""
    adapt = reduced(name)

    def adapt_nonempty(input: Tensor, dim: Any = None, keepdim: bool = False) -> tuple[Any, ...]:
        adapted = adapt(input, dim, keepdim)
        require_order(name, input)
        require_elements(name, input, adapted[1], error)
        return adapted

    return adapt_nonempty


def restore(F: Any, g: Any, shape: Any, dim: Dim, keepdim: bool) -> Any:
    """`g` with the reduced dimensions back as length 1."""
    if dim is None or keepdim:
        return F.reshape(g, (1,) * len(shape)) if dim is None else g
    dims = (dim,) if isinstance(dim, int) else dim
    return F.reshape(g, tuple(1 if i in dims else n for i, n in enumerate(shape)))


def spread(F: Any, g: Any, shape: Any, dim: Dim, keepdim: bool) -> Any:
    """`g` at every place that was reduced."""
    if dim is None:
        return F.expand(g, shape)
    return F.expand(restore(F, g, shape, dim, keepdim), shape)


def per_root(F: Any, g: Any, root: Any) -> Any:
    """g / root, and 0 where the root is 0, so that a norm or deviation of 0 has the subgradient 0, not nan."""
    return g / F.where(root == 0, F.full_like(root, math.inf), root)


def over(function: Any) -> Any:
    """A NumPy reduction as a reference, with PyTorch's names of the arguments."""
    return lambda x, dim=None, keepdim=False: function(x, axis=dim, keepdims=keepdim)


def _overload(name: str) -> Any:
    """What PyTorch calls the node of a reduction over all dimensions, or over some."""
    return lambda dim: f"{name}Backward{int(dim is not None)}"


@primitive(
    grads={"input": lambda F, g, input_shape, dim, keepdim: spread(F, g, input_shape, dim, keepdim)},
    adapt=reduced("sum"),
    samples=reductions,
    reference=over(np.sum),
    grad_name=_overload("Sum"),
)
def sum(F: Any, input: Tensor, dim: Dim = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The sum over `dim` (all by default). Integers are summed as int64."""
    ...


def count(shape: Any, dim: Dim) -> int:
    """How many elements each reduction over `dim` takes."""
    dims = range(len(shape)) if dim is None else (dim,) if isinstance(dim, int) else dim
    return math.prod([shape[d] for d in dims])


def widened(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The NumPy dtype in which sums of `dtype` are taken: float32 for the floats of 16 bits."""
    return dtypes.float32.numpy if dtype in dtypes.NARROW else dtype


def _adapt_mean(input: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> tuple[Any, ...]:
    kind = input.dtype if dtype is None else dtypes.of(dtype)
    if kind.category < 2:
        raise RuntimeError(
            f"mean(): could not infer output dtype. {'Input' if dtype is None else 'Optional'} dtype must be either a "
            f"floating point or complex dtype. Got: {kind.scalar_type}. Use x.float().mean() or mean(dtype=torch.float32)."
        )
    return reduced("mean")(input, dim, keepdim, dtype)


@op(
    grads={
        "input": lambda F, g, input_shape, dim, keepdim: spread(
            F, g / count(input_shape, dim), input_shape, dim, keepdim
        )
    },
    adapt=_adapt_mean,
    samples=reductions,
    reference=over(np.mean),
    grad_name=_overload("Mean"),
)
def mean(F: Any, input: Tensor, dim: Dim = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The mean over `dim` (all by default), in `dtype` if given."""
    kind: Any = input.dtype if dtype is None else dtypes.numpy_of(dtype)
    wide = widened(kind)
    total = F.sum(input, dim, keepdim, None if wide == input.dtype else wide)
    return F.cast(F.asarray(total / count(input.shape, dim)), kind)


def _prod_rule(F: Any, g: Any, input: Any, dim: int | None, keepdim: bool) -> Any:
    shape = tuple(input.shape)
    if dim is None:
        return F.reshape(g * products_of_others(F, F.reshape(input, (-1,)), 0), shape)
    return restore(F, g, shape, dim, keepdim) * products_of_others(F, input, dim)


def products_before(F: Any, x: Any, dim: int) -> Any:
    """The product of the elements before each along `dim`; 1 for the first."""
    first = F.narrow(x, dim, 0, 1)
    return F.cumprod(F.cat([F.full_like(first, 1), F.narrow(x, dim, 0, x.shape[dim] - 1)], dim), dim)


def products_of_others(F: Any, x: Any, dim: int) -> Any:
    """The product of all other elements along `dim`, without a division, so that zeros are no special case."""
    if x.shape[dim] == 0:
        return x
    after = F.flip(products_before(F, F.flip(x, (dim,)), dim), (dim,))
    return products_before(F, x, dim) * after


def _adapt_prod(input: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> tuple[Any, ...]:
    if dim is not None:
        dim = wrap_dim("prod", dim, input.ndim)
    return *reduced("prod")(input, dim, keepdim), dtype


@primitive(
    grads={"input": _prod_rule},
    adapt=_adapt_prod,
    samples=along,
    reference=over(np.prod),
    grad_name=_overload("Prod"),
)
def prod(F: Any, input: Tensor, dim: int | None = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The product over `dim` (all by default). Integers are multiplied as int64."""
    ...


@op(
    grads={
        "input": lambda F, g, input, dim, keepdim: F.where(
            F.isnan(input), F.full_like(input, 0), spread(F, g, tuple(input.shape), dim, keepdim)
        )
    },
    adapt=reduced("nansum"),
    samples=reductions,
    reference=over(np.nansum),
)
def nansum(F: Any, input: Tensor, dim: Dim = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The sum over `dim` (all by default) of the elements that are not nan."""
    return F.sum(F.nan_to_num(input, 0.0, math.inf, -math.inf), dim, keepdim, dtype)


def extremum_rule(F: Any, g: Any, out: Any, input: Any, dim: Dim, keepdim: bool) -> Any:
    """The gradient shared evenly by all places that hold the extremum."""
    shape = tuple(input.shape)
    mask = F.cast(input == restore(F, out, shape, dim, keepdim), g.dtype)
    return restore(F, g, shape, dim, keepdim) * (
        mask / F.sum(mask, dim, True) if dim is not None else mask / F.sum(mask)
    )


@primitive(
    grads={"input": extremum_rule}, adapt=_nonempty("amax"), samples=reductions, reference=over(np.max)
)
def amax(F: Any, input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """The largest element over `dim` (all by default)."""
    ...


@primitive(
    grads={"input": extremum_rule}, adapt=_nonempty("amin"), samples=reductions, reference=over(np.min)
)
def amin(F: Any, input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """The smallest element over `dim` (all by default)."""
    ...


def _adapt_position(name: str) -> Any:
    adapt = _nonempty(name, IndexError)

    def adapt_position(input: Tensor, dim: Any = None, keepdim: bool = False) -> tuple[Any, ...]:
        if input._array.dtype.kind == "b":
            raise RuntimeError(f"{name}(): does not support bool input. Use x.to(torch.uint8).")
        return adapt(input, None if dim is None else wrap_dim(name, dim, input._array.ndim), keepdim)

    return adapt_position


@primitive(adapt=_adapt_position("argmax"), samples=along, reference=over(np.argmax))
def argmax(F: Any, input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the first largest element along `dim` (of the flattened tensor by default)."""
    ...


@primitive(adapt=_adapt_position("argmin"), samples=along, reference=over(np.argmin))
def argmin(F: Any, input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the first smallest element along `dim` (of the flattened tensor by default)."""
    ...


def _adapt_logical(name: str) -> Any:
    """`adapt` of `any` and `all`, for which an empty tuple of dims means none of them."""

    def adapt(input: Tensor, dim: Any = None, keepdim: bool = False) -> tuple[Any, ...]:
        if isinstance(dim, (tuple, list)) and not dim:
            return input, (), keepdim
        return reduced(name)(input, dim, keepdim)

    return adapt


@primitive(adapt=_adapt_logical("any"), samples=reductions, reference=over(np.any))
def any(F: Any, input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """True where at least one element over `dim` is non-zero. The result is bool, for uint8 it is uint8."""
    ...


@primitive(adapt=_adapt_logical("all"), samples=reductions, reference=over(np.all))
def all(F: Any, input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """True where all elements over `dim` are non-zero. The result is bool, for uint8 it is uint8."""
    ...


@op(
    adapt=lambda input, dim=None: reduced("count_nonzero")(input, dim)[:2],
    samples=lambda rng: [((rng.integers(0, 2, (2, 3, 4)), *d), {}) for d in ((), (1,), ((0, -1),))],
    reference=lambda x, dim=None: np.count_nonzero(x, axis=dim),
)
def count_nonzero(F: Any, input: Tensor, dim: Dim = None) -> Tensor:
    """How many elements over `dim` (all by default) are not zero, as int64."""
    return F.sum(input != 0, dim)


def _finite(F: Any, x: Any) -> Any:
    """`x` with 0 for the infinities and nan, from which nothing can be subtracted."""
    return F.where(F.isfinite(x), x, F.full_like(x, 0))


def _without_lowest(F: Any, x: Any) -> Any:
    """`x` with 0 for minus infinity, from which nothing can be subtracted; nan and infinity must reach the gradient."""
    return F.where(x == -math.inf, F.full_like(x, 0), x)


@op(
    grads={
        "input": lambda F, g, out, input, dim, keepdim: (
            restore(F, g, tuple(input.shape), dim, keepdim)
            * F.exp(input - restore(F, _without_lowest(F, out), tuple(input.shape), dim, keepdim))
        )
    },
    adapt=reduced("logsumexp"),
    promotion="float",
    samples=lambda rng: [s for s in reductions(rng) if len(s[0]) > 1],
    reference=lambda x, dim=None, keepdim=False: np.log(np.sum(np.exp(x), axis=dim, keepdims=keepdim)),
)
def logsumexp(F: Any, input: Tensor, dim: Dim, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over `dim`, without overflow."""
    if not input.size:
        return F.log(F.sum(F.exp(input), dim, keepdim))
    top = _finite(F, F.amax(input.real, dim, True))
    out = F.log(F.sum(F.exp(input - top), dim, True)) + top
    return out if keepdim else F.squeeze(out, (dim,) if isinstance(dim, int) else dim)


@composite
def sum_to(F: Any, input: Any, shape: Any) -> Any:
    """Undo broadcasting: sum over what was added or stretched to get from `shape` to `input`'s."""
    lead = len(input.shape) - len(shape)
    dims = tuple(range(lead)) + tuple(
        i + lead for i, n in enumerate(shape) if n == 1 and input.shape[i + lead] != 1
    )
    out = F.sum(input, dims, True) if dims else input
    return F.reshape(out, tuple(shape)) if lead else out


@tensor_function()
def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """Summed over what broadcasting added to get from `size` to the shape of `input`."""
    if not size:
        raise TypeError('sum_to_size() missing 1 required positional arguments: "size"')
    sizes = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    lead = input.ndim - len(sizes)
    if lead < 0 or builtins.any(n not in (1, m) for n, m in zip(sizes, input.shape[lead:], strict=True)):
        raise RuntimeError(
            f"sum_to_size(): size {list(sizes)} is not expandable to size {list(input.shape)}."
        )
    return sum_to(input, sizes) if sizes else sum(input)

"""Reductions: ops that bring dimensions together."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._tensor import Tensor
from .declare import composite, op, primitive
from .samples import along, reductions

Dim = int | tuple[int, ...] | None


def _dims(name: str, dim: Any, ndim: int) -> Dim:
    """`dim` as None, an int or a tuple of ints, all non-negative and in range."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return None
    if isinstance(dim, (tuple, list)):
        return tuple(wrap_dim(name, d, ndim) for d in dim)
    return wrap_dim(name, dim, ndim)


def wrap_dim(name: str, dim: Any, ndim: int) -> int:
    """A dimension counted from the front; `IndexError` when out of range."""
    limit = max(ndim, 1)
    index = int(dim)
    if not -limit <= index < limit:
        raise IndexError(
            f"{name}(): Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {index})"
        )
    return index % limit


def _adapt(name: str) -> Any:
    """`adapt` of a reduction: the dims made non-negative, or an error that names the op."""

    def adapt(input: Tensor, dim: Any = None, keepdim: bool = False, *dtype: Any) -> tuple[Any, ...]:
        # A 0-dimensional tensor accepts dim 0 and -1, which reduce nothing.
        dims = _dims(name, dim, input.ndim)
        return input, None if input.ndim == 0 else dims, keepdim, *dtype

    return adapt


def _restore(F: Any, g: Any, shape: Any, dim: Dim, keepdim: bool) -> Any:
    """`g` with the reduced dimensions back as length 1."""
    if dim is None or keepdim:
        return F.reshape(g, (1,) * len(shape)) if dim is None else g
    dims = (dim,) if isinstance(dim, int) else dim
    return F.reshape(g, tuple(1 if i in dims else n for i, n in enumerate(shape)))


def _spread(F: Any, g: Any, shape: Any, dim: Dim, keepdim: bool) -> Any:
    """`g` at every place that was reduced."""
    return F.expand(_restore(F, g, shape, dim, keepdim), shape)


def _np_dtype_free(function: Any) -> Any:
    return lambda x, dim=None, keepdim=False: function(x, axis=dim, keepdims=keepdim)


@primitive(
    grads={"input": lambda F, g, input_shape, dim, keepdim: _spread(F, g, input_shape, dim, keepdim)},
    adapt=_adapt("sum"),
    samples=reductions,
    reference=_np_dtype_free(np.sum),
)
def sum(F: Any, input: Tensor, dim: Dim = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The sum over `dim` (all by default). Integers are summed as int64."""
    ...


def _count(shape: Any, dim: Dim) -> int:
    dims = range(len(shape)) if dim is None else (dim,) if isinstance(dim, int) else dim
    return int(np.prod([shape[d] for d in dims]))


def _adapt_mean(input: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> tuple[Any, ...]:
    if dtype is None and input.dtype.category < 2:
        raise RuntimeError(
            f"mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
            f"Got: {input.dtype.name}. Use x.float().mean() or mean(dtype=torch.float32)."
        )
    return _adapt("mean")(input, dim, keepdim, dtype)


@primitive(
    grads={
        "input": lambda F, g, input_shape, dim, keepdim: _spread(
            F, g / _count(input_shape, dim), input_shape, dim, keepdim
        )
    },
    adapt=_adapt_mean,
    samples=reductions,
    reference=_np_dtype_free(np.mean),
)
def mean(F: Any, input: Tensor, dim: Dim = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The mean over `dim` (all by default)."""
    ...


def _prod_rule(F: Any, g: Any, input: Any, dim: Dim, keepdim: bool) -> Any:
    """The product of all the others, by products from both ends, so that zeros are no special case."""
    if dim is None:
        flat = F.reshape(input, (-1,))
        return F.reshape(g * _products_of_others(F, flat, 0), tuple(input.shape))
    return _restore(F, g, input.shape, dim, keepdim) * _products_of_others(F, input, dim)


def _products_of_others(F: Any, x: Any, dim: Any) -> Any:
    n = x.shape[dim]
    if n == 0:
        return x
    parts = [F.narrow(x, dim, i, 1) for i in range(n)]
    before = [F.full_like(parts[0], 1)]
    after = [F.full_like(parts[0], 1)]
    for i in range(n - 1):
        before.append(before[-1] * parts[i])
        after.append(after[-1] * parts[n - 1 - i])
    return F.cat([b * a for b, a in zip(before, reversed(after), strict=True)], dim)


@primitive(
    grads={"input": _prod_rule}, adapt=_adapt("prod"), samples=along, reference=_np_dtype_free(np.prod)
)
def prod(F: Any, input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The product over `dim` (all by default). Integers are multiplied as int64."""
    ...


def _extremum_rule(F: Any, g: Any, out: Any, input: Any, dim: Dim, keepdim: bool) -> Any:
    """The gradient shared evenly by all places that hold the extremum."""
    shape = tuple(input.shape)
    mask = F.cast(input == _restore(F, out, shape, dim, keepdim), g.dtype)
    return _restore(F, g, shape, dim, keepdim) * (
        mask / F.sum(mask, dim, True) if dim is not None else mask / F.sum(mask)
    )


@primitive(
    grads={"input": _extremum_rule},
    adapt=_adapt("amax"),
    samples=reductions,
    reference=_np_dtype_free(np.max),
)
def amax(F: Any, input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """The largest element over `dim` (all by default)."""
    ...


@primitive(
    grads={"input": _extremum_rule},
    adapt=_adapt("amin"),
    samples=reductions,
    reference=_np_dtype_free(np.min),
)
def amin(F: Any, input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """The smallest element over `dim` (all by default)."""
    ...


@primitive(adapt=_adapt("argmax"), samples=along, reference=_np_dtype_free(np.argmax))
def argmax(F: Any, input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the first largest element along `dim` (of the flattened tensor by default)."""
    ...


@primitive(adapt=_adapt("argmin"), samples=along, reference=_np_dtype_free(np.argmin))
def argmin(F: Any, input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the first smallest element along `dim` (of the flattened tensor by default)."""
    ...


@primitive(adapt=_adapt("any"), samples=reductions, reference=_np_dtype_free(np.any))
def any(F: Any, input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """True where at least one element over `dim` is non-zero."""
    ...


@primitive(adapt=_adapt("all"), samples=reductions, reference=_np_dtype_free(np.all))
def all(F: Any, input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """True where all elements over `dim` are non-zero."""
    ...


@primitive(
    grads={"input": lambda F, g, dim: F.flip(F.cumsum(F.flip(g, (dim,)), dim), (dim,))},
    adapt=lambda input, dim: (input, wrap_dim("cumsum", dim, input.ndim)),
    samples=along,
    reference=lambda x, dim: np.cumsum(x, axis=dim),
    inplace=True,
)
def cumsum(F: Any, input: Tensor, dim: int) -> Tensor:
    """Running sum along `dim`. Integers are summed as int64."""
    ...


def _np_logsumexp(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return np.log(np.sum(np.exp(x), axis=dim, keepdims=keepdim))


@op(
    grads={
        "input": lambda F, g, out, input, dim, keepdim: (
            _restore(F, g, tuple(input.shape), dim, keepdim)
            * F.exp(input - _restore(F, out, tuple(input.shape), dim, keepdim))
        )
    },
    adapt=_adapt("logsumexp"),
    promotion="float",
    samples=lambda rng: [s for s in reductions(rng) if len(s[0]) > 1],
    reference=_np_logsumexp,
)
def logsumexp(F: Any, input: Tensor, dim: Dim, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over `dim`, without overflow."""
    top = F.amax(input, dim, True)
    top = F.where(F.isfinite(top), top, F.full_like(top, 0))
    out = F.log(F.sum(F.exp(input - top), dim, True)) + top
    return out if keepdim else F.squeeze(out, (dim,) if isinstance(dim, int) else dim)


def _degrees_of_freedom(shape: Any, dim: Dim, correction: float) -> float:
    """What the squares are divided by; nan where nothing is left, as in the variance of one number."""
    count = _count(shape, dim) - correction
    return count if count > 0 else float("nan")


def _var_rule(F: Any, g: Any, input: Any, dim: Dim, correction: int, keepdim: bool) -> Any:
    shape = tuple(input.shape)
    centred = input - F.mean(input, dim, True) if dim is not None else input - F.mean(input)
    scale = 2.0 / _degrees_of_freedom(shape, dim, correction)
    return _restore(F, g, shape, dim, keepdim) * centred * scale


def _adapt_var(
    input: Tensor, dim: Any = None, correction: Any = 1, keepdim: bool = False, unbiased: bool | None = None
) -> tuple[Any, ...]:
    if isinstance(dim, bool):  # var(unbiased) of old programs
        dim, correction = None, int(dim)
    if isinstance(correction, bool):
        correction = int(correction)
    if unbiased is not None:
        correction = int(unbiased)
    if input.dtype.category < 2:
        raise RuntimeError(
            f"std and var only support floating point and complex dtypes, got {input.dtype.name}. Use x.float()."
        )
    dims = _dims("var", dim, input.ndim)
    return input, None if input.ndim == 0 else dims, correction, keepdim, unbiased


@op(
    grads={"input": _var_rule},
    adapt=_adapt_var,
    samples=lambda rng: [(a, k) for a, k in reductions(rng)],
    reference=lambda x, dim=None, keepdim=False: np.var(x, axis=dim, keepdims=keepdim, ddof=1),
)
def var(
    F: Any,
    input: Tensor,
    dim: Dim = None,
    correction: int = 1,
    keepdim: bool = False,
    unbiased: bool | None = None,
) -> Tensor:
    """The variance over `dim`, with `correction` degrees of freedom taken off."""
    centred = input - F.mean(input, dim, True)
    return F.sum(centred * centred, dim, keepdim) / _degrees_of_freedom(input.shape, dim, correction)


def _per_root(F: Any, g: Any, root: Any) -> Any:
    """g / root, and 0 where the root is 0, so that a norm or deviation of 0 has the subgradient 0, not nan."""
    return g / F.where(root == 0, F.full_like(root, float("inf")), root)


def _std_rule(F: Any, g: Any, out: Any, input: Any, dim: Dim, correction: int, keepdim: bool) -> Any:
    return _var_rule(F, _per_root(F, g, out) * 0.5, input, dim, correction, keepdim)


@op(
    grads={"input": _std_rule},
    adapt=_adapt_var,
    samples=reductions,
    reference=lambda x, dim=None, keepdim=False: np.std(x, axis=dim, keepdims=keepdim, ddof=1),
)
def std(
    F: Any,
    input: Tensor,
    dim: Dim = None,
    correction: int = 1,
    keepdim: bool = False,
    unbiased: bool | None = None,
) -> Tensor:
    """The square root of the variance over `dim`, with `correction` degrees of freedom taken off."""
    centred = input - F.mean(input, dim, True)
    return F.sqrt(F.sum(centred * centred, dim, keepdim) / _degrees_of_freedom(input.shape, dim, correction))


@op(
    grads={
        "input": lambda F, g, out, input, dim, keepdim: (
            input * _restore(F, _per_root(F, g, out), tuple(input.shape), dim, keepdim)
        )
    },
    adapt=_adapt("norm"),
    samples=reductions,
    reference=lambda x, dim=None, keepdim=False: np.sqrt(np.sum(x * x, axis=dim, keepdims=keepdim)),
    method=False,
    grad_name="LinalgVectorNormBackward0",
)
def euclidean_norm(F: Any, input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """The 2-norm over `dim` (all by default)."""
    return F.sqrt(F.sum(input * input, dim, keepdim))


@composite
def sum_to(F: Any, input: Any, shape: Any) -> Any:
    """Undo broadcasting: sum over what was added or stretched to get from `shape` to `input`'s."""
    lead = len(input.shape) - len(shape)
    dims = tuple(range(lead)) + tuple(
        i + lead for i, n in enumerate(shape) if n == 1 and input.shape[i + lead] != 1
    )
    out = F.sum(input, dims, True) if dims else input
    return F.reshape(out, tuple(shape)) if lead else out

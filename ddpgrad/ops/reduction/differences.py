"""Finite differences, numerical gradients, and integrals by the trapezoidal rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...backend import dtype as dtypes
from ...core.tensor import Tensor
from ..dispatch.tensor_function import tensor_function
from ..elementwise import binary, unary
from ..shape import shape, stacking
from . import reduce
from .reduce import wrap_dim
from .scan import cumsum


@tensor_function(out=True)
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The `n`-th differences of neighbours along `dim`, after `prepend` and `append` are joined on; bools: which differ."""
    if not input.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    dim = wrap_dim("diff", dim, input.ndim)
    if n == 0:
        return unary.clone(input)
    parts = [part for part in (prepend, input, append) if part is not None]
    for part in parts:
        if part.ndim != input.ndim:
            raise RuntimeError(
                f"diff expects prepend or append to be the same dimension as input, got {part.ndim} and {input.ndim}"
            )
        if any(d != dim and n != m for d, (n, m) in enumerate(zip(part.shape, input.shape, strict=True))):
            raise RuntimeError(
                "diff expects the shape of tensor to prepend or append to match that of input except along the "
                f"differencing dimension; got {list(part.shape)} and {list(input.shape)} with dim {dim}"
            )
    out = stacking.cat(parts, dim) if len(parts) > 1 else input
    for _ in range(min(n, out.shape[dim])):
        left = out.shape[dim] - 1
        after, before = shape.narrow(out, dim, 1, left), shape.narrow(out, dim, 0, left)
        out = binary.logical_xor(after, before) if out.dtype is dtypes.bool_ else after - before
    return out


def _at(x: Tensor, dim: int, start: int, stop: int) -> Tensor:
    """Elements start to stop along `dim`, counted from the end where negative."""
    n = x.shape[dim]
    start, stop = start % n, (stop - 1) % n + 1
    return shape.narrow(x, dim, start, stop - start)


def _as_column(x: Tensor, dim: int, ndim: int) -> Tensor:
    """A vector in dimension `dim` of `ndim`."""
    return shape.reshape(x, tuple(-1 if d == dim else 1 for d in range(ndim)))


@tensor_function(method=False)
def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """The derivative of samples along each of `dim` (all by default), by second-order central differences.

    spacing: the distance of samples, one number or one for each dim, or their coordinates, a
    vector for each dim. edge_order: of the one-sided differences at both ends, 1 or 2. See
    B. Fornberg, Generation of Finite Difference Formulas, Math. Comp. 51 (1988).
    """
    dims = list(range(input.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    dims = [wrap_dim("gradient", d, input.ndim) for d in dims]
    if len(set(dims)) < len(dims):
        repeated = next(d for d in dims if dims.count(d) > 1)
        raise RuntimeError(f"gradient(): dim {repeated} appears multiple times in the list of dims {dims}")
    if edge_order not in (1, 2):
        raise RuntimeError(f"torch.gradient only supports edge_order=1 and edge_order=2, got {edge_order}")
    if spacing is None:
        spacing = 1
    spacings = list(spacing) if isinstance(spacing, (tuple, list)) else [spacing] * len(dims)
    if len(spacings) != len(dims):
        raise RuntimeError(
            f"torch.gradient expected spacing to be unspecified, a scalar or a list of length {len(dims)}, got "
            f"{len(spacings)}"
        )
    if input.dtype is dtypes.uint8:
        raise RuntimeError("torch.gradient does not support uint8 input")
    for d, h in zip(dims, spacings, strict=True):
        if input.shape[d] <= edge_order:
            raise RuntimeError(
                f"torch.gradient expected each dimension size to be at least edge_order+1, got {list(input.shape)}"
            )
        if isinstance(h, Tensor) and (h.ndim != 1 or h.shape[0] != input.shape[d]):
            raise RuntimeError(
                f"torch.gradient expected each coordinate tensor to be 1-dimensional with {input.shape[d]} elements, got "
                f"{list(h.shape)}"
            )
    return tuple(_derivative(input, d, h, edge_order) for d, h in zip(dims, spacings, strict=True))


def _derivative(f: Tensor, dim: int, spacing: Any, edge_order: int) -> Tensor:
    if isinstance(spacing, Tensor):
        steps = _as_column(diff(spacing), dim, f.ndim)
        first, last = _at(steps, dim, 0, 1), _at(steps, dim, -1, 0)
    else:
        steps = first = last = spacing
    left = _edge(f, dim, (0, 1, 2), first, _second(steps, dim, 1), edge_order)
    # Read from the end, steps are negative.
    right = _edge(f, dim, (-1, -2, -3), -last, _second(steps, dim, -2, -1), edge_order)
    if f.shape[dim] == 2:
        return stacking.cat([left, right], dim)
    before, here, after = _at(f, dim, 0, -2), _at(f, dim, 1, -1), _at(f, dim, 2, 0)
    if isinstance(steps, Tensor):
        a, b = _at(steps, dim, 0, -1), _at(steps, dim, 1, 0)
        inner = before * (-b / (a * (a + b))) + here * ((b - a) / (a * b)) + after * (a / (b * (a + b)))
    else:
        inner = (after - before) / (2 * steps)
    return stacking.cat([left, inner, right], dim)


def _second(steps: Any, dim: int, place: int, sign: int = 1) -> Any:
    """The step after the one at the edge."""
    if not isinstance(steps, Tensor):
        return steps * sign
    n = steps.shape[dim]
    return shape.narrow(steps, dim, place % n, 1) * sign


def _edge(f: Tensor, dim: int, places: Sequence[int], a: Any, b: Any, order: int) -> Tensor:
    """The derivative at the first of `places`, from steps a to the second and b to the third."""
    x = [shape.narrow(f, dim, p % f.shape[dim], 1) for p in places[: order + 1]]
    if order == 1:
        return (x[1] - x[0]) / a
    return x[0] * (-(2 * a + b) / (a * (a + b))) + x[1] * ((a + b) / (a * b)) - x[2] * (a / (b * (a + b)))


def _trapezoids(y: Tensor, x: Any, dx: Any, dim: int, name: str) -> Tensor:
    """The areas between neighbours, without the factor 1/2."""
    left = max(y.shape[dim] - 1, 0)
    sums = shape.narrow(y, dim, min(1, y.shape[dim]), left) + shape.narrow(y, dim, 0, left)
    if x is None:
        return sums * dx
    along = dim if x.ndim == y.ndim else x.ndim - 1 if x.ndim == 1 else dim - (y.ndim - x.ndim)
    if x.shape[along] != y.shape[dim]:
        raise RuntimeError(
            f"{name}: There must be one `x` value for each sample point, got {list(x.shape)} and {list(y.shape)}"
        )
    steps = diff(x, dim=along)
    return sums * (_as_column(steps, dim, y.ndim) if x.ndim == 1 else steps)


def _sample_points(y: Tensor, x: Any, dx: Any, dim: int, name: str) -> Tensor:
    if y.dtype is dtypes.bool_ or (isinstance(x, Tensor) and x.dtype is dtypes.bool_):
        raise RuntimeError(f"{name}: received a bool input for `x` or `y`, but bool is not supported")
    if isinstance(dx, Tensor) and not dx.ndim:
        dx = dx.item()
    if not isinstance(dx, (int, float, complex)):
        raise RuntimeError(f"{name}: Currently, we only support dx as a real number, got {type(dx).__name__}")
    return _trapezoids(y, x, dx, wrap_dim(name, dim, y.ndim), name)


@tensor_function(method=False, aliases=("trapz",))
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The integral along `dim` by the trapezoidal rule, over coordinates `x` or steps of `dx` (1 by default)."""
    areas = _sample_points(y, x, 1 if dx is None else dx, dim, "trapezoid")
    return reduce.sum(areas, dim) / 2


@tensor_function(method=False)
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The running integral along `dim` by the trapezoidal rule, one element shorter than `y`."""
    areas = _sample_points(y, x, 1 if dx is None else dx, dim, "cumulative_trapezoid")
    return cumsum(areas, dim) / 2

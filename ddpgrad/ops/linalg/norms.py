"""Norms, ranks, condition numbers, pseudo-inverses and least squares: the public functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...core import return_types
from ...core.tensor import Tensor
from ..dispatch.autocast import in_float32
from ..dispatch.declare import op
from ..dispatch.samples import reductions
from ..dispatch.tensor_function import tensor_function
from ..dispatch.vocabulary import VOCABULARY as F
from ..reduction.reduce import per_root, widened, wrap_dim
from ..shape import shape
from . import inverse_ops, matrix
from .decompositions import linalg_eigvalsh, linalg_svdvals
from .systems import linalg_inv_ex, require_float, require_matrix, require_square

Dim = int | Sequence[int] | None


# -- vectors ---------------------------------------------------------------------------------------


def _or_zero(F: Any, condition: Any, value: Any) -> Any:
    return F.where(condition, F.full_like(value, 0), value)


def _restored(F: Any, x: Any, shape: Any, dim: tuple[int, ...], keepdim: bool) -> Any:
    """x with the reduced dimensions back as length 1."""
    return x if keepdim else F.reshape(x, tuple(1 if i in dim else n for i, n in enumerate(shape)))


def _vector_norm_rule(
    F: Any, g: Any, out: Any, x: Any, ord: float, dim: tuple[int, ...], keepdim: bool
) -> Any:
    """The subgradient of least norm where there is no gradient, as at 0."""
    g, out = (_restored(F, v, tuple(x.shape), dim, keepdim) for v in (g, out))
    if ord == 0:
        return F.full_like(x, 0)
    if ord == 1:
        return F.sgn(x) * g
    nothing = out == 0
    if ord == 2:
        return x * per_root(F, g, out)
    size = F.abs(x)
    if math.isinf(ord):
        where = F.cast(size == out, out.dtype)
        return F.sgn(x) * where * (g / F.sum(where, dim, True))
    if ord < 1:
        return F.sgn(x) * _or_zero(F, size == 0, size ** (ord - 1)) * (g * out ** (1 - ord))
    return F.sgn(x) * size ** (ord - 1) * _or_zero(F, nothing, g / out ** (ord - 1))


def _np_norm(x: Any, ord: float, dim: Any, keepdim: bool = False) -> Any:
    moved = np.moveaxis(x, dim, range(-len(dim), 0))
    flat = moved.reshape(*moved.shape[: x.ndim - len(dim)], -1)
    out = np.linalg.norm(flat, ord, axis=-1)
    return np.expand_dims(out, tuple(d % x.ndim for d in dim)) if keepdim else out


@op(
    grads={"x": _vector_norm_rule},
    holomorphic=False,
    samples=lambda rng: [
        ((args[0], ord, (0, 2)), {"keepdim": ord == 1}) for args, _ in list(reductions(rng))[:1]
        for ord in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf, -math.inf, -2.0)
    ],
    reference=_np_norm,
    method=False,
    grad_name="LinalgVectorNormBackward0",
)  # fmt: skip
def vector_norm(F: Any, x: Tensor, ord: float, dim: tuple[int, ...], keepdim: bool = False) -> Tensor:
    """(sum |x|^ord)^(1 / ord) over the dimensions `dim`, of which there is at least one."""
    size: Any = x
    if ord != 2 or size.dtype.kind == "c":
        size = F.abs(x)
    wide = F.cast(size, widened(size.dtype))
    if math.isinf(ord):
        out = (F.amax if ord > 0 else F.amin)(wide, dim, keepdim)
    elif ord == 0:
        out = F.sum(F.cast(wide != 0, wide.dtype), dim, keepdim)
    elif ord == 1:
        out = F.sum(wide, dim, keepdim)
    elif ord == 2:
        out = F.sqrt(F.sum(wide * wide, dim, keepdim))
    else:
        out = F.sum(wide**ord, dim, keepdim) ** (1.0 / ord)
    return F.cast(F.asarray(out), size.dtype)


def _converted(name: str, x: Tensor, dtype: Any) -> Tensor:
    if dtype is None:
        return x
    target = dtypes.of(dtype)
    if target.is_complex != x.dtype.is_complex:
        kinds = ("complex", "real") if x.dtype.is_complex else ("real", "complex")
        raise RuntimeError(
            f"{name}: dtype should be {kinds[0]} for {kinds[0]} inputs, but got {target.name} for {x.dtype.name}"
        )
    if dtypes.promote_types(x.dtype, target) is not target:
        raise RuntimeError(f"{name}: the dtype of the input ({x.dtype.name}) should be convertible without narrowing "
                           f"to the specified dtype ({target.name})")  # fmt: skip
    return x.to(target)


def _all_dims(name: str, dim: Dim, ndim: int) -> tuple[int, ...]:
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return tuple(range(ndim))
    wrapped = tuple(wrap_dim(name, d, ndim) for d in ((dim,) if isinstance(dim, int) else dim))
    if len(set(wrapped)) < len(wrapped):
        raise RuntimeError(f"{name}: dim {dim} appears more than once in the list of dims")
    return wrapped


@tensor_function(method=False, out=True)
def linalg_vector_norm(
    x: Tensor, ord: Any = 2, dim: Dim = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The `ord`-norm of the elements over `dim` (all by default); 0 counts those that are not zero."""
    name = "linalg.vector_norm"
    if isinstance(ord, str):
        raise TypeError(f"{name}(): argument 'ord' must be Number, not str")
    require_float(name, x, low_precision=True)
    dims = _all_dims(name, dim, x.ndim)
    x = _converted(name, x, dtype)
    order = float(ord)
    if not x.ndim:
        return vector_norm(shape.reshape(x, (1,)), order, (0,))
    if order < 0 or math.isinf(order):
        for d in dims:
            if not x.shape[d]:
                raise RuntimeError(
                    f"{name} cannot compute the {ord} norm on the dimension {d} because this dimension is empty and "
                    f"the operation does not have an identity"
                )
    return vector_norm(x, order, dims, keepdim)


# -- matrices ----------------------------------------------------------------------------------------


@tensor_function(method=False, out=True)
def linalg_matrix_norm(
    A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The norm of the matrices in the dimensions `dim`: 'fro', 'nuc', inf, -inf, 1, -1, 2 or -2."""
    name = "linalg.matrix_norm"
    if isinstance(dim, int):
        raise TypeError(f"{name}(): argument 'dim' must be tuple of ints, not int")
    require_float(name, A, low_precision=True)
    if A.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions, got {list(A.shape)}")
    if len(dim) != 2:
        raise RuntimeError(f"{name}: dim must be a 2-tuple. Got {dim}")
    rows, columns = (wrap_dim(name, d, A.ndim) for d in dim)
    if rows == columns:
        raise RuntimeError(f"{name}: dims must be different. Got ({dim[0]}, {dim[1]})")
    if ord == "fro":
        return linalg_vector_norm(A, 2, (rows, columns), keepdim, dtype=dtype)
    A = _converted(name, A, dtype)
    if ord == "nuc" or (not isinstance(ord, str) and abs(ord) == 2):
        rest = [d for d in range(A.ndim) if d not in (rows, columns)]
        values = linalg_svdvals(shape.permute(A, *rest, rows, columns))
        if ord == "nuc":
            out = F.sum(values, -1, False)
        else:
            out = _extreme(ord, values, -1, False)
        if keepdim:
            for d in sorted((rows, columns)):
                out = shape.unsqueeze(out, d)
        return out
    if isinstance(ord, str) or abs(ord) not in (1, math.inf):
        raise RuntimeError(f"{name}: Order {ord} not supported.")
    inner, outer = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = linalg_vector_norm(A, 1, inner, True)
    out = _extreme(ord, sums, outer, True)
    return out if keepdim else shape.squeeze(out, (rows, columns))


def _extreme(ord: float, sizes: Tensor, dim: int, keepdim: bool) -> Tensor:
    """The largest of `sizes` along `dim`, 0 of none, or with a negative `ord` the smallest."""
    if ord < 0:
        return F.amin(sizes, dim, keepdim)
    return (F.amax if sizes.shape[dim] else F.sum)(sizes, dim, keepdim)


@tensor_function(method=False, out=True)
def linalg_norm(
    A: Tensor, ord: Any = None, dim: Dim = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """A vector norm, or with `ord` and two dimensions a matrix norm; by default the 2-norm of all elements."""
    dims = (dim,) if isinstance(dim, int) else dim
    if dims is not None and len(dims) not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}."
        )
    if ord is not None:
        count = len(dims) if dims is not None else A.ndim
        if count not in (1, 2):
            raise RuntimeError(
                f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.ndim}D."
            )
        if count == 2:
            return linalg_matrix_norm(A, ord, (0, 1) if dims is None else dims, keepdim, dtype=dtype)
        if isinstance(ord, str):
            raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {dim}")
    return linalg_vector_norm(A, 2 if ord is None else ord, dims, keepdim, dtype=dtype)


@tensor_function(method=False, out=True)
def linalg_cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number: the norm `p` of A times that of its inverse; for 2 and -2 by singular values."""
    require_matrix("linalg.cond", A)
    if p is None or p in (2, -2):
        values = linalg_svdvals(A)
        if not values.shape[-1]:
            return F.sum(values, -1, False)
        largest, smallest = values[..., 0], values[..., -1]
        return smallest / largest if p == -2 else largest / smallest
    if p not in ("fro", "nuc", 1, -1, math.inf, -math.inf):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    require_square(f"linalg.cond(ord={p})", A)
    if not A.shape[-1]:
        return F.sum(F.abs(A), (-2, -1), False)
    inverse, info = linalg_inv_ex(A)
    inverse = F.where(shape.reshape(info, (*info.shape, 1, 1)) != 0, 0, inverse)  # nan has no singular values
    product = linalg_matrix_norm(A, p) * linalg_matrix_norm(inverse, p)
    return F.where(info != 0, math.inf, product)


def _tolerances(A: Tensor, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """(atol, rtol) with PyTorch's defaults, both numbers or both (..., 1)."""
    for name, t in (("atol", atol), ("rtol", rtol)):
        if isinstance(t, Tensor) and t.is_complex():
            raise RuntimeError(f"linalg: {name} tensor of complex type is not supported")
    if rtol is None:
        default = max(A.shape[-2:]) * dtypes.finfo(A.dtype).eps
        if isinstance(atol, Tensor):
            rtol = F.where(atol > 0, 0.0, F.full_like(atol, default))
        else:
            rtol = default if atol is None or atol <= 0 else 0.0
    pair = [0.0 if t is None else t for t in (atol, rtol)]
    return tuple(shape.unsqueeze(t, -1) if isinstance(t, Tensor) else float(t) for t in pair)  # type: ignore


@tensor_function(method=False, out=True)
def linalg_matrix_rank(
    A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """How many singular values (moduli of eigenvalues, for Hermitian ones) exceed max(atol, rtol * the largest)."""
    require_matrix("linalg.matrix_rank", A)
    if tol is not None:
        atol, rtol = tol, 0.0
    A = A.detach()
    values = F.abs(linalg_eigvalsh(A)) if hermitian else linalg_svdvals(A)
    if not values.shape[-1]:
        return F.sum(values, -1, False).long()
    absolute, relative = _tolerances(A, atol, rtol)
    return F.sum(values > inverse_ops.cutoff(F, values, absolute, relative), -1, False)


@tensor_function(method=False, out=True)
def linalg_pinv(
    A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """The Moore-Penrose inverses; singular values up to max(atol, rtol * the largest) count as zero."""
    (require_square if hermitian else require_matrix)("linalg.pinv", A)
    if rcond is not None:
        if atol is not None or rtol is not None:
            raise TypeError(
                "linalg.pinv(): rcond is another name of rtol: give atol and rtol, or rcond alone"
            )
        atol, rtol = 0.0, rcond
    if not A.numel():
        return F.clone(shape.transpose(A, -2, -1))
    absolute, relative = _tolerances(A, atol, rtol)
    return inverse_ops.pseudo_inverse(A, absolute, relative, hermitian)


@tensor_function()
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The Moore-Penrose inverses."""
    return linalg_pinv(input, rcond)


def _of_batch(x: Tensor, extra: int, batch: Sequence[int]) -> Tensor:
    """Of `x`, which is the same along what matrices of shape (*batch, m, n) were broadcast to, one of each matrix."""
    if not x.numel():
        return x
    for _ in range(extra):
        x = x[0]
    for i, count in enumerate(batch):
        x = shape.narrow(x, i, 0, count)
    return x


@tensor_function(method=False, out=True, names={"b": "B"})
def linalg_lstsq(
    A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> return_types.linalg_lstsq:
    """(solution, residuals, rank, singular_values): X (..., n, k) of least norm that minimises |A @ X - B|.

    residuals: the squared ones, where A has more rows than columns and full rank, else empty.
    """
    require_matrix("torch.linalg.lstsq", A, "input")
    require_float("torch.linalg.lstsq", B)
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(
            f"torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), got {driver}"
        )
    if not B.ndim:
        raise RuntimeError("torch.linalg.lstsq: other must have at least 1 dimension")
    driver = driver or ("gels" if A.is_cuda else "gelsy")
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    rhs = shape.unsqueeze(B, -1) if vector else B
    if A.shape[-2] != rhs.shape[-2]:
        raise RuntimeError(
            f"torch.linalg.lstsq: input.size(-2) should match other.size({-1 if vector else -2}), got "
            f"{list(A.shape)} and {list(B.shape)}"
        )
    if A.dtype is not B.dtype and not (in_float32(A) and in_float32(B)):
        raise RuntimeError(
            f"torch.linalg.lstsq: Expected input and other to have the same dtype, but got {A.dtype.name} and "
            f"{B.dtype.name}"
        )
    m, n = A.shape[-2:]
    cut = dtypes.finfo(A.dtype).eps * max(m, n) if rcond is None else rcond
    solution, rank, values = inverse_ops.lstsq_solution(A, rhs, cut)
    residuals = F.real(shape.narrow(shape.reshape(solution, (-1,)), 0, 0, 0))
    empty = residuals.detach()
    if m > n and driver != "gelsy" and bool((rank == n).all()):
        difference = F.abs(matrix.matmul(A, solution) - rhs)
        residuals = F.sum(difference * difference, -2, False)
    if vector:
        solution = shape.squeeze(solution, -1)
    rank, values = (_of_batch(t, max(0, rhs.ndim - A.ndim), A.shape[:-2]) for t in (rank, values))
    return return_types.linalg_lstsq(
        solution,
        residuals,
        rank if driver != "gels" else empty.long(),
        values if driver in ("gelsd", "gelss") else empty,
    )

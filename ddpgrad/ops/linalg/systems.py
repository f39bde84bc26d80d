"""Linear systems, inverses and determinants: the public functions and their checks.

`decompositions.py` has the factorizations, `norms.py` the norms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backend.registry import backend_for
from ...core import return_types
from ...core.errors import LinAlgError
from ...core.tensor import Tensor, wrap
from ..dispatch.autocast import in_float32
from ..dispatch.tensor_function import takes_axis, tensor_function
from ..dispatch.vocabulary import VOCABULARY as F
from ..shape import shape
from . import decomposition_ops, inverse_ops, matrix
from .adjoint import is_complex
from .matrix import nothing_of

# -- checks ------------------------------------------------------------------------------------


def require_float(name: str, input: Tensor, low_precision: bool = False) -> None:
    """`RuntimeError` unless `input` is floating point or complex, and of 32 bits or more."""
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}: expected a Tensor, got {type(input).__name__}")
    if input.dtype.category < 2:
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {input.dtype.name}"
        )
    if input.dtype.itemsize < 4 and not low_precision and not in_float32(input):
        raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {input.dtype.name}")


def require_matrix(name: str, input: Tensor, argument: str = "A") -> None:
    """`RuntimeError` unless `input` is a batch of floating-point matrices."""
    if isinstance(input, Tensor) and input.ndim < 2:
        raise RuntimeError(
            f"{name}: The input tensor {argument} must have at least 2 dimensions, got {list(input.shape)}: expected a "
            "tensor with 2 or more dimensions"
        )
    require_float(name, input)


def require_square(name: str, input: Tensor, argument: str = "A") -> None:
    """`RuntimeError` unless `input` is a batch of square floating-point matrices."""
    require_matrix(name, input, argument)
    if input.shape[-1] != input.shape[-2]:
        raise RuntimeError(
            f"{name}: {argument} must be batches of square matrices, but they are {input.shape[-2]} by "
            f"{input.shape[-1]} matrices"
        )


def require_one_dtype(name: str, **operands: Tensor) -> None:
    """`RuntimeError` unless both operands have the same dtype."""
    (a, first), (b, second) = operands.items()
    if first.dtype is not second.dtype and not (in_float32(first) and in_float32(second)):
        raise RuntimeError(
            f"{name}: Expected {a} and {b} to have the same dtype, but found {a} of type {first.dtype.name} and {b} of "
            f"type {second.dtype.name} instead"
        )


def transposed(x: Tensor) -> Tensor:
    """The last two dimensions exchanged; a view."""
    return shape.transpose(x, -2, -1)


def eye_like(x: Tensor, rows: int, columns: int | None = None) -> Tensor:
    """The identity (rows, columns) in the dtype and on the device of `x`."""
    return F.cast(decomposition_ops.eye_mask(x, rows, rows if columns is None else columns), x.dtype)


# -- what failed ---------------------------------------------------------------------------------


def _failed(out: Tensor) -> Any:
    """Which matrices of a result are not finite: None, or a NumPy mask over the batch."""
    array = out._array
    backend = backend_for(array)
    if not array.size or backend.kind == "meta":
        return None
    good = backend.all(backend.isfinite(array), (-2, -1))
    good = good if backend.kind == "cpu" else backend.to_host(good)
    return None if good.all() else ~np.asarray(good)


def _zero_pivots(A: Tensor, out: Tensor) -> Tensor:
    """For each matrix the first zero on the diagonal of U, counted from 1; 0 where it is regular."""
    info = np.zeros(out.shape[:-2], np.int32)
    if _failed(out) is not None:
        diagonal = F.diagonal(decomposition_ops.lu_factor(A.detach(), True)[0], 0, -2, -1).numpy(force=True)
        first = np.where((diagonal == 0).any(-1), (diagonal == 0).argmax(-1) + 1, 0)
        info = np.array(np.broadcast_to(first, info.shape), np.int32)
    return wrap(info).to(A.device)


def failed_minors(A: Tensor, out: Tensor) -> Tensor:
    """For each matrix the order of the first leading minor that is not positive; 0 where it is positive-definite."""
    info = np.zeros(out.shape[:-2], np.int32)
    bad = _failed(out)
    if bad is not None:
        matrices = A.numpy(force=True)
        for i in zip(*np.nonzero(bad), strict=True) if info.ndim else [()]:
            info[i] = _first_failed_minor(matrices[i])
    return wrap(info).to(A.device)


def _first_failed_minor(matrix: np.ndarray) -> int:
    for k in range(1, len(matrix) + 1):
        try:
            pivot = np.linalg.cholesky(matrix[:k, :k])[-1, -1]
        except np.linalg.LinAlgError:
            return k
        if np.isnan(pivot):  # which LAPACK lets pass
            return k
    return 0


def raise_if_failed(info: Tensor, message: str) -> None:
    """`LinAlgError` for the first non-zero of `info`; {0} in the message stands for it."""
    if info.is_meta:
        return
    numbers = np.atleast_1d(info.numpy(force=True))
    if not numbers.any():
        return
    where = tuple(int(i[0]) for i in np.nonzero(numbers))
    name, _, rest = message.partition(": ")
    batch = f"(Batch element {int(np.ravel_multi_index(where, numbers.shape))}): " if info.ndim else ""
    raise LinAlgError(f"{name}: {batch}{rest.format(int(numbers[where]))}")


# -- inverses and systems ----------------------------------------------------------------------------


@tensor_function(method=False, out=True)
def linalg_inv_ex(A: Tensor, *, check_errors: bool = False) -> return_types.linalg_inv_ex:
    """(inverse, info): the inverses of square matrices, and for each 0, or which diagonal element of U is zero."""
    return _inverse("linalg.inv_ex", A, check_errors)


def _inverse(name: str, A: Tensor, check_errors: bool) -> Any:
    require_square(name, A)
    out = inverse_ops.inv(A)
    info = _zero_pivots(A, out)
    if check_errors:
        raise_if_failed(
            info,
            f"{name}: The diagonal element {{0}} is zero, the inversion could not be completed because the input "
            f"matrix is singular (A has shape {list(A.shape)}).",
        )
    return return_types.linalg_inv_ex(out, info)


@tensor_function(method=False, out=True)
def linalg_inv(A: Tensor) -> Tensor:
    """The inverses of square matrices (..., n, n); `LinAlgError` where one is singular."""
    return _inverse("linalg.inv", A, True)[0]


@tensor_function(out=True)
def inverse(input: Tensor) -> Tensor:
    """The same as `linalg.inv`."""
    return linalg_inv(input)


def _is_vector(A: Tensor, B: Tensor) -> bool:
    """Whether `B` is a batch of vectors rather than of matrices, as NumPy 1 told them apart."""
    return B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])


def _solution(name: str, A: Tensor, B: Tensor, left: bool) -> tuple[Tensor, Tensor]:
    require_square(name, A)
    require_float(name, B)
    require_one_dtype(name, A=A, B=B)
    if not B.ndim:
        raise RuntimeError(f"{name}: B must have at least 1 dimension, but it is a scalar")
    vector = _is_vector(A, B)
    if vector and not left:
        raise RuntimeError(
            f"{name}: Vector broadcasting of the left hand side is not supported for left=False. In this case "
            "linalg.solve is equivalent to B / A.squeeze(-1)"
        )
    rhs = shape.unsqueeze(B, -1) if vector else B
    rows = rhs.shape[-2 if left else -1]
    if rows != A.shape[-1]:
        equation = "AX = B" if left else "XA = B"
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {equation} ({A.shape[-2]}x{A.shape[-1]} and "
            f"{rhs.shape[-2]}x{rhs.shape[-1]})"
        )
    out = inverse_ops.solve(A, rhs) if left else transposed(inverse_ops.solve(transposed(A), transposed(rhs)))
    info = _zero_pivots(A, out)
    return (shape.squeeze(out, -1) if vector else out), info


@tensor_function(method=False, out=True)
def linalg_solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> return_types.linalg_solve_ex:
    """(result, info): as `linalg.solve`, and for each matrix 0, or which diagonal element of U is zero."""
    out, info = _solution("linalg.solve_ex", A, B, left)
    if check_errors:
        raise_if_failed(
            info, "torch.linalg.solve_ex: The solver failed because the input matrix is singular."
        )
    return return_types.linalg_solve_ex(out, info)


@tensor_function(method=False, out=True)
def linalg_solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A @ X = B, or X @ A = B without `left`; B is (..., n, k), or (..., n) for vectors.

    `LinAlgError` where a matrix is singular.
    """
    out, info = _solution("linalg.solve", A, B, left)
    raise_if_failed(
        info,
        f"torch.linalg.solve: The solver failed because the input matrix is singular (A has shape {list(A.shape)}).",
    )
    return out


@tensor_function(method=False, out=True)
def linalg_solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """X with A @ X = B, or X @ A = B without `left`, for triangular A; the other triangle is not read.

    Zeros on the diagonal are not looked for: they give inf or nan.
    """
    require_square("linalg.solve_triangular", A)
    require_matrix("linalg.solve_triangular", B, "B")
    require_one_dtype("linalg.solve_triangular", A=A, B=B)
    if A.shape[-1] != B.shape[-2 if left else -1]:
        raise RuntimeError(
            f"linalg.solve_triangular: Incompatible shapes of A and B for the equation "
            f"{'AX = B' if left else 'XA = B'} ({A.shape[-2]}x{A.shape[-1]} and {B.shape[-2]}x{B.shape[-1]})"
        )
    if left:
        return inverse_ops.solve_triangular(A, B, upper, unitriangular)
    out = inverse_ops.solve_triangular(transposed(A), transposed(B), not upper, unitriangular)
    return transposed(out.contiguous())  # in columns, too


@tensor_function(out=True)
def triangular_solve(
    input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> return_types.triangular_solve:
    """(solution, cloned_coefficient): X with A @ X = input, for triangular A, transposed first if asked."""
    require_square("triangular_solve", A)
    require_matrix("triangular_solve", input, "b")
    require_one_dtype("triangular_solve", A=A, b=input)
    coefficient, up = (transposed(A), not upper) if transpose else (A, upper)
    solution = linalg_solve_triangular(coefficient, input, upper=up, unitriangular=unitriangular)
    lead = np.broadcast_shapes(A.shape[:-2], input.shape[:-2])
    return return_types.triangular_solve(solution, F.clone(shape.expand(A, *lead, *A.shape[-2:])))


@tensor_function(method=False, out=True)
def linalg_tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse for `tensordot`: the first `ind` dimensions of A are its rows, the others its columns."""
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', got {ind}")
    rows, columns = math.prod(A.shape[:ind]), math.prod(A.shape[ind:])
    if rows != columns:
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            f"{columns} != {rows}"
        )
    return shape.reshape(linalg_inv(shape.reshape(A, (rows, columns))), (*A.shape[ind:], *A.shape[:ind]))


@tensor_function(method=False, out=True, names={"other": "B"})
def linalg_tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B, after the dimensions `dims` of A were moved to its end."""
    if dims is not None:
        moved = [d % A.ndim for d in dims]
        A = shape.permute(A, *[d for d in range(A.ndim) if d not in moved], *moved)
    rest = tuple(A.shape[B.ndim :])
    if math.prod(rest) != B.numel():
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), "
            f"but got {math.prod(rest)} != {B.numel()}"
        )
    solution = linalg_solve(shape.reshape(A, (B.numel(), B.numel())), shape.reshape(B, (-1,)))
    return shape.reshape(solution, rest)


# -- determinants --------------------------------------------------------------------------------------


@tensor_function(method=False, out=True)
def linalg_det(A: Tensor) -> Tensor:
    """The determinants of square matrices (..., n, n)."""
    return inverse_ops.det(A)


@tensor_function(method=False, out=True)
def linalg_slogdet(A: Tensor) -> return_types.linalg_slogdet:
    """(sign, logabsdet) of the determinants of square matrices (..., n, n)."""
    require_square("linalg.slogdet", A)
    return return_types.linalg_slogdet(*inverse_ops.slogdet_pair(A))


@tensor_function(out=True)
def slogdet(input: Tensor) -> return_types.slogdet:
    """The same as `linalg.slogdet`."""
    require_square("linalg.slogdet", input)
    return return_types.slogdet(*inverse_ops.slogdet_pair(input))


@tensor_function()
@takes_axis
def logdet(input: Tensor) -> Tensor:
    """log(det(input)): -inf for singular matrices, nan for real ones with a negative determinant."""
    require_square("logdet", input)
    sign, log = inverse_ops.slogdet_pair(input)
    if is_complex(input):
        return log + F.log(sign)
    return F.where(sign == -1, math.nan, log)


# -- powers ----------------------------------------------------------------------------------------------


@tensor_function(out=True)
def matrix_power(input: Tensor, n: int) -> Tensor:
    """The product of n copies of square matrices; of their inverses for negative n."""
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise RuntimeError(
            f"linalg.matrix_power: A must be batches of square matrices, got {list(input.shape)}"
        )
    if n < 0:
        return matrix_power(linalg_inv(input), -n)
    if n == 0:
        return eye_like(input, input.shape[-1]) + nothing_of(input)
    result, power = None, input
    while True:
        if n & 1:
            result = power if result is None else matrix.matmul(result, power)
        n >>= 1
        if not n:
            assert result is not None
            return F.clone(result) if result is input else result
        power = matrix.matmul(power, power)


@tensor_function(method=False, out=True)
def linalg_matrix_power(A: Tensor, n: int) -> Tensor:
    """The same as `matrix_power`."""
    return matrix_power(A, n)


@tensor_function(method=False, out=True)
def linalg_vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Powers 0 to N - 1 of the last dimension's elements: (..., n) becomes (..., n, N), N = n by default."""
    x = x if x.ndim else shape.reshape(x, (1,))
    count = x.shape[-1] if N is None else N
    if count <= 1 and (N is not None or not count):
        raise RuntimeError(f"N must be greater than 1, got {count}")
    x = x.long() if x.dtype.category < 2 else x
    powers = [nothing_of(x) + 1]
    for _ in range(count - 1):
        powers.append(powers[-1] * x)
    return shape.narrow(F.stack(powers, -1), -1, 0, count)


@tensor_function(method=False)
def linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of the matrices; a view."""
    return F.diagonal(A, offset, dim1, dim2)

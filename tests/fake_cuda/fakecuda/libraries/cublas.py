"""cuBLAS by NumPy and SciPy. Matrices lie by columns; products of 16-bit numbers are accumulated in float32."""

from typing import Any

import numpy as np
import scipy.linalg

from .abi import (
    DATA_TYPES,
    KINDS,
    Array,
    Handles,
    Status,
    addresses,
    captured,
    count_product,
    function,
    matrix,
    scalar,
    view,
    write,
)  # fmt: skip

INVALID_VALUE, NOT_SUPPORTED = 7, 15
# By cublasComputeType_t: what the scalars are.
_COMPUTE = {64: np.float16, 65: np.float16, 68: np.float32, 69: np.float32, 70: np.float64, 71: np.float64,
            74: np.float32, 75: np.float32, 77: np.float32}  # fmt: skip
_TF32 = 77

handles = Handles("cuBLAS", INVALID_VALUE, refuses_captures=False)
_workspaces: dict[int, int] = {}  # bytes that a program gave a handle
_modes: dict[int, int] = {}
_math: dict[int, int] = {}

function("cublasCreate_v2", "p")(handles.create)
function("cublasDestroy_v2", "p")(handles.destroy)


@function("cublasSetStream_v2", "pp")
def set_stream(handle, stream):
    _workspaces.pop(handle, None)  # a new stream takes cuBLAS's own one
    handles.set_stream(handle, stream)


@function("cublasSetWorkspace_v2", "ppz")
def set_workspace(handle, address, size):
    handles.of_this_device(handle)
    view(address, np.uint8, (size,), who="cuBLAS")
    _workspaces[handle] = size


def _stream_of(handle: int, *arguments: Any) -> int:
    """The stream of a product, which has a workspace of the program's while it is captured."""
    stream = handles.of_this_device(handle)[1]
    if captured(stream) and handle not in _workspaces:
        raise Status(
            NOT_SUPPORTED, "a product on a stream that is captured needs cublasSetWorkspace before it"
        )
    return stream


function("cublasGetStream_v2", "pp")(handles.get_stream)
function("cublasSetPointerMode_v2", "pi")(_modes.__setitem__)
function("cublasGetPointerMode_v2", "pp")(lambda handle, out: write(out, _modes.get(handle, 0)))
function("cublasSetMathMode", "pi")(_math.__setitem__)
function("cublasGetMathMode", "pp")(lambda handle, out: write(out, _math.get(handle, 0)))
function("cublasGetVersion_v2", "pp")(lambda handle, out: write(out, 120900))


def turned(x: Array, operation: int) -> Array:
    """The operand that cublasOperation_t makes of a matrix: 0 itself, 1 transposed, 2 its conjugate as well."""
    return x if operation == 0 else x.T if operation == 1 else x.conj().T


def _operand(address: int, dtype: Any, rows: int, columns: int, lead: int, operation: int) -> Array:
    shape = (rows, columns) if operation == 0 else (columns, rows)
    return turned(matrix(address, dtype, *shape, lead), operation)


def _gemm(
    handle: int, ta: int, tb: int, m: int, n: int, k: int, alpha: Any,
    a: int, kind_a: Any, lda: int, b: int, kind_b: Any, ldb: int, beta: Any, c: int, kind_c: Any, ldc: int,
    tf32: bool = False,
) -> None:  # fmt: skip
    handles.of_this_device(handle)
    out = matrix(c, kind_c, m, n, ldc)
    if not out.size:
        return
    wide = np.result_type(kind_c, np.float32) if kind_c.itemsize == 2 or kind_a.itemsize == 2 else kind_c
    left = _operand(a, kind_a, m, k, lda, ta).astype(wide)
    right = _operand(b, kind_b, k, n, ldb, tb).astype(wide)
    if tf32:
        left, right = _tf32(left), _tf32(right)
    product = alpha * (left @ right)
    out[...] = (
        product if beta == 0 else product + beta * out.astype(wide)
    )  # with 0 what was there is not read


def _tf32(x: Array) -> Array:
    """Float32 with the ten digits of TF32, to the nearest."""
    return ((np.ascontiguousarray(x).view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(
        np.float32
    )


def _supported(kind_a: int, kind_b: int, kind_c: int, compute: int) -> None:
    """cuBLAS's table for real numbers: one type of A and B; C of it, or float32 for 16 bits; float64 alone."""
    if compute not in _COMPUTE or kind_a not in DATA_TYPES or kind_c not in DATA_TYPES:
        raise Status(NOT_SUPPORTED, f"types {kind_a}, {kind_b}, {kind_c} computed as {compute}")
    double, complex_ = _COMPUTE[compute] is np.float64, kind_a in (4, 5)
    half = kind_a in (2, 14)
    same = kind_a == kind_b and (kind_c == kind_a or (half and kind_c == 0))
    if not same or double != (kind_a in (1, 5)) or (complex_ and kind_c != kind_a):
        raise Status(NOT_SUPPORTED, f"types {kind_a}, {kind_b}, {kind_c} computed as {compute}")


def _scalar_type(kind_c: int, compute: int) -> Any:
    return DATA_TYPES[kind_c] if kind_c in (4, 5) else _COMPUTE[compute]


@function("cublasGemmEx", "piiiiippiipiippiiii", stream_of=_stream_of)
def gemm_ex(
    handle, ta, tb, m, n, k, alpha, a, kind_a, lda, b, kind_b, ldb, beta, c, kind_c, ldc, compute, algorithm
):
    _supported(kind_a, kind_b, kind_c, compute)
    count_product()
    number = _scalar_type(kind_c, compute)
    _gemm(
        handle, ta, tb, m, n, k, scalar(alpha, number), a, DATA_TYPES[kind_a], lda, b, DATA_TYPES[kind_b], ldb,
        scalar(beta, number), c, DATA_TYPES[kind_c], ldc, compute == _TF32,
    )  # fmt: skip


@function("cublasGemmStridedBatchedEx", "piiiiippiilpiilppiiliii", stream_of=_stream_of)
def gemm_strided_batched_ex(
    handle, ta, tb, m, n, k, alpha, a, kind_a, lda, step_a, b, kind_b, ldb, step_b, beta, c, kind_c, ldc, step_c,
    count, compute, algorithm,
):  # fmt: skip
    _supported(kind_a, kind_b, kind_c, compute)
    count_product()
    number = _scalar_type(kind_c, compute)
    kinds = DATA_TYPES[kind_a], DATA_TYPES[kind_b], DATA_TYPES[kind_c]
    for i in range(count):
        _gemm(
            handle, ta, tb, m, n, k, scalar(alpha, number), a + i * step_a * kinds[0].itemsize, kinds[0], lda,
            b + i * step_b * kinds[1].itemsize, kinds[1], ldb, scalar(beta, number),
            c + i * step_c * kinds[2].itemsize, kinds[2], ldc, compute == _TF32,
        )  # fmt: skip


@function("cublasSgemmEx", "piiiiippiipiippii", stream_of=_stream_of)
def sgemm_ex(handle, ta, tb, m, n, k, alpha, a, kind_a, lda, b, kind_b, ldb, beta, c, kind_c, ldc):
    gemm_ex(handle, ta, tb, m, n, k, alpha, a, kind_a, lda, b, kind_b, ldb, beta, c, kind_c, ldc, 68, 0)


def _of_kind(letter: str, kind: np.dtype[Any]) -> None:
    """The functions that exist once for each of the four types."""
    size = kind.itemsize

    @function(f"cublas{letter}gemm_v2", "piiiiippipippi", stream_of=_stream_of)
    def gemm(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        count_product()
        one(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)

    def one(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        numbers = scalar(alpha, kind), scalar(beta, kind)
        _gemm(handle, ta, tb, m, n, k, numbers[0], a, kind, lda, b, kind, ldb, numbers[1], c, kind, ldc)

    @function(f"cublas{letter}gemmStridedBatched", "piiiiippilpilppili", stream_of=_stream_of)
    def strided(handle, ta, tb, m, n, k, alpha, a, lda, step_a, b, ldb, step_b, beta, c, ldc, step_c, count):
        count_product()
        for i in range(count):
            places = a + i * step_a * size, b + i * step_b * size, c + i * step_c * size
            one(handle, ta, tb, m, n, k, alpha, places[0], lda, places[1], ldb, beta, places[2], ldc)

    @function(f"cublas{letter}gemmBatched", "piiiiippipippii", stream_of=_stream_of)
    def batched(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, count):
        count_product()
        for places in zip(addresses(a, count), addresses(b, count), addresses(c, count), strict=True):
            one(handle, ta, tb, m, n, k, alpha, places[0], lda, places[1], ldb, beta, places[2], ldc)

    @function(f"cublas{letter}gemv_v2", "piiippipippi", stream_of=_stream_of)
    def gemv(handle, operation, m, n, alpha, a, lda, x, step_x, beta, y, step_y):
        handles.of_this_device(handle)
        left = turned(matrix(a, kind, m, n, lda), operation)
        out = view(y, kind, (left.shape[0],), (step_y,))
        product = scalar(alpha, kind) * (left @ view(x, kind, (left.shape[1],), (step_x,)))
        number = scalar(beta, kind)
        out[...] = product if number == 0 else product + number * out

    def dot(name: str, conjugate: bool) -> None:
        @function(f"cublas{letter}{name}_v2", "pipipip", stream_of=_stream_of)
        def product(handle, n, x, step_x, y, step_y, out):
            handles.of_this_device(handle)
            left, right = view(x, kind, (n,), (step_x,)), view(y, kind, (n,), (step_y,))
            write(out, np.dot(left.conj() if conjugate else left, right), kind)

    if kind.kind == "c":
        dot("dotu", False)
        dot("dotc", True)
    else:
        dot("dot", False)

    @function(f"cublas{letter}trsm_v2", "piiiiiippipi", stream_of=_stream_of)
    def trsm(handle, side, uplo, operation, diagonal, m, n, alpha, a, lda, b, ldb):
        """side: 0 left, 1 right; uplo: 0 lower, 1 upper; diagonal: 1 is one of ones."""
        handles.of_this_device(handle)
        order = m if side == 0 else n
        left, out = matrix(a, kind, order, order, lda), matrix(b, kind, m, n, ldb)
        left = (np.tril if uplo == 0 else np.triu)(left)
        if diagonal:
            np.fill_diagonal(left, 1)
        left = turned(left, operation)
        right = scalar(alpha, kind) * out
        out[...] = np.linalg.solve(left, right) if side == 0 else np.linalg.solve(left.T, right.T).T

    @function(f"cublas{letter}getrfBatched", "pipippi", stream_of=_stream_of)
    def getrf(handle, n, a, lda, pivots, info, count):
        handles.of_this_device(handle)
        for i, place in enumerate(addresses(a, count)):
            factored, rows, status = lu(matrix(place, kind, n, n, lda))
            matrix(place, kind, n, n, lda)[...] = factored
            if pivots:
                view(pivots, np.int32, (count, n))[i] = rows
            view(info, np.int32, (count,))[i] = status

    @function(f"cublas{letter}getrsBatched", "piiipippipi", stream_of=_stream_of)
    def getrs(handle, operation, n, columns, a, lda, pivots, b, ldb, info, count):
        handles.of_this_device(handle)
        for i, places in enumerate(zip(addresses(a, count), addresses(b, count), strict=True)):
            rows = view(pivots, np.int32, (count, n))[i]
            solve_factored(
                matrix(places[0], kind, n, n, lda), rows, matrix(places[1], kind, n, columns, ldb), operation
            )
        write(info, 0)

    @function(f"cublas{letter}getriBatched", "pipippipi", stream_of=_stream_of)
    def getri(handle, n, a, lda, pivots, out, ldc, info, count):
        handles.of_this_device(handle)
        for i, places in enumerate(zip(addresses(a, count), addresses(out, count), strict=True)):
            factored, rows = matrix(places[0], kind, n, n, lda), view(pivots, np.int32, (count, n))[i]
            status = first_zero(factored)
            if not status:
                inverse = scipy.linalg.lu_solve(
                    (np.asfortranarray(factored), rows - 1), np.eye(n, dtype=kind)
                )
                matrix(places[1], kind, n, n, ldc)[...] = inverse
            view(info, np.int32, (count,))[i] = status


def lu(a: Array) -> tuple[Array, Array, int]:
    """L and U in one matrix, LAPACK's pivots from 1 on, and the first column without a pivot, or 0."""
    (getrf,) = scipy.linalg.get_lapack_funcs(("getrf",), (a,))
    factored, pivots, status = getrf(a)
    return factored, pivots + 1, status


def solve_factored(factored: Array, pivots: Array, out: Array, operation: int) -> None:
    """Solve in place with what `lu` gave; a zero on the diagonal divides, as on a GPU."""
    (getrs,) = scipy.linalg.get_lapack_funcs(("getrs",), (out,))
    out[...], _ = getrs(np.asfortranarray(factored), pivots - 1, out, trans=operation)


def first_zero(factored: Array) -> int:
    """From 1 on; 0 where the diagonal has no zero."""
    zeros = np.flatnonzero(np.diagonal(factored) == 0)
    return int(zeros[0]) + 1 if zeros.size else 0


for _letter, _kind in KINDS.items():
    _of_kind(_letter, _kind)

"""cuSOLVER's dense part by LAPACK (through SciPy) and NumPy. Whether it went well is written to devInfo, as there."""

from typing import Any

import numpy as np
import scipy.linalg

from .abi import DATA_TYPES, KINDS, Array, Handles, addresses, function, matrix, view, write
from .cublas import lu, solve_factored, turned

INVALID_VALUE = 3
_LOWER = 0  # cublasFillMode_t

handles = Handles("cuSOLVER", INVALID_VALUE)
function("cusolverDnCreate", "p")(handles.create)
function("cusolverDnDestroy", "p")(handles.destroy)
function("cusolverDnSetStream", "pp")(handles.set_stream)
function("cusolverDnGetStream", "pp")(handles.get_stream)
function("cusolverGetProperty", "ip")(lambda which, out: write(out, (11, 7, 5)[which]))
for _name in ("cusolverDnCreateGesvdjInfo", "cusolverDnCreateSyevjInfo", "cusolverDnCreateParams"):
    function(_name, "p")(lambda out: write(out, 0x10, np.uintp))
for _name in ("cusolverDnDestroyGesvdjInfo", "cusolverDnDestroySyevjInfo", "cusolverDnDestroyParams"):
    function(_name, "p")(lambda params: None)
for _name in ("gesvdjSetTolerance", "syevjSetTolerance"):
    function(f"cusolverDnX{_name}", "pd")(lambda params, value: None)
for _name in ("gesvdjSetMaxSweeps", "gesvdjSetSortEig", "syevjSetMaxSweeps", "syevjSetSortEig"):
    function(f"cusolverDnX{_name}", "pi")(lambda params, value: None)


def _sizes(name: str, signature: str, place: int) -> None:
    """A function that says how much workspace another one needs, at argument `place`."""
    function(name, signature)(lambda *arguments: write(arguments[place], 16))


def _done(info: int, status: int = 0) -> None:
    view(info, np.int32, (1,))[0] = status


def _eigenvalues(a: Array, vectors: int, uplo: int, values: Array) -> int:
    """The eigenvalues of a Hermitian matrix into `values`, and its eigenvectors in its place if asked for."""
    UPLO = "L" if uplo == _LOWER else "U"
    try:
        if vectors:
            values[...], a[...] = np.linalg.eigh(a, UPLO)
        else:
            values[...] = np.linalg.eigvalsh(a, UPLO)
    except np.linalg.LinAlgError:
        return 1
    return 0


def _singular_values(a: Array, values: Array, u: Array | None, v: Array | None, full: bool) -> int:
    """a = u @ diag(values) @ v^H."""
    try:
        if u is None or v is None:
            values[...] = np.linalg.svd(a, compute_uv=False)
        else:
            left, values[...], right = np.linalg.svd(a, full_matrices=full)
            u[...], v[...] = left, right.conj().T
    except np.linalg.LinAlgError:
        return 1
    return 0


def _factored(a: Array, uplo: int) -> int:
    """Cholesky's factor into one triangle of a matrix; the order of the minor that is not positive, or 0."""
    (potrf,) = scipy.linalg.get_lapack_funcs(("potrf",), (a,))
    out, status = potrf(a, lower=uplo == _LOWER, clean=False)
    a[...] = out
    return status


def _of_kind(letter: str, kind: np.dtype[Any]) -> None:
    _systems(letter, kind)
    _orthogonal(letter, kind)
    _spectral(letter, kind)


def _systems(letter: str, kind: np.dtype[Any]) -> None:
    """Cholesky's and LU factors, and systems solved with them."""
    prefix = f"cusolverDn{letter}"
    _sizes(f"{prefix}potrf_bufferSize", "piipip", 5)
    _sizes(f"{prefix}getrf_bufferSize", "piipip", 5)

    @function(f"{prefix}potrf", "piipipip")
    def potrf(handle, uplo, n, a, lda, work, size, info):
        handles.of_this_device(handle)
        _done(info, _factored(matrix(a, kind, n, n, lda), uplo))

    @function(f"{prefix}potrfBatched", "piipipi")
    def potrf_batched(handle, uplo, n, a, lda, info, count):
        handles.of_this_device(handle)
        for i, place in enumerate(addresses(a, count)):
            view(info, np.int32, (count,))[i] = _factored(matrix(place, kind, n, n, lda), uplo)

    @function(f"{prefix}potrs", "piiipipip")
    def potrs(handle, uplo, n, columns, a, lda, b, ldb, info):
        handles.of_this_device(handle)
        out = matrix(b, kind, n, columns, ldb)
        out[...] = scipy.linalg.cho_solve((matrix(a, kind, n, n, lda), uplo == _LOWER), out)
        _done(info)

    @function(f"{prefix}getrf", "piipippp")
    def getrf(handle, m, n, a, lda, work, pivots, info):
        handles.of_this_device(handle)
        place = matrix(a, kind, m, n, lda)
        place[...], rows, status = lu(place)
        if pivots:
            view(pivots, np.int32, (min(m, n),))[...] = rows
        _done(info, status)

    @function(f"{prefix}getrs", "piiipippip")
    def getrs(handle, operation, n, columns, a, lda, pivots, b, ldb, info):
        handles.of_this_device(handle)
        rows, out = view(pivots, np.int32, (n,)), matrix(b, kind, n, columns, ldb)
        solve_factored(matrix(a, kind, n, n, lda), rows, out, operation)
        _done(info)


def _orthogonal(letter: str, kind: np.dtype[Any]) -> None:
    """Factors Q and R, and Q itself or what it makes of a matrix."""
    prefix = f"cusolverDn{letter}"
    make, apply = ("ungqr", "unmqr") if kind.kind == "c" else ("orgqr", "ormqr")
    _sizes(f"{prefix}geqrf_bufferSize", "piipip", 5)
    _sizes(f"{prefix}{make}_bufferSize", "piiipipp", 7)
    _sizes(f"{prefix}{apply}_bufferSize", "piiiiipippip", 11)

    @function(f"{prefix}geqrf", "piipippip")
    def geqrf(handle, m, n, a, lda, tau, work, size, info):
        handles.of_this_device(handle)
        place = matrix(a, kind, m, n, lda)
        (factor,) = scipy.linalg.get_lapack_funcs(("geqrf",), (place,))
        place[...], factors, _, status = factor(place)
        view(tau, kind, (min(m, n),))[...] = factors
        _done(info, status)

    @function(f"{prefix}{make}", "piiipippip")
    def orgqr(handle, m, n, k, a, lda, tau, work, size, info):
        handles.of_this_device(handle)
        place = matrix(a, kind, m, n, lda)
        (form,) = scipy.linalg.get_lapack_funcs((make,), (place,))
        place[...], _, status = form(place, view(tau, kind, (k,)))
        _done(info, status)

    @function(f"{prefix}{apply}", "piiiiipippipip")
    def ormqr(handle, side, operation, m, n, k, a, lda, tau, c, ldc, work, size, info):
        handles.of_this_device(handle)
        order = m if side == 0 else n
        reflectors, out = matrix(a, kind, order, k, lda), matrix(c, kind, m, n, ldc)
        q = np.eye(order, dtype=kind)
        for i, factor in enumerate(view(tau, kind, (k,))):
            v = np.concatenate([np.zeros(i), [1], reflectors[i + 1 :, i]]).astype(kind)
            q = q - factor * (q @ v)[:, None] * v.conj()
        q = turned(q, operation)
        out[...] = q @ out if side == 0 else out @ q
        _done(info)


def _spectral(letter: str, kind: np.dtype[Any]) -> None:
    """Eigenvalues of Hermitian matrices, and singular values."""
    prefix, real = f"cusolverDn{letter}", kind.type(0).real.dtype
    hermitian = "heev" if kind.kind == "c" else "syev"
    _sizes(f"{prefix}{hermitian}d_bufferSize", "piiipipp", 7)
    _sizes(f"{prefix}{hermitian}j_bufferSize", "piiipippp", 7)
    _sizes(f"{prefix}{hermitian}jBatched_bufferSize", "piiipipppi", 7)
    _sizes(f"{prefix}gesvd_bufferSize", "piip", 3)
    _sizes(f"{prefix}gesvdj_bufferSize", "piiiipippipipp", 12)
    _sizes(f"{prefix}gesvdjBatched_bufferSize", "piiipippipippi", 11)

    def eigenvalues(handle, vectors, uplo, n, a, lda, values, info, count=1):
        handles.of_this_device(handle)
        for i in range(count):
            place = matrix(a + i * n * lda * kind.itemsize, kind, n, n, lda)
            status = _eigenvalues(place, vectors, uplo, view(values, real, (count, n))[i])
            view(info, np.int32, (count,))[i] = status

    @function(f"{prefix}{hermitian}d", "piiipippip")
    def divided(handle, vectors, uplo, n, a, lda, values, work, size, info):
        eigenvalues(handle, vectors, uplo, n, a, lda, values, info)

    @function(f"{prefix}{hermitian}j", "piiipippipp")
    def jacobi(handle, vectors, uplo, n, a, lda, values, work, size, info, params):
        eigenvalues(handle, vectors, uplo, n, a, lda, values, info)

    @function(f"{prefix}{hermitian}jBatched", "piiipippippi")
    def jacobi_batched(handle, vectors, uplo, n, a, lda, values, work, size, info, params, count):
        eigenvalues(handle, vectors, uplo, n, a, lda, values, info, count)

    @function(f"{prefix}gesvd", "pbbiipippipipipp")
    def gesvd(handle, job_u, job_v, m, n, a, lda, values, u, ldu, v, ldv, work, size, rwork, info):
        """Jobs by their letters: all vectors, some, in the place of the matrix (O), none; m >= n, as there."""
        handles.of_this_device(handle)
        if m < n:
            _done(info, -5)
            return INVALID_VALUE
        place, out = matrix(a, kind, m, n, lda), view(values, real, (n,))
        jobs = chr(job_u) + chr(job_v)
        left, out[...], right = np.linalg.svd(place, full_matrices=jobs[0] == "A")
        if jobs[0] in "AS":
            matrix(u, kind, m, left.shape[1], ldu)[...] = left
        if jobs[1] in "AS":
            matrix(v, kind, n, n, ldv)[...] = right
        if jobs[0] == "O":
            place[...] = left
        elif jobs[1] == "O":
            place[:n] = right
        return _done(info)

    @function(f"{prefix}gesvdj", "piiiipippipipippp")
    def gesvdj(handle, vectors, thin, m, n, a, lda, values, u, ldu, v, ldv, work, size, info, params):
        handles.of_this_device(handle)
        k = min(m, n)
        left = matrix(u, kind, m, k if thin else m, ldu) if vectors else None
        right = matrix(v, kind, n, k if thin else n, ldv) if vectors else None
        _done(
            info,
            _singular_values(matrix(a, kind, m, n, lda), view(values, real, (k,)), left, right, not thin),
        )

    @function(f"{prefix}gesvdjBatched", "piiipippipipippi")
    def gesvdj_batched(
        handle, vectors, m, n, a, lda, values, u, ldu, v, ldv, work, size, info, params, count
    ):
        handles.of_this_device(handle)
        item, k = kind.itemsize, min(m, n)
        for i in range(count):
            left = matrix(u + i * ldu * m * item, kind, m, m, ldu) if vectors else None
            right = matrix(v + i * ldv * n * item, kind, n, n, ldv) if vectors else None
            place = matrix(a + i * lda * n * item, kind, m, n, lda)
            status = _singular_values(place, view(values, real, (count, k))[i], left, right, True)
            view(info, np.int32, (count,))[i] = status


for _letter, _kind in KINDS.items():
    _of_kind(_letter, _kind)


# The functions with 64-bit sizes, and types as arguments.
_MATRIX = "ppiilipl"  # handle, parameters, two jobs, order, type, address, leading dimension


def _no_workspace(*arguments: Any) -> None:
    for place in arguments[-2:]:
        write(place, 16, np.uintp)


function("cusolverDnXsyevd_bufferSize", f"{_MATRIX}ipipp")(_no_workspace)
function("cusolverDnXgeev_bufferSize", f"{_MATRIX}ipipliplipp")(_no_workspace)


@function("cusolverDnXsyevd", f"{_MATRIX}ipipzpzp")
def syevd(handle, params, vectors, uplo, n, kind, a, lda, kind_values, values, *rest):
    handles.of_this_device(handle)
    place = matrix(a, DATA_TYPES[kind], n, n, lda)
    _done(rest[-1], _eigenvalues(place, vectors, uplo, view(values, DATA_TYPES[kind_values], (n,))))


@function("cusolverDnXgeev", f"{_MATRIX}ipipliplipzpzp")
def geev(handle, params, left, right, n, kind, a, lda, kind_values, values, *rest):
    """Of a real matrix the vectors of a pair of eigenvalues lie as LAPACK's: real part, imaginary part."""
    handles.of_this_device(handle)
    place = matrix(a, DATA_TYPES[kind], n, n, lda)
    (decompose,) = scipy.linalg.get_lapack_funcs(("geev",), (place,))
    found = decompose(place, compute_vl=0, compute_vr=right)
    *parts, _, vectors, status = found
    view(values, DATA_TYPES[kind_values], (n,))[...] = (
        parts[0] + 1j * parts[1] if len(parts) == 2 else parts[0]
    )
    if right:
        kind_vectors, address, lead = rest[3:6]
        matrix(address, DATA_TYPES[kind_vectors], n, n, lead)[...] = vectors
    _done(rest[-1], status)

"""Linear algebra: factors multiply to what was factored, gradients under symmetry, and what singular matrices do."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad.backend.elementary import elementary
from ddpgrad.backend.registry import backend_of

SHAPES = [(3, 3), (5, 3), (3, 5), (2, 4, 4), (2, 1, 5, 2), (0, 3, 3), (4, 0), (0, 0)]
INF = float("inf")
DTYPES = [torch.float32, torch.float64, torch.complex128]


def matrix(*shape: int, dtype: Any = torch.float64, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    if dtype.is_complex:
        values = values + 1j * rng.standard_normal(shape)
    return torch.tensor(values, dtype=dtype)


def positive(*shape: int, dtype: Any = torch.float64) -> torch.Tensor:
    a = matrix(*shape, dtype=dtype)
    return a @ a.mH + torch.eye(shape[-1], dtype=dtype)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    tolerance = 1e-4 if a.dtype is torch.float32 else 1e-10
    assert a.shape == b.shape
    np.testing.assert_allclose(a.numpy(force=True), b.numpy(force=True), rtol=tolerance, atol=tolerance)


def diag(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return torch.eye(values.shape[-1], dtype=like.dtype) * values.unsqueeze(-2)


# -- factors ---------------------------------------------------------------------------------------


def qr(a: torch.Tensor) -> torch.Tensor:
    Q, R = torch.linalg.qr(a)
    close(Q.mH @ Q, torch.eye(Q.shape[-1], dtype=a.dtype).expand(*a.shape[:-2], -1, -1))
    return Q @ R.triu()


def complete_qr(a: torch.Tensor) -> torch.Tensor:
    Q, R = torch.linalg.qr(a, mode="complete")
    assert Q.shape[-1] == a.shape[-2] and R.shape == a.shape
    return Q @ R


def reflected(a: torch.Tensor) -> torch.Tensor:
    if a.shape[-2] < a.shape[-1]:
        return a
    compact, tau = torch.geqrf(a)
    R = compact[..., : a.shape[-1], :].triu()
    close(torch.ormqr(compact, tau, a, transpose=True)[..., : a.shape[-1], :], R)
    return torch.linalg.householder_product(compact, tau) @ R


def svd(a: torch.Tensor) -> torch.Tensor:
    U, S, Vh = torch.linalg.svd(a, full_matrices=False)
    close(S, torch.linalg.svdvals(a))
    return U * S.unsqueeze(-2) @ Vh


def full_svd(a: torch.Tensor) -> torch.Tensor:
    U, S, V = torch.svd(a, some=False)
    k = S.shape[-1]
    assert U.shape[-1] == a.shape[-2] and V.shape[-1] == a.shape[-1]
    return U[..., :k] * S.unsqueeze(-2) @ V[..., :k].mH


def lu(a: torch.Tensor) -> torch.Tensor:
    P, L, U = torch.linalg.lu(a)
    unpacked = torch.lu_unpack(*torch.lu(a))
    for mine, again in zip((P, L, U), unpacked, strict=True):
        close(mine, again)
    return P @ L @ U


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("factor", [qr, complete_qr, reflected, svd, full_svd, lu])
def test_factors_multiply_to_the_matrix(factor: Callable[[Any], Any], shape: tuple[int, ...], dtype: Any):
    a = matrix(*shape, dtype=dtype)
    close(factor(a), a)


def cholesky(a: torch.Tensor) -> torch.Tensor:
    L, U = torch.linalg.cholesky(a), torch.cholesky(a, upper=True)
    close(L, U.mH)
    return L @ L.mH


def eigh(a: torch.Tensor) -> torch.Tensor:
    values, vectors = torch.linalg.eigh(a)
    close(values, torch.linalg.eigvalsh(a, UPLO="U"))
    return vectors * values.unsqueeze(-2) @ vectors.mH


def inverse_of_factor(a: torch.Tensor) -> torch.Tensor:
    return torch.linalg.inv(torch.cholesky_inverse(torch.linalg.cholesky(a)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("factor", [cholesky, eigh, inverse_of_factor])
def test_factors_of_positive_definite_matrices(factor: Callable[[Any], Any], dtype: Any):
    a = positive(2, 4, 4, dtype=dtype)
    close(factor(a), a)


def test_eigenvectors_of_any_matrix():
    a = matrix(2, 4, 4)
    values, vectors = torch.linalg.eig(a)
    close(a.to(torch.complex128) @ vectors, vectors * values.unsqueeze(-2))
    close(torch.linalg.eigvals(a).abs().sum(-1), values.abs().sum(-1))


# -- gradients -------------------------------------------------------------------------------------

TO_POSITIVE: dict[str, Callable[[torch.Tensor], Any]] = {
    "cholesky": torch.linalg.cholesky,
    "cholesky upper": lambda a: torch.linalg.cholesky(a, upper=True),
    "cholesky_solve": lambda a: torch.cholesky_solve(a[:, :2], torch.linalg.cholesky(a)),
    "cholesky_inverse": lambda a: torch.cholesky_inverse(torch.linalg.cholesky(a, upper=True), True),
    "eigh values": torch.linalg.eigvalsh,
    "eigh vectors": lambda a: torch.linalg.eigh(a).eigenvectors ** 2,
    "logdet": torch.logdet,
    "matrix_power": lambda a: torch.matrix_power(a, -3),
    "pinv hermitian": lambda a: torch.linalg.pinv(a, hermitian=True),
}


@pytest.mark.parametrize("name", TO_POSITIVE)
def test_gradients_at_positive_definite_matrices(name: str):
    x = matrix(3, 3).requires_grad_()

    def function(x: torch.Tensor) -> Any:
        return TO_POSITIVE[name](x @ x.mT + torch.eye(3, dtype=x.dtype))

    assert torch.autograd.gradcheck(function, (x,))
    assert torch.autograd.gradgradcheck(function, (x,), atol=1e-4, rtol=1e-4, fast_mode=True)


def svd_without_signs(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    U, S, Vh = torch.linalg.svd(a[:2])
    return S, U[:, :2] @ Vh[:2], Vh[:2] ** 2


def eig_without_angles(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values, vectors = torch.linalg.eig(a)
    return values.abs(), vectors.abs()


GENERAL: dict[str, Callable[[torch.Tensor], Any]] = {
    "wide qr": lambda a: torch.linalg.qr(a[:2]),
    "svd": svd_without_signs,
    "lu": lambda a: torch.linalg.lu(a)[1:],
    "lu_solve": lambda a: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), a.mT[:, :2], adjoint=True),
    "eig": eig_without_angles,
    "cond": torch.linalg.cond,
    "nuclear norm": lambda a: torch.linalg.norm(a, "nuc"),
    "lstsq": lambda a: torch.linalg.lstsq(a[:, :2], a[:, 2:])[:2],
    "triangular_solve": lambda a: torch.triangular_solve(a, a + 5, upper=False, transpose=True)[0],
    "householder_product": lambda a: torch.linalg.householder_product(a, a[0]),
    "ormqr": lambda a: torch.ormqr(a, a[0], a.mT, left=False),
    "tensorsolve": lambda a: torch.linalg.tensorsolve(a.reshape(3, 1, 3), a[0].reshape(3, 1)),
    "multi_dot": lambda a: torch.linalg.multi_dot([a[0], a[:, :2], a[:2], a]),
}  # fmt: skip


@pytest.mark.parametrize("name", GENERAL)
def test_gradients_at_any_matrix(name: str):
    x = matrix(3, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(GENERAL[name], (x,))
    assert torch.autograd.gradgradcheck(GENERAL[name], (x,), atol=1e-4, rtol=1e-4, fast_mode=True)


@pytest.mark.parametrize("rank", [3, 2, 1])
def test_the_gradient_of_a_determinant_is_the_cofactors_whatever_the_rank(rank: int):
    U, _, Vh = torch.linalg.svd(matrix(3, 3))
    a = (U[:, :rank] * torch.arange(1.0, rank + 1, dtype=torch.float64) @ Vh[:rank]).requires_grad_()
    torch.det(a).backward()
    minors = [
        [
            (-1) ** (i + j) * np.linalg.det(np.delete(np.delete(a.numpy(force=True), i, 0), j, 1))
            for j in range(3)
        ]
        for i in range(3)
    ]
    np.testing.assert_allclose(a.grad.numpy(), minors, atol=1e-13)


def test_complete_qr_of_a_tall_matrix_has_no_gradient():
    a = matrix(4, 2).requires_grad_()
    with pytest.raises(RuntimeError, match="not differentiable when mode='complete'"):
        torch.linalg.qr(a, mode="complete").R.sum().backward()


# -- what cannot be solved -----------------------------------------------------------------------------

SINGULAR = torch.tensor([[[2.0, 1.0], [1.0, 1.0]], [[1.0, 2.0], [2.0, 4.0]]])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda A: torch.linalg.inv(A), r"linalg.inv: \(Batch element 1\): The diagonal element 2 is zero"),
        (lambda A: torch.linalg.solve(A[1], torch.ones(2, device=A.device)), "input matrix is singular"),
        (lambda A: torch.linalg.lu_factor(A), r"\(Batch element 1\): U\[2,2\] is zero"),
        (lambda A: torch.linalg.cholesky(-A[0]), "leading minor of order 1 is not positive-definite"),
        (lambda A: torch.linalg.cholesky(A - 0.5), r"\(Batch element 1\).*order 2"),
        (lambda A: torch.linalg.svd(torch.full((2, 2), math.nan)), "failed to converge"),
    ],
)
def test_linalg_error(call: Callable[[torch.Tensor], Any], text: str, device: str):
    with pytest.raises(torch.linalg.LinAlgError, match=text):
        call(SINGULAR.to(device))


def test_info_says_which_matrix_failed_and_the_others_keep_their_results():
    inverse, info = torch.linalg.inv_ex(SINGULAR)
    assert info.dtype is torch.int32 and info.tolist() == [0, 2]
    close(inverse[0], torch.linalg.inv(SINGULAR[0]))
    L, info = torch.linalg.cholesky_ex(SINGULAR - 0.5)
    assert info.tolist() == [0, 2]
    close(L[0], torch.linalg.cholesky(SINGULAR[0] - 0.5))
    assert torch.linalg.solve_ex(SINGULAR, torch.ones(2, 2, 1)).info.tolist() == [0, 2]
    assert torch.linalg.lu_factor_ex(SINGULAR).info.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: torch.linalg.inv(torch.ones(2, 3)),
            "must be batches of square matrices, but they are 2 by 3",
        ),
        (
            lambda: torch.linalg.det(torch.ones(2, 3)),
            "must be batches of square matrices, but they are 2 by 3",
        ),
        (
            lambda: torch.linalg.inv(torch.ones(2, 2).half()),
            "Low precision dtypes not supported. Got float16",
        ),
        (lambda: torch.linalg.inv(torch.ones(2, 2).long()), "Expected a floating point or complex tensor"),
        (lambda: torch.linalg.inv(torch.ones(3)), "must have at least 2 dimensions"),
        (lambda: torch.linalg.solve(torch.eye(2), torch.ones(3)), r"AX = B \(2x2 and 3x1\)"),
        (lambda: torch.linalg.matrix_norm(torch.ones(2, 2), 3), "Order 3 not supported"),
        (lambda: torch.linalg.vector_norm(torch.ones(0), math.inf), "does not have an identity"),
        (lambda: torch.linalg.multi_dot([torch.ones(2, 2)]), "at least 2 tensors but got 1"),
    ],
)
def test_wrong_arguments(call: Callable[[], Any], text: str):
    with pytest.raises(RuntimeError, match=text):
        call()


# -- values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_lu_solve(left: bool, adjoint: bool):
    a, b = matrix(2, 3, 3, dtype=torch.complex128), matrix(3, 3, dtype=torch.complex128, seed=1)
    x = torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b, left=left, adjoint=adjoint)
    system = a.mH if adjoint else a
    close(system @ x if left else x @ system, b.expand(2, 3, 3))


@pytest.mark.parametrize("ord", [None, "fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf])
def test_matrix_norm_is_numpys(ord: Any):
    a = matrix(3, 4)
    assert torch.linalg.norm(a, ord).item() == pytest.approx(np.linalg.norm(a.numpy(), ord))
    if ord != "nuc" and ord is not None:
        assert torch.linalg.cond(a[:, :3], ord).item() == pytest.approx(np.linalg.cond(a[:, :3].numpy(), ord))


def test_rank_and_condition_of_a_singular_matrix():
    a = torch.outer(torch.arange(1.0, 4), torch.arange(2.0, 5))
    assert torch.linalg.matrix_rank(torch.stack([a, torch.eye(3)])).tolist() == [1, 3]
    assert torch.linalg.matrix_rank(torch.eye(3) * 0.1, atol=0.5).item() == 0
    assert torch.linalg.cond(torch.zeros(2, 2), 1).item() == math.inf
    close(torch.linalg.pinv(a) @ a @ torch.linalg.pinv(a), torch.linalg.pinv(a))


def test_results_are_named_and_can_be_given_memory():
    a = matrix(3, 2)
    result = torch.linalg.svd(a, full_matrices=False)
    assert repr(result).startswith("torch.return_types.linalg_svd(\nU=tensor(")
    given = tuple(torch.empty_like(part) for part in result)
    torch.linalg.svd(a, full_matrices=False, out=given)
    close(given[1], result.S)


@pytest.mark.parametrize("pivot", [True, False])
def test_portable_lu_is_lapacks(pivot: bool):
    portable, native = elementary(np)["lu_factor"], backend_of("cpu").lu_factor
    for shape in (
        (4, 4),
        (2, 5, 3),
        (3, 5),
        (4, 5, 4, 4),
        (17, 5, 3),
        (17, 3, 5),
    ):  # many small ones have a kernel
        a = np.random.default_rng(0).standard_normal(shape) + 4 * np.eye(*shape[-2:])
        a[..., 0, 0] = 0
        for mine, theirs in zip(portable(a, pivot), native(a, pivot), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-13)


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("unitriangular", [True, False])
def test_portable_triangular_solve_is_lapacks(upper: bool, unitriangular: bool):
    rng = np.random.default_rng(0)
    portable, native = elementary(np)["solve_triangular"], backend_of("cpu").solve_triangular
    for lead in ((2,), (4, 5)):  # many small ones have a kernel
        a, b = rng.standard_normal((*lead, 4, 4)) + 3 * np.eye(4), rng.standard_normal((4, 2))
        np.testing.assert_allclose(portable(a, b, upper, unitriangular), native(a, b, upper, unitriangular))


def test_a_triangular_solve_by_zero_is_infinite():
    a = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    x = torch.linalg.solve_triangular(a, torch.ones(2, 1), upper=True)
    assert x[1].item() == math.inf


def test_matrix_exp_of_large_and_nilpotent_matrices():
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    t = 100.0
    expected = torch.tensor([[math.cos(t), -math.sin(t)], [math.sin(t), math.cos(t)]], dtype=torch.float64)
    np.testing.assert_allclose(torch.matrix_exp(turn * t).numpy(), expected.numpy(), atol=1e-11)
    step = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    assert torch.matrix_exp(torch.stack([step, step * 0])).tolist() == [[[1, 1], [0, 1]], [[1, 0], [0, 1]]]


def test_low_rank():
    a = matrix(20, 3) @ matrix(3, 8, seed=1)
    U, S, V = torch.svd_lowrank(a, 4)
    close(U * S @ V.mT, a)
    U, S, V = torch.pca_lowrank(a.mT, 4)
    close(U * S @ V.mT, a.mT - a.mT.mean(0))


@pytest.mark.parametrize("hermitian", [False, True])
def test_ldl_of_an_indefinite_matrix(hermitian: bool, device: str):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((2, 4, 4)) + 1j * rng.standard_normal((2, 4, 4)) * hermitian
    A = torch.tensor(A + A.conj().swapaxes(-1, -2), device=device)
    B = torch.tensor(rng.standard_normal((2, 4, 3)), dtype=A.dtype, device=device)
    LD, pivots = torch.linalg.ldl_factor(A, hermitian=hermitian)
    solution = torch.linalg.ldl_solve(LD, pivots, B, hermitian=hermitian)
    np.testing.assert_allclose((A @ solution).cpu().numpy(), B.cpu().numpy(), atol=1e-12)
    with pytest.raises(NotImplementedError, match="linalg_ldl_factor_ex: self"):
        torch.linalg.ldl_factor(A.requires_grad_(), hermitian=hermitian).LD.sum().abs().backward()
    with pytest.raises(RuntimeError, match="is zero"):
        torch.linalg.ldl_factor(torch.zeros(2, 2))


def test_lobpcg_takes_the_extreme_eigenpairs_of_a_pencil():
    rng = np.random.default_rng(0)
    A, B = (torch.tensor(M @ M.T + np.eye(7)) for M in rng.standard_normal((2, 7, 7)))
    A.requires_grad_()
    for largest in (True, False):
        values, vectors = torch.lobpcg(A, k=2, B=B, largest=largest)
        np.testing.assert_allclose((A @ vectors).detach(), (B @ vectors * values).detach(), atol=1e-9)
        np.testing.assert_allclose((vectors.mT @ B @ vectors).detach(), np.eye(2), atol=1e-9)
        ordered = torch.linalg.eigvals(torch.linalg.solve(B, A.detach())).real.sort(descending=largest).values
        np.testing.assert_allclose(values.detach(), ordered[:2], rtol=1e-9)
    assert torch.autograd.gradcheck(
        lambda M, N: torch.lobpcg(M, k=2, B=N)[0], (A, B.requires_grad_()), fast_mode=True
    )
    with pytest.raises(ValueError, match="3 x the number of requested"):
        torch.lobpcg(A, k=3)


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0)])
def test_matrix_norms_of_nothing_are_0(shape: tuple[int, ...]):
    for ord in (1, 2, INF):
        assert torch.linalg.matrix_norm(torch.ones(shape), ord).tolist() == torch.zeros(shape[:-2]).tolist()
    with pytest.raises(IndexError):
        torch.linalg.matrix_norm(torch.ones(shape), -1)


def test_least_squares_say_only_what_the_driver_knows():
    A, b = matrix(1, 4, 2), matrix(3, 4, 1)
    by_default, by_values = torch.linalg.lstsq(A, b), torch.linalg.lstsq(A, b, driver="gelsd")
    assert by_default.residuals.shape == (0,) and by_values.residuals.shape == (3, 1)
    close(by_default.solution, by_values.solution)
    # One matrix has one rank, whatever it is broadcast to.
    assert by_values.rank.shape == (1,) and by_values.singular_values.shape == (1, 2)
    assert torch.linalg.lstsq(A[0], b, driver="gelsd").rank.shape == ()

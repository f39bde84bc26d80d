"""What linear algebra refuses, since LAPACK would not come back, or read where it is told to."""

import math
from collections.abc import Callable
from typing import Any

import pytest

import ddpgrad as torch


@pytest.mark.parametrize(
    "call",
    [torch.linalg.svd, torch.linalg.pinv, lambda A: torch.linalg.lstsq(A, A)],
    ids=["svd", "pinv", "lstsq"],
)
def test_infinities_end_in_an_error(call: Callable[[torch.Tensor], Any]):
    A = torch.arange(25.0).reshape(5, 5).sin()
    A[0, 0] = -math.inf  # with which LAPACK's routine does not come back
    with pytest.raises(torch.linalg.LinAlgError, match="input matrix contained non-finite values"):
        call(A)


def test_factors_that_do_not_belong_together_are_refused():
    A = torch.arange(25.0).reshape(5, 5).sin() + torch.eye(5)
    LU, pivots = torch.linalg.lu_factor(A)
    with pytest.raises(
        RuntimeError, match=r"a pivot for each row of LU \[5, 5\], but got pivots of shape \[1\]"
    ):
        torch.linalg.lu_solve(LU, pivots[:1], A)
    for wrong in (pivots + 10**6, pivots - 10**6):
        with pytest.raises(RuntimeError, match="pivots must be between 1 and 5"):
            torch.linalg.lu_solve(LU, wrong, A)
        with pytest.raises(RuntimeError, match="pivots must be from 1 to 5 in size"):
            torch.linalg.ldl_solve(A, wrong, A)
    reflectors, tau = torch.geqrf(A)
    with pytest.raises(RuntimeError, match=r"expected tau \[5\]"):
        torch.ormqr(reflectors, tau[:4], A)


def _turned() -> torch.Tensor:
    angles = torch.arange(9.0, dtype=torch.float64).reshape(3, 3)
    return torch.polar(angles.cos(), 3 * angles).requires_grad_()


@pytest.mark.parametrize(
    "vectors",
    [
        lambda A: torch.linalg.svd(A)[0],
        lambda A: torch.linalg.svd(A)[2],
        lambda A: torch.linalg.eigh(A + A.mH)[1],
        lambda A: torch.linalg.eig(A)[1],
    ],
    ids=["U", "Vh", "eigh", "eig"],
)
def test_losses_that_depend_on_the_phase_of_vectors_are_refused(
    vectors: Callable[[torch.Tensor], torch.Tensor],
):
    with pytest.raises(RuntimeError, match="ill-defined"):
        vectors(_turned()).real.sum().backward()
    A = _turned()
    vectors(A).abs().pow(3).sum().backward()
    assert A.grad is not None and A.grad.isfinite().all()


def test_what_has_no_answer_is_an_error():
    eye, wide = torch.eye(2), torch.eye(2, dtype=torch.float64)
    with pytest.raises(torch.linalg.LinAlgError, match="minor of order 2"):
        torch.linalg.cholesky(torch.tensor([[1.0, math.nan], [math.nan, math.nan]]))
    with pytest.raises(torch.linalg.LinAlgError, match="diagonal element 2 is zero"):
        torch.cholesky_inverse(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    for mixed in (
        lambda: torch.linalg.solve_triangular(eye, wide, upper=True),
        lambda: torch.triangular_solve(eye, wide),
        lambda: torch.linalg.lu_solve(*torch.linalg.lu_factor(eye), wide),
        lambda: torch.linalg.householder_product(eye, wide[0]),
        lambda: torch.cholesky_solve(wide, eye),
    ):
        with pytest.raises(RuntimeError, match="same dtype"):
            mixed()
    with pytest.raises(RuntimeError, match="at least 1 dimension"):
        torch.linalg.lstsq(eye, torch.tensor(1.0))
    for factors, message in (
        ({"alpha": True}, "Boolean alpha only"),
        ({"beta": 0.5}, "beta must not be a floating point number"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch.addr(torch.ones(2, 2, dtype=torch.int64), *torch.ones(2, 2, dtype=torch.int64), **factors)


def test_norms_say_which_dimensions_and_orders_they_take():
    x = torch.ones(2, 3, 3)
    for dim in ((), (0, 1, 2)):
        for ord in (None, 2):
            with pytest.raises(RuntimeError, match="of length 1 or 2"):
                torch.linalg.norm(x, ord, dim=dim)
    with pytest.raises(TypeError, match="must be Number, not str"):
        torch.linalg.vector_norm(x, "fro")
    with pytest.raises(TypeError, match="tuple of ints"):
        torch.linalg.matrix_norm(x, dim=0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: torch.linalg.svd(x, driver="gesvd"), RuntimeError, "only supported on CUDA"),
        (lambda x: torch.linalg.pinv(x, rcond=torch.tensor(1j)), RuntimeError, "rtol tensor of complex type"),
        (lambda x: torch.linalg.pinv(x, rcond=0.1, rtol=0.2), TypeError, "rcond alone"),
        (
            lambda x: torch.linalg.matrix_rank(x, atol=torch.tensor(1j)),
            RuntimeError,
            "atol tensor of complex type",
        ),
        (lambda x: torch.linalg.solve(x, torch.tensor(1.0)), RuntimeError, "at least 1 dimension"),
        (lambda x: torch.einsum("a->a->a", x[0]), RuntimeError, "invalid subscript"),
        (lambda x: torch.einsum(". ..", x[0]), RuntimeError, "invalid subscript"),
    ],
)
def test_arguments_that_mean_nothing(
    call: Callable[[torch.Tensor], Any], error: type[Exception], message: str
):
    with pytest.raises(error, match=message):
        call(torch.eye(2))


COLUMNS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "inv": lambda A, B: torch.linalg.inv(A),
    "solve": lambda A, B: torch.linalg.solve(A, B),
    "solve_triangular": lambda A, B: torch.linalg.solve_triangular(A, B, upper=True),
    "of the right side": lambda A, B: torch.linalg.solve_triangular(A, B.mT, upper=True, left=False),
    "cholesky": lambda A, B: torch.linalg.cholesky(A),
    "lu_factor": lambda A, B: torch.linalg.lu_factor(A)[0],
    "qr": lambda A, B: torch.linalg.qr(A)[1],
    "svd": lambda A, B: torch.linalg.svd(B, full_matrices=False)[0],
    "eigh": lambda A, B: torch.linalg.eigh(A)[1],
    "eig": lambda A, B: torch.linalg.eig(A)[1],
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_factors_and_solutions_lie_column_by_column(name: str, batch: tuple[int, ...]):
    A, B = torch.eye(4) * torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.rand(*batch, 4, 3)
    out = COLUMNS[name](A.expand(*batch, 4, 4), B)
    rows, columns = out.shape[-2:]
    assert out.stride() == (*[rows * columns for _ in batch], 1, rows)
    assert out.mT.is_contiguous()

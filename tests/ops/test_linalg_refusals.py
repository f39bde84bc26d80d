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
    with pytest.raises(torch.linalg.LinAlgError, match="did not converge: the input has infinities or NaN"):
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

"""Products with Jacobians and Hessians, against their matrices."""

from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp

Tensor = torch.Tensor


def vector(*values: float, **options: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, **options)


X, Y = vector(0.5, -1.0, 2.0), vector(1.5, 0.25, -0.5)


def pair(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Two outputs of two inputs."""
    return x * y.sin(), (x * x).sum() + y[:2].sum()


def scalar(x: Tensor, y: Tensor) -> Tensor:
    return (x**3 * y).sum() + (x * y).prod()


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-10, atol=1e-12)


def test_jacobian_shapes_and_values():
    (dxx, dxy), (dsx, dsy) = jacobian(pair, (X, Y))
    close(dxx, torch.diag(Y.sin()))
    close(dxy, torch.diag(X * Y.cos()))
    close(dsx, 2 * X)
    close(dsy, vector(1, 1, 0))
    assert jacobian(lambda x: x.reshape(3, 1).expand(3, 2), X, vectorize=True).shape == (3, 2, 3)
    assert jacobian(lambda x: x.repeat(0), X).shape == (0, 3)


def test_products_agree_with_the_matrix():
    v = (vector(1, 2, 3), vector(4.0).reshape(()))
    u = (vector(1, -2, 0.5), vector(3, 1, -1))
    rows = jacobian(pair, (X, Y))
    out, (vx, vy) = vjp(pair, (X, Y), v)
    close(out[0], pair(X, Y)[0])
    close(vx, v[0] @ rows[0][0] + v[1] * rows[1][0])
    close(vy, v[0] @ rows[0][1] + v[1] * rows[1][1])
    _, (first, second) = jvp(pair, (X, Y), u)
    close(first, rows[0][0] @ u[0] + rows[0][1] @ u[1])
    close(second, rows[1][0] @ u[0] + rows[1][1] @ u[1])


def test_second_derivatives():
    u = (vector(1, -2, 0.5), vector(3, 1, -1))
    matrix = hessian(scalar, (X, Y))
    close(matrix[0][1], matrix[1][0].t())
    for product in (hvp, vhp):
        value, found = product(scalar, (X, Y), u)
        close(value, scalar(X, Y))
        for i in range(2):
            close(found[i], matrix[i][0] @ u[0] + matrix[i][1] @ u[1])


@pytest.mark.parametrize(
    ("product", "function"),
    [
        (vjp, torch.Tensor.exp),
        (jvp, torch.Tensor.exp),
        (vhp, lambda x: x.exp().sum()),
        (hvp, lambda x: x.exp().sum()),
    ],
)
def test_create_graph(product: Any, function: Any):
    x, v = vector(0.5, -1.0, requires_grad=True), vector(1.0, 2.0)
    (again,) = torch.autograd.grad(product(function, x, v, create_graph=True)[1].sum(), x)
    close(again, v * x.exp())
    value, found = product(function, x, v)
    assert not value.requires_grad and not found.requires_grad and x.grad is None


@pytest.mark.parametrize("product", [jacobian, hessian, vjp, jvp, vhp, hvp])
def test_strict(product: Any):
    v = () if product in (jacobian, hessian) else (vector(1.0),)
    x = vector(2.0)
    constant = vector(1.0, requires_grad=True)
    with pytest.raises(
        RuntimeError, match="Output 0 of the user-provided function does not require gradients"
    ):
        product(lambda x: x.detach(), x, *v, strict=True)
    if product is not hessian:
        with pytest.raises(RuntimeError, match="user-provided function is independent of input 0"):
            product(lambda x: constant * 2, x, *v, strict=True)
    found = product(lambda x: constant * 2, x, *v)
    assert (found if product in (jacobian, hessian) else found[1]).tolist() in ([0.0], [[0.0]])
    if product in (hessian, vhp, hvp):
        with pytest.raises(RuntimeError, match="with respect to input 0 is independent of the inputs"):
            product(lambda x: x * 2, x, *v, strict=True)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: vjp(pair, (X, 2.0)), TypeError, "inputs given to vjp must be either a Tensor or a tuple"),
        (lambda: jvp(lambda x: 2.0, X, X), TypeError, "outputs of the user-provided function given to jvp"),
        (lambda: vjp(torch.exp, X), RuntimeError, "v can only be None if the user-provided function returns"),
        (lambda: vjp(torch.exp, X, (X, X)), RuntimeError, "v should contain a single Tensor"),
        (
            lambda: jvp(torch.exp, X, X[:2]),
            RuntimeError,
            r"should be torch.Size\(\[3\]\) but got torch.Size\(\[2\]\)",
        ),
        (lambda: vhp(torch.exp, X, X), RuntimeError, "given to vhp should contain a single element"),
        (lambda: hessian(pair, (X, Y)), RuntimeError, "given to hessian should return a single Tensor"),
        (lambda: jacobian(torch.exp, X, strict=True, vectorize=True), RuntimeError, "not supported together"),
    ],
)
def test_errors(call: Any, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        call()

"""Derivatives as functions."""

from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp

Tensor = torch.Tensor


def vector(*values: float, **options: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, **options)


X = vector(0.5, -1.0, 2.0)


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-10, atol=1e-12)


def test_grad_of_arguments_and_trees():
    first, second = grad(lambda x, y: (x * x * y).sum(), argnums=(0, 1))(X, X)
    close(first, 2 * X * X)
    close(second, X * X)
    found = grad(lambda tree: (tree["a"] ** 2).sum() + tree["b"][0].sum())({"a": X, "b": [X]})
    close(found["a"], 2 * X)
    assert found["b"][0].tolist() == [1.0, 1.0, 1.0]
    slope, (value, aux) = grad_and_value(lambda x: ((x**2).sum(), x + 1), has_aux=True)(X)
    close(slope, 2 * X)
    close(value, (X**2).sum())
    assert not aux.requires_grad and not value.requires_grad and not slope.requires_grad


def test_nesting():
    third = grad(grad(grad(lambda x: x**4)))
    assert third(vector(2.0)[0]).item() == 48.0
    close(torch.diag(hessian(lambda x: (x**3).sum())(X)), 6 * X)
    close(torch.diag(jacrev(grad(lambda x: (x**3).sum()))(X)), 6 * X)


def test_what_the_function_closes_over_is_differentiable():
    w = vector(3.0, 4.0, 5.0, requires_grad=True)
    found = grad(lambda x: (w * x * x).sum())(X)
    close(torch.autograd.grad(found.sum(), w)[0], 2 * X)
    x = X.clone().requires_grad_()
    found = grad(lambda x: (x**3).sum())(x)
    close(torch.autograd.grad(found.sum(), x)[0], 6 * X)
    assert x.grad is None
    with torch.no_grad():
        assert not grad(lambda x: (w * x).sum())(X).requires_grad


def test_vjp_and_jvp():
    (sine, cosine), pull = vjp(lambda x: (x.sin(), x.cos()), X)
    close(sine, X.sin())
    close(cosine, X.cos())
    close(pull((X, X))[0], X * X.cos() - X * X.sin())
    close(pull((X, torch.zeros_like(X)))[0], X * X.cos())
    out, along = jvp(lambda x, y: x * y, (X, X + 1), (X, torch.ones_like(X)))
    close(out, X * (X + 1))
    close(along, X * (X + 1) + X)
    assert not along.requires_grad


def test_a_row_without_a_gradient_has_a_tangent():
    """Nor is a tangent divided by how often a row is looked up, as a gradient is."""
    rows, table = torch.tensor([2, 0, 2]), X.reshape(3, 1)
    for options in ({"padding_idx": 2}, {"scale_grad_by_freq": True}):
        along = jvp(lambda w: torch.nn.functional.embedding(rows, w, **options), (table,), (table + 1,))[1]  # noqa: B023
        close(along, table[rows] + 1)


def test_functionalize_runs_the_function_as_it_is():
    assert torch.func.functionalize(lambda x: x.clone().add_(1))(X).tolist() == (X + 1).tolist()


@pytest.mark.parametrize("jac", [jacrev, jacfwd])
def test_jacobians(jac: Any):
    squares, total = jac(lambda x: (x**2, x.sum()))(X)
    close(squares, torch.diag(2 * X))
    assert total.tolist() == [1.0, 1.0, 1.0]
    by_x, by_y = jac(lambda x, y: x * y.sum(), argnums=(0, 1))(X, X[:2])
    close(by_x, torch.eye(3, dtype=torch.float64) * X[:2].sum())
    close(by_y, X.unsqueeze(1).expand(3, 2))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: grad(lambda x: x * 2)(X), "scalar Tensor, got tensor with 1 dims"),
        (lambda: grad(lambda x: 2)(X), "to return a Tensor, got <class 'int'>"),
        (lambda: grad(lambda x: x.sum(), argnums=1)(X), "argnum=1, but only 1 positional"),
        (lambda: grad(lambda x: x.sum(), has_aux=True)(X), "must return a tuple"),
        (lambda: grad(lambda x, y: (x * y).sum(), argnums=(0, -2))(X, X), "must be unique"),
        (lambda: grad(lambda x: x.sum(), argnums=())(X), "must be non-empty"),
        (lambda: grad(lambda x: (x.sum(), 3), has_aux=True)(X), "Expected tensors, got unsupported"),
        (lambda: jacrev(lambda x: x * 1j)(X), "jacrev: Expected all outputs to be real"),
        (lambda: jacfwd(lambda x: x.real)(X * 1j), "jacfwd: Expected all inputs to be real"),
        (lambda: jacrev(lambda x: ())(X), "function that has non-empty output"),
        (lambda: jvp(torch.exp, (X,), (X[:1],)), "has a different size than"),
        (lambda: jvp(torch.exp, (X,), [X]), "the same python structure"),
        (lambda: jvp(lambda x: (x, X), (X,), (X,), strict=True), "independent of the inputs"),
        (lambda: vjp(lambda x: [x, x], X)[1]((X, X)), "pytree structure of cotangents"),
        (lambda: jvp(torch.exp, X, X), "Expected primals to be a tuple"),
        (lambda: vjp(lambda x: 3, X), "return only tensors, got unsupported type <class 'int'>"),
    ],
)
def test_errors(call: Any, text: str):
    with pytest.raises(RuntimeError, match=text):
        call()


def test_only_tensors_are_differentiated_in():
    with pytest.raises(ValueError, match="must be Tensor, got <class 'int'>"):
        grad(lambda x, n: (x * n).sum(), argnums=(0, 1))(X, 2)


def test_linearize_evaluates_once():
    calls = []

    def f(x: torch.Tensor) -> dict[str, torch.Tensor]:
        calls.append(x)
        return {"square": x**2, "sum": x.sum()}

    output, derivative = linearize(f, X)
    close(output["square"], X**2)
    for tangent in (torch.ones_like(X), X):
        found = derivative(tangent)
        close(found["square"], 2 * X * tangent)
        close(found["sum"], tangent.sum())
    assert len(calls) == 1


@pytest.mark.parametrize(
    "jacobian", [jacrev, jacfwd, lambda f: lambda x: torch.autograd.functional.jacobian(f, x)]
)
def test_jacobian_of_numbers(jacobian: Any):
    found = jacobian(lambda x: x * x)(vector(3.0)[0])
    assert found.shape == () and found.item() == 6.0
    with pytest.raises(RuntimeError, match="real"):
        jacobian(lambda x: x * 1j)(X)


def test_jvp_of_a_function_that_writes_to_its_arguments():
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        part = x[::2]
        part.copy_(y)
        return part, x * x

    x, y = X.clone(), vector(3.0, 4.0)
    (part, square), (d_part, d_square) = jvp(f, (x, y), (vector(1.0, 1.0, 1.0), vector(10.0, 20.0)))
    assert x.tolist() == [3.0, -1.0, 4.0] and part.tolist() == [3.0, 4.0]
    assert square.tolist() == [9.0, 1.0, 16.0]
    assert d_part.tolist() == [10.0, 20.0] and d_square.tolist() == [60.0, -2.0, 160.0]


def test_vjp_fn_minds_the_grad_mode_of_its_call():
    x = X.clone().requires_grad_()
    output, pull = vjp(lambda x: x**2, x)
    with torch.no_grad():
        assert not pull(torch.ones_like(x))[0].requires_grad
    assert output.requires_grad and pull(torch.ones_like(x))[0].requires_grad
    _, pull = vjp(lambda x: x**2, X)
    pull(X, retain_graph=False)
    with pytest.raises(RuntimeError, match="second time"):
        pull(X)


def test_what_a_nested_transform_leaves_behind_is_not_recorded():
    _, pull = vjp(torch.sin, X)
    assert not grad(lambda y: pull(y)[0].sum())(X).requires_grad
    inner = lambda x: jvp(torch.sin, (x,), (torch.ones_like(x),))[1]  # noqa: E731
    _, second = jvp(inner, (X,), (torch.ones_like(X),))
    close(second, -X.sin())
    assert not second.requires_grad


@pytest.mark.parametrize("transform", [torch.func.vjp, lambda f, x: torch.func.jacrev(f)(x)])
def test_whole_numbers_have_no_gradient(transform):
    with pytest.raises(RuntimeError, match="must be floating-point or complex Tensors"):
        transform(lambda x: (x * 2, x > 0), torch.ones(2))


@pytest.mark.parametrize("chunk_size", [None, 1, 2])
def test_rows_of_jacobians_are_differentiated_together(chunk_size: int | None):
    w = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([0.3, 0.8, -0.2], dtype=torch.float64)
    got = jacrev(lambda v: (v * w).exp().cumsum(0), chunk_size=chunk_size)(x)
    wanted = torch.tril(torch.ones(3, 3, dtype=torch.float64)) * (w * (x * w).exp())
    torch.testing.assert_close(got, wanted)
    for found, want in zip(*(torch.autograd.grad(t.sin().sum(), w) for t in (got, wanted)), strict=True):
        torch.testing.assert_close(found, want)

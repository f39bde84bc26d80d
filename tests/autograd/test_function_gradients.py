"""What the backward of a user-defined Function may return, and what it is given."""

from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad.autograd import Function


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor(values or (1.0, 2.0), dtype=torch.float64, requires_grad=True)


class Product(Function):
    """a * b, with a backward that the test gives."""

    result: Any = None

    @staticmethod
    def forward(ctx, a, b):
        return a * b

    @staticmethod
    def backward(ctx, g):
        return Product.result(g)


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (lambda g: g, r"ProductBackward returned an incorrect number of gradients \(expected 2, got 1\)"),
        (lambda g: (g, None, g), r"incorrect number of gradients \(expected 2, got 3\)"),
        (
            lambda g: (g[:1].repeat(3), None),
            r"invalid gradient at index 0 - got \[3\] but expected shape .* \[2\]",
        ),
        (lambda g: (3.0, None), "returned float as gradient 0, expected a Tensor or None"),
        (lambda g: (g, g), "gradient different from None at position 1, but .* was not a Tensor"),
    ],
)
def test_wrong_gradients(result: Any, error: str):
    Product.result = staticmethod(result)
    with pytest.raises(RuntimeError, match=error):
        Product.apply(leaf(), 3.0).sum().backward()


def test_gradients_that_are_let():
    a, b = leaf(), leaf(3.0)
    Product.result = staticmethod(lambda g: (g.expand(3, 2), g, None))  # summed to the shape of each argument
    Product.apply(a, b).sum().backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([3.0, 3.0], [2.0])
    Product.result = staticmethod(lambda g: (g.float(), None))
    a.grad = None
    Product.apply(a, b).sum().backward()
    assert a.grad.dtype is torch.float64


def test_outputs_without_a_gradient_may_get_none():
    class Parts(Function):
        @staticmethod
        def forward(ctx, x):
            whole, place = x.clone(), x.clone()
            ctx.mark_non_differentiable(place)
            ctx._materialize_non_diff_grads = False
            return whole, place, x * 2

        @staticmethod
        def backward(ctx, g, none, unused):
            assert none is None and unused.tolist() == [0.0, 0.0]
            return g * 3

    x = leaf()
    Parts.apply(x)[0].sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("materialize", [True, False])
def test_undefined_gradients(materialize: bool):
    """A Function whose backward returns None stops no other: the next one gets zeros, or None if it wants."""
    seen: list[Any] = []

    class Undefined(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return None

    class Watching(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            seen.append(g)
            return g

    x = leaf()
    Undefined.apply(Watching.apply(x)).sum().backward()
    assert len(seen) == 1
    if materialize:
        assert seen[0].tolist() == [0.0, 0.0]
    else:
        assert seen[0] is None and x.grad is None

"""A custom Function's own `vmap` and `jvp`."""

from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad.autograd import Function, forward_ad
from ddpgrad.func import grad, jacfwd, jvp, vmap

Tensor = torch.Tensor


class Sort(Function):
    """Rows in order, by NumPy: as written, it cannot know that its rows lie in a batch."""

    @staticmethod
    def forward(x: Any, dim: int) -> Any:
        order = np.argsort(x.numpy(), axis=dim)
        return torch.tensor(np.sort(x.numpy(), axis=dim)), torch.tensor(order)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])
        ctx.save_for_forward(output[1], inputs[0])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (order,) = ctx.saved_tensors
        return grads[0].take_along_dim(order.argsort(-1), -1), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        order, x = ctx.saved_tensors
        return tangents[0].take_along_dim(order, -1) * 10 + 0 * x, None  # not the tangent by backward

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        x, dim = args
        assert in_dims == (0, None) and info.randomness == "error"
        values, order = Sort.apply(x, dim + 1)
        return (values + 100, order), (0, 0)  # not what forward returns


def test_vmap_calls_the_rule():
    x = torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]], requires_grad=True)
    want = [[101.0, 102.0, 103.0]] * 2
    weights = torch.tensor([1.0, 10.0, 100.0])
    slope = [[100.0, 1.0, 10.0], [1.0, 100.0, 10.0]]

    def first(row: torch.Tensor) -> torch.Tensor:
        return Sort.apply(row, 0)[0]

    out = vmap(first)(x)
    out.backward(weights.expand(2, 3))
    assert out.tolist() == want and x.grad.tolist() == slope
    x = x.detach()
    assert vmap(vmap(first))(x[None]).tolist() == [[[n + 100 for n in row] for row in want]]
    assert vmap(grad(lambda row: (first(row) * weights).sum()))(x).tolist() == slope
    assert grad(lambda x: (vmap(first)(x) * weights).sum())(x).tolist() == slope
    assert first(x[0]).tolist() == [1.0, 2.0, 3.0]

    class Both(Sort):
        generate_vmap_rule = True

    with pytest.raises(RuntimeError, match="both generate_vmap_rule=True and an overridden"):
        vmap(lambda row: Both.apply(row, 0)[0])(x)


def test_tangents_are_those_of_jvp():
    x, t = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([1.0, 2.0, 3.0])
    out, tangent = jvp(lambda x: Sort.apply(x * 2, 0)[0] * 3, (x,), (t,))
    assert out.tolist() == [6.0, 12.0, 18.0] and tangent.tolist() == [120.0, 180.0, 60.0]

    class OnlyJvp(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.x = x
            return x * x

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            assert tangents[1].tolist() == [0.0, 0.0]
            return tangents[0] * ctx.x * 2

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.tensor([1.0, 3.0]), torch.ones(2))
        assert forward_ad.unpack_dual(OnlyJvp.apply(dual, torch.ones(2))).tangent.tolist() == [2.0, 6.0]
        with pytest.raises(RuntimeError, match="has a forward gradient at the same level"):
            forward_ad.make_dual(torch.ones(2), dual)
        assert forward_ad._current_level == 0
    assert forward_ad._current_level == -1


class Exp_(Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.exp_()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * ctx.saved_tensors[0]

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return Exp_.apply(args[0]), in_dims[0]


def test_a_rule_in_place_gives_back_the_example_that_it_wrote_to():
    x = torch.zeros(2, 3)
    assert vmap(grad(lambda row: Exp_.apply(row.clone()).sum()))(x).tolist() == torch.ones(2, 3).tolist()


class Marked(Function):
    """A Function whose two derivatives differ, so that it shows which one was asked."""

    @staticmethod
    def forward(x: Tensor, index: Tensor) -> Tensor:
        return x[index]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.index = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] * 7, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        assert tangents[1] is None  # integers have no tangent
        return tangents[0][ctx.index] * 5


def test_jacfwd_asks_the_functions_own_jvp():
    x, index = torch.ones(2), torch.tensor([1, 0])
    assert jacfwd(Marked.apply)(x, index).tolist() == [[0.0, 5.0], [5.0, 0.0]]
    assert jvp(lambda x: Marked.apply(x, index), (x,), (torch.tensor([1.0, 2.0]),))[1].tolist() == [10.0, 5.0]

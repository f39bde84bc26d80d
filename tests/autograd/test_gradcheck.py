"""gradcheck finds wrong gradients and passes right ones."""

from __future__ import annotations

import pytest

import ddpgrad as torch
from ddpgrad.autograd import Function, GradcheckError, gradcheck, gradgradcheck


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


class WrongSquare(Function):
    """Its first derivative is right up to `error`; its second is not."""

    error = 0.0

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (2 + WrongSquare.error) * x.detach()


@pytest.mark.parametrize("fast", [False, True])
def test_right_gradients_pass(fast: bool):
    assert gradcheck(lambda a, b, k: (a @ b, (a * k).sum()), (leaf(2, 3), leaf(3, 2), 2.0), fast_mode=fast)
    assert gradgradcheck(lambda a, b: a.tanh() @ b, (leaf(2, 3), leaf(3, 2)), fast_mode=fast)
    assert gradcheck(lambda a: (a * 2, a > 0, torch.ones(2)), leaf(2), fast_mode=fast)


@pytest.mark.parametrize("fast", [False, True])
def test_wrong_gradients_fail(fast: bool, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"):
        gradgradcheck(WrongSquare.apply, leaf(3), fast_mode=fast)
    monkeypatch.setattr(WrongSquare, "error", 0.1)
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 1 with respect to input 1"):
        gradcheck(lambda a, b: (a * b, WrongSquare.apply(b)), (leaf(3), leaf(3)), fast_mode=fast)
    assert gradcheck(WrongSquare.apply, leaf(3), raise_exception=False) is False


def test_lost_history_is_found():
    with pytest.raises(GradcheckError, match="expected to be zero"):
        gradcheck(lambda a: (a * 2).detach(), leaf(3))


def test_backward_must_repeat():
    class Growing(Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            Growing.calls += 1
            return g * Growing.calls

    with pytest.raises(GradcheckError, match="not reentrant"):
        gradcheck(Growing.apply, leaf(2))


def test_inputs_are_checked():
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(torch.exp, torch.ones(2))
    with pytest.warns(UserWarning, match="Input #0 .* not a double precision"):
        gradcheck(lambda a: a * 2, torch.ones(2, requires_grad=True), eps=1e-2)

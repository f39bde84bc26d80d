"""gradcheck finds wrong gradients and passes right ones."""

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
    with pytest.raises(RuntimeError, match="1th input has a dimension with stride 0"):
        gradcheck(torch.add, (leaf(2, 2), leaf(2).expand(2, 2)))


def test_gradients_of_zero_must_give_zero():
    def shifted(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.register_hook(lambda g: g + 1e-3)
        return y

    with pytest.raises(GradcheckError, match="not multiplied by grad_output"):
        gradcheck(shifted, leaf(2), atol=0.1)


def test_batched_gradients_are_checked():
    class Alternating(Function):
        """Its backward is wrong from the fifth time on: in the batch, after two for the Jacobian and two alone."""

        calls = 0

        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            Alternating.calls += 1
            return g * (2 if Alternating.calls > 4 else 1)

    with pytest.raises(GradcheckError, match="testing batched gradient"):
        gradcheck(Alternating.apply, leaf(2), fast_mode=True, check_batched_grad=True)
    assert gradcheck(torch.matmul, (leaf(2, 3), leaf(3, 2)), check_batched_grad=True)
    assert gradgradcheck(torch.matmul, (leaf(2, 3), leaf(3, 2)), check_batched_grad=True)


def complex_leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.complex128, requires_grad=True)


class WrongConjugate(Function):
    """Forgets to conjugate, which only complex numbers notice."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x.conj()


@pytest.mark.parametrize("fast", [False, True])
def test_complex_numbers(fast: bool):
    assert gradcheck(lambda a, b: a * b.exp(), (complex_leaf(2), complex_leaf(2)), fast_mode=fast)
    assert gradgradcheck(lambda a: a * a, complex_leaf(2), fast_mode=fast)
    assert gradcheck(WrongConjugate.apply, (leaf(2), leaf(2)), fast_mode=fast)
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"):
        gradcheck(WrongConjugate.apply, (complex_leaf(2), complex_leaf(2)), fast_mode=fast)


def test_what_the_function_closes_over_is_moved():
    w = leaf(3)
    before = w.tolist()
    assert gradcheck(lambda _: w * w, w)
    assert w.tolist() == before


def test_undefined_gradients_must_pass():
    class Strict(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    with (
        pytest.warns(UserWarning, match="New undefined gradient support checking"),
        pytest.raises(GradcheckError, match="handle undefined output grads"),
    ):
        gradcheck(Strict.apply, leaf(2))
    assert gradcheck(Strict.apply, leaf(2), check_undefined_grad=False)


def test_outputs_keep_their_kind():
    with pytest.raises(AssertionError, match="return outputs with the same shape when inputs are perturbed"):
        gradcheck(
            lambda x: x * 1 if x[0] > 1 else x[:1] * 1, torch.ones(2, dtype=torch.float64, requires_grad=True)
        )


def test_checks_that_are_not_here():
    with pytest.raises(NotImplementedError, match="check_batched_forward_grad=True is not supported"):
        gradcheck(torch.exp, leaf(2), check_batched_forward_grad=True)
    assert gradcheck(torch.exp, leaf(2), check_forward_ad=False)
    with pytest.raises(TypeError, match="unexpected keyword argument 'chek'"):
        gradcheck(torch.exp, leaf(2), chek=True)


def test_tangents_are_compared_with_differences(monkeypatch: pytest.MonkeyPatch):
    assert gradcheck(lambda a, b: (a @ b).sin(), (leaf(2, 3), leaf(3)), check_forward_ad=True)
    monkeypatch.setattr(WrongSquare, "error", 0.1)
    with pytest.raises(GradcheckError, match="computed with forward mode mismatch for output 0"):
        # Its gradient is right where it is asked for without a tangent.
        gradcheck(lambda x: x * x if x.is_leaf else WrongSquare.apply(x), leaf(2), check_forward_ad=True)


def test_one_kind_of_derivative_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(WrongSquare, "error", 0.1)
    plain = lambda x: WrongSquare.apply(x) if x.is_leaf else x * x  # noqa: E731  a dual is no leaf
    assert gradcheck(plain, leaf(2), check_forward_ad=True, check_backward_ad=False)
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        gradcheck(plain, leaf(2), check_forward_ad=True)
    with pytest.raises(AssertionError, match="at least one of check_forward_ad or check_backward_ad"):
        gradcheck(torch.exp, leaf(2), check_backward_ad=False)
    cube = lambda x: x**3  # noqa: E731
    assert gradgradcheck(cube, leaf(2), check_fwd_over_rev=True, gen_non_contig_grad_outputs=True)
    monkeypatch.setattr(WrongSquare, "error", 0.0)
    with pytest.raises(GradcheckError, match="computed with forward mode mismatch"):
        gradgradcheck(WrongSquare.apply, leaf(2), check_fwd_over_rev=True, check_rev_over_rev=False)


def test_an_output_without_history_may_stand_beside_others():
    assert gradcheck(lambda x: (x * x, x.detach()), leaf(2))
    with pytest.raises(GradcheckError, match="expected to be zero"):
        gradcheck(lambda x: x.detach() * 2, leaf(2))

"""differentiable=True: the same step, and its derivative, for every optimizer that has the option."""

from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad import optim

OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.1, "amsgrad": True}),
    ("Adamax", {"lr": 0.1}),
    ("NAdam", {"lr": 0.1}),
    ("RAdam", {"lr": 0.1, "betas": (0.9, 0.8)}),
    ("RMSprop", {"lr": 0.1, "centered": True, "momentum": 0.5, "alpha": 0.5}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1}),
    ("Adadelta", {"eps": 1e-2}),
    ("Rprop", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1, "lambd": 0.1, "t0": 1}),
]


def arguments() -> list[torch.Tensor]:
    """The start, and the gradients of four steps."""
    values = [[0.5, -1.0], [0.3, -0.2], [0.9, 0.4], [-0.5, 0.7], [0.1, 0.6]]
    return [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_steps_can_be_differentiated(name: str, options: dict[str, Any]) -> None:
    def steps(start: torch.Tensor, *grads: torch.Tensor, differentiable: bool = True) -> torch.Tensor:
        p = start.clone() if differentiable else start.detach().clone()
        optimizer = getattr(optim, name)([p], **options, differentiable=differentiable)
        for grad in grads:
            p.grad = grad if differentiable else grad.detach()
            optimizer.step()
        return p

    given = arguments()
    assert torch.allclose(steps(*given), steps(*given, differentiable=False), rtol=1e-6)
    torch.autograd.gradcheck(steps, given, fast_mode=True)


def test_options_that_are_multiplied_over_the_steps_have_a_gradient() -> None:
    """NAdam's product of momenta takes the gradient through all steps before."""

    def steps(beta1: torch.Tensor, momentum_decay: torch.Tensor) -> torch.Tensor:
        start, *grads = arguments()
        p = start.detach().clone()
        betas: Any = (beta1, 0.999)
        optimizer = optim.NAdam([p], 0.1, betas, momentum_decay=momentum_decay, differentiable=True)
        for grad in grads:
            p.grad = grad.detach()
            optimizer.step()
        return p

    options = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.9, 0.004)]
    torch.autograd.gradcheck(steps, options, fast_mode=True)


def test_the_learning_rate_has_a_gradient() -> None:
    """A step down (p - 3)**2 / 2 from 0 leads to 3 lr, where the slope by lr is -3 (3 - 3 lr)."""
    lr = torch.tensor(0.25, requires_grad=True)
    p = torch.zeros(1, requires_grad=True).clone()
    p.grad = p.detach() - 3
    optim.SGD([p], lr=lr, differentiable=True).step()
    ((p - 3).square() / 2).sum().backward()
    assert lr.grad.item() == pytest.approx(-3 * (3 - 0.75))

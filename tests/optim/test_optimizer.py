"""Optimizer: what it accepts, its hooks, closures, state and schedules; numbers are in tests/parity."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad import nn, optim
from ddpgrad.optim import lr_scheduler


def parameter(value: float = 1.0) -> Any:
    p = nn.Parameter(torch.full((2,), value))
    p.grad = torch.ones(2)
    return p


P = parameter()
ERRORS: list[tuple[Any, type[Exception], str]] = [
    (lambda: optim.SGD([]), ValueError, "empty parameter list"),
    (lambda: optim.SGD(P), TypeError, "iterable of Tensors or dicts, but got one Tensor"),
    (lambda: optim.SGD([3]), TypeError, "one of the params is int"),
    (lambda: optim.SGD([P * 2]), ValueError, "non-leaf Tensor"),
    (lambda: optim.SGD([{"params": {P}}]), TypeError, "ordering of tensors in sets"),
    (lambda: optim.SGD([{"params": [P]}, {"params": [P]}]), ValueError, "more than one parameter group"),
    (lambda: optim.SGD([P], lr=-1), ValueError, "Invalid learning rate: -1"),
    (lambda: optim.SGD([P], nesterov=True), ValueError, "Nesterov momentum requires"),
    (lambda: optim.Adam([P], betas=(0.9, 1.0)), ValueError, r"Invalid beta parameter at index 1: 1\.0"),
    (lambda: optim.Adam([P], differentiable=True), NotImplementedError, "Adam: differentiable"),
    (
        lambda: optim.Optimizer([P], {"lr": optim.optimizer.required}),
        ValueError,
        "required optimization parameter lr",
    ),
    (lambda: lr_scheduler.StepLR(P, 1), TypeError, "Parameter is not an Optimizer"),
    (lambda: lr_scheduler.StepLR(optim.SGD([P]), 1, last_epoch=3), KeyError, "initial_lr.*resuming"),
    (
        lambda: lr_scheduler.LambdaLR(optim.SGD([P]), [abs, abs]),
        ValueError,
        "Expected 1 lr_lambdas, but got 2",
    ),
]


@pytest.mark.parametrize(("act", "error", "message"), ERRORS)
def test_errors(act: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        act()


def test_loading_what_does_not_fit() -> None:
    p = parameter()
    optimizer = optim.Adam([p])
    optimizer.step()
    with pytest.raises(ValueError, match="different number of parameter groups: 2, but the optimizer has 1"):
        optimizer.load_state_dict(
            optim.Adam([{"params": [parameter()]}, {"params": [parameter()]}]).state_dict()
        )
    with pytest.raises(ValueError, match="group 0 has 2 parameters, but the optimizer's has 1"):
        optimizer.load_state_dict(optim.Adam([parameter(), parameter()]).state_dict())
    state = copy.deepcopy(optimizer.state_dict())
    state["state"][0]["exp_avg"] = torch.ones(3)
    with pytest.raises(
        ValueError, match=r"exp_avg of parameter 0 has shape \[3\], but the parameter has \[2\]"
    ):
        optimizer.load_state_dict(state)


def test_loaded_state_is_a_copy() -> None:
    source, target = optim.Adam([parameter()]), optim.Adam([parameter()])
    source.step()
    state = source.state_dict()
    target.load_state_dict(state)
    target.step()
    assert state["state"][0]["step"].item() == 1.0
    assert float(state["state"][0]["exp_avg"][0]) == pytest.approx(0.1)


def test_closures_and_hooks() -> None:
    p = parameter(3.0)
    optimizer = optim.SGD([("weight", p)], lr=0.5)
    assert optimizer.param_groups[0]["param_names"] == ["weight"]
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: calls.append("before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: calls.append(f"after {p.tolist()}"))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        calls.append("closure")
        return loss

    with torch.no_grad():
        assert float(optimizer.step(closure)) == 18.0
    assert calls == ["before", "closure", "after [0.0, 0.0]"]


def test_an_optimizer_of_the_user() -> None:
    class SignDescent(optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p].setdefault("seen", []).append(1)
                    p.data.add_(p.grad.sign(), alpha=-group["lr"])

    p = parameter()
    optimizer = SignDescent([p], lr=0.25)
    calls: list[Any] = []
    optimizer.register_step_post_hook(lambda *a: calls.append(a))
    optimizer.step()
    assert p.tolist() == [0.75, 0.75] and len(calls) == 1
    other = SignDescent([parameter()], lr=1.0)
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["lr"] == 0.25 and next(iter(other.state.values())) == {"seen": [1]}


def test_parameters_without_gradients_are_left_alone() -> None:
    used, unused = parameter(), parameter()
    unused.grad = None
    optimizer = optim.AdamW([used, unused], lr=0.1)
    optimizer.step()
    assert unused.tolist() == [1.0, 1.0] and unused not in optimizer.state
    optimizer.zero_grad(set_to_none=False)
    assert used.grad.tolist() == [0.0, 0.0] and unused.grad is None


def test_half_precision_and_complex_parameters() -> None:
    half = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    half.grad = torch.ones(3, dtype=torch.bfloat16)
    number = nn.Parameter(torch.tensor([1 + 2j]))
    number.grad = torch.tensor([3 - 1j])
    optim.Adam([half, number], lr=0.5).step()
    assert half.dtype is torch.bfloat16 and half.float().tolist() == pytest.approx([0.5] * 3, abs=0.01)
    assert number.tolist() == pytest.approx([0.5 + 2.5j])  # real and imaginary part go their own ways


def course(optimizer: Any, schedule: Any, steps: int) -> list[float]:
    rates = []
    for _ in range(steps):
        optimizer.step()
        schedule.step()
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


@pytest.mark.parametrize(
    "make",
    [
        lambda o: lr_scheduler.LambdaLR(o, lambda e: 1 / (e + 1)),
        lambda o: lr_scheduler.CosineAnnealingLR(o, 6),
        lambda o: lr_scheduler.MultiStepLR(o, [2, 5]),
        lambda o: lr_scheduler.OneCycleLR(o, 1.0, 20),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.ConstantLR(o, 0.1, 3), lr_scheduler.ExponentialLR(o, 0.5)], [4]
        ),
    ],
)
def test_schedules_continue_to_the_bit(make: Any) -> None:
    def start() -> tuple[Any, Any]:
        optimizer = optim.SGD([parameter()], lr=0.3, momentum=0.9)
        return optimizer, make(optimizer)

    optimizer, schedule = start()
    whole = course(optimizer, schedule, 12)
    optimizer, schedule = start()
    course(optimizer, schedule, 5)
    states = copy.deepcopy((optimizer.state_dict(), schedule.state_dict()))
    optimizer, schedule = start()
    optimizer.load_state_dict(states[0])
    schedule.load_state_dict(states[1])
    assert course(optimizer, schedule, 7) == whole[5:]


def test_a_schedule_before_the_first_step_is_told() -> None:
    optimizer = optim.SGD([parameter()], lr=0.3)
    schedule = lr_scheduler.StepLR(optimizer, 1)
    with pytest.warns(UserWarning, match=r"before `optimizer.step\(\)`"):
        schedule.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        course(optimizer, schedule, 2)

"""Optimizer: what it accepts, its hooks, closures, state and schedules; numbers are in tests/parity."""

import copy
import warnings
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad import nn, optim
from ddpgrad.optim import lr_scheduler
from ddpgrad.optim.elementwise import Elementwise, Update


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
    (lambda: optim.Adam([P], fused=True, foreach=True), RuntimeError, "`fused` and `foreach` cannot be"),
    (lambda: optim.RMSprop([P], alpha=-1), ValueError, "Invalid alpha value: -1"),
    (lambda: optim.Rprop([P], etas=(0.5, 0.9)), ValueError, r"Invalid eta values: 0\.5, 0\.9"),
    (lambda: optim.SGD([P], lr=torch.ones(2)), ValueError, "Tensor lr must be 1-element"),
    (
        lambda: optim.LBFGS([{"params": [P]}, {"params": [parameter()]}]),
        ValueError,
        "doesn't support per-parameter",
    ),
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
    with pytest.raises(
        ValueError, match="of another optimizer than Adam: its group 0 lacks betas, eps, and has damp"
    ):
        optimizer.load_state_dict(optim.SGD([parameter()], lr=0.1).state_dict())
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


def test_hooks_of_all_optimizers() -> None:
    calls: list[str] = []
    first, second = optim.SGD([parameter()]), optim.Adam([parameter()])
    first.register_step_pre_hook(lambda *a: calls.append("own before"))
    first.register_step_post_hook(lambda *a: calls.append("own after"))
    handles = [
        optim.optimizer.register_optimizer_step_pre_hook(
            lambda o, *a: calls.append(f"before {type(o).__name__}")
        ),
        optim.optimizer.register_optimizer_step_post_hook(lambda o, *a: calls.append("after")),
    ]
    first.step()
    second.step()
    for handle in handles:
        handle.remove()
    second.step()
    assert calls == ["before SGD", "own before", "own after", "after", "before Adam", "after"]


def test_groups_are_the_dicts_that_were_given() -> None:
    group = {"params": [parameter()], "lr": 0.5}
    optimizer = optim.SGD([group], lr=0.1, momentum=0.9)
    assert optimizer.param_groups[0] is group and group["momentum"] == 0.9
    optimizer.add_param_group({"params": parameter()})
    assert optimizer.param_groups[1]["lr"] == 0.1
    named = optim.SGD(nn.Linear(2, 2).named_parameters())
    assert named.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match="cannot add param group without names"):
        named.add_param_group({"params": [parameter()]})


def test_a_learning_rate_in_a_tensor() -> None:
    p, lr = parameter(), torch.tensor(0.5)
    optimizer = optim.SGD([p], lr=lr)
    optimizer.step()
    lr.fill_(0.25)
    optimizer.step()
    assert p.tolist() == [0.25, 0.25]


def test_a_copy_goes_its_own_way() -> None:
    p = parameter()
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9)
    optimizer.register_step_post_hook(lambda *a: pytest.fail("the hook was copied"))
    optimizer.state[p] = {"momentum_buffer": torch.ones(2)}
    copied = copy.deepcopy(optimizer)
    (other,) = copied.param_groups[0]["params"]
    other.grad = torch.ones(2)
    copied.step()
    assert p.tolist() == [1.0, 1.0] and other.tolist() != [1.0, 1.0] and len(optimizer.state[p]) == 1


@pytest.mark.parametrize("absent", ["exp_avg", "step"])
def test_state_that_lacks_a_part_is_not_begun_anew(absent: str) -> None:
    p = parameter()
    p.grad = torch.ones(2)
    optimizer = optim.Adam([p])
    optimizer.step()
    del optimizer.state[p][absent]
    with pytest.raises(KeyError, match=rf"shape \[2\] has .* lacks '{absent}'"):
        optimizer.step()


def test_a_nan_is_not_lost() -> None:
    """In the largest of former squares, as in every other state, NaN stays."""
    p = parameter()
    p.grad = torch.tensor([float("nan"), 1.0])
    optimizer = optim.Adam([p], amsgrad=True)
    for _ in range(2):
        optimizer.step()
    assert [v != v for v in optimizer.state[p]["max_exp_avg_sq"].tolist()] == [True, False]


def test_an_optimizer_of_one_rule() -> None:
    """What `Elementwise` asks of a new optimizer."""

    def lion(F: Any, param: Any, grad: Any, mean: Any, lr: Any, beta1: Any, beta2: Any) -> Any:
        step = F.sign(beta1 * mean + (1 - beta1) * grad)
        return param - lr * step, beta2 * mean + (1 - beta2) * grad

    class Lion(Elementwise):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr, "maximize": False})

        def _state_names(self, group: Any) -> tuple[str, ...]:
            return ("exp_avg",)

        def _update(self, group: Any, run: Any, skip: Any) -> Update:
            return Update(lion, (group["lr"], 0.9, 0.99))

    p = parameter()
    optimizer = Lion([p], lr=0.25)
    optimizer.step()
    assert p.tolist() == [0.75, 0.75]
    assert optimizer.state[p]["exp_avg"].tolist() == pytest.approx([0.01, 0.01])


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


def test_state_of_a_single_complex_number_and_a_direction_for_half_precision() -> None:
    for kind, expected in ((optim.Adagrad, 0.9 + 2.1j), (optim.Rprop, 0.9 + 2.1j)):
        number = nn.Parameter(torch.tensor(1 + 2j))
        number.grad = torch.tensor(3 - 1j)
        kind([number], lr=0.1).step()
        assert number.item() == pytest.approx(expected)
    half = nn.Parameter(torch.ones(2, 3, dtype=torch.bfloat16))
    optimizer = optim.LBFGS([half])

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (half * half).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert half.abs().max().item() < 0.01


def test_a_search_without_a_tolerance_ends_where_its_interval_has_no_width() -> None:
    p = nn.Parameter(torch.tensor([0.66, 0.26, 0.06]))
    optimizer = optim.LBFGS(
        [p], lr=1, max_iter=60, tolerance_grad=0, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (p * p * torch.tensor([1.0, 10.0, 100.0])).sum() + p.sin().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert p.tolist() == pytest.approx([-0.45018, -0.04994, -0.005], abs=1e-3)


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


def test_a_schedule_of_the_user() -> None:
    class Halving(lr_scheduler._LRScheduler):
        def get_lr(self) -> list[float]:
            if not self._get_lr_called_within_step:
                warnings.warn("not within step", stacklevel=2)
            return [base * 0.5**self.last_epoch for base in self.base_lrs]

    optimizer = optim.SGD([parameter()], lr=0.4)
    schedule = Halving(optimizer)
    assert course(optimizer, schedule, 2) == [0.2, 0.1] and schedule.get_last_lr() == [0.1]
    with pytest.warns(UserWarning, match="not within step"):
        schedule.get_lr()
    with pytest.warns(UserWarning, match=r"please use `get_last_lr\(\)`"):
        lr_scheduler.StepLR(optimizer, 1).get_lr()


def test_averaged_models_refuse_two_functions() -> None:
    average = optim.swa_utils.get_swa_avg_fn()
    with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn"):
        optim.swa_utils.AveragedModel(nn.Linear(1, 1), avg_fn=average, multi_avg_fn=average)
    with pytest.raises(ValueError, match=r"Invalid decay value 1\.5"):
        optim.swa_utils.get_ema_avg_fn(1.5)


def test_a_wrapper_that_runs_no_init_of_the_base_steps_what_it_wraps():
    class Wrapper(optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner

        @property
        def param_groups(self):
            return self.inner.param_groups

        def step(self, closure=None):
            return self.inner.step(closure)

    p = torch.nn.Parameter(torch.ones(1))
    wrapper = Wrapper(optim.SGD([p], lr=1.0))
    p.grad = torch.ones(1)
    wrapper.step()
    assert p.item() == 0


def test_combined_schedules_go_to_no_epoch():
    optimizer = optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    schedule = optim.lr_scheduler
    for combined in (
        schedule.ChainedScheduler([schedule.ExponentialLR(optimizer, 0.9)]),
        schedule.SequentialLR(
            optimizer, [schedule.ExponentialLR(optimizer, 0.9), schedule.StepLR(optimizer, 2)], [3]
        ),
    ):
        with pytest.raises(TypeError):
            combined.step(5)  # type: ignore[call-arg]

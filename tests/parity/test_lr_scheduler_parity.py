"""The learning rate schedules against PyTorch, epoch by epoch."""

import warnings
from typing import Any

import pytest
import torch as oracle

import ddpgrad
from ddpgrad import nn, optim

SCHEDULES = {
    "lambda": ("LambdaLR", {"lr_lambda": lambda e: min(1.0, (e + 1) / 10) * 0.95**e}),
    "lambdas": ("LambdaLR", {"lr_lambda": [lambda e: 0.9**e, lambda e: 1 / (e + 1)]}),
    "multiplicative": ("MultiplicativeLR", {"lr_lambda": lambda e: 0.9}),
    "step": ("StepLR", {"step_size": 7, "gamma": 0.5}),
    "multistep": ("MultiStepLR", {"milestones": [3, 3, 20], "gamma": 0.5}),
    "exponential": ("ExponentialLR", {"gamma": 0.93}),
    "constant": ("ConstantLR", {"factor": 0.25, "total_iters": 8}),
    "linear": ("LinearLR", {"start_factor": 0.2, "end_factor": 0.9, "total_iters": 12}),
    "polynomial": ("PolynomialLR", {"total_iters": 20, "power": 2.0}),
    "cosine": ("CosineAnnealingLR", {"T_max": 9, "eta_min": 0.001}),
    "restarts": ("CosineAnnealingWarmRestarts", {"T_0": 5, "T_mult": 2, "eta_min": 0.001}),
    "cyclic": ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 5}),
    "cyclic-halved": ("CyclicLR", {"base_lr": [0.01, 0.02], "max_lr": [0.2, 0.1], "step_size_up": 4,
                                   "step_size_down": 7, "mode": "triangular2"}),
    "cyclic-exponential": ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 5, "mode": "exp_range",
                                        "gamma": 0.95, "base_momentum": 0.5, "max_momentum": [0.7, 0.8]}),
    "cyclic-function": ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 5, "cycle_momentum": False,
                                     "scale_fn": lambda x: 1 / (1 + x), "scale_mode": "iterations"}),
    "swa": ("SWALR", {"swa_lr": [0.5, 0.02], "anneal_epochs": 6}),
    "swa-linear": ("SWALR", {"swa_lr": 0.5, "anneal_epochs": 6, "anneal_strategy": "linear"}),
    "swa-at-once": ("SWALR", {"swa_lr": 0.5, "anneal_epochs": 0}),
    "one-cycle": ("OneCycleLR", {"max_lr": 0.5, "total_steps": 45}),
    "one-cycle-linear": ("OneCycleLR", {"max_lr": [0.5, 0.2], "epochs": 5, "steps_per_epoch": 9, "three_phase": True,
                                        "anneal_strategy": "linear"}),
}  # fmt: skip


def _two_groups(stack: Any, package: Any) -> Any:
    first, second = stack.zeros(2), stack.zeros(3)
    return [{"params": [package.Parameter(first)]}, {"params": [package.Parameter(second)], "lr": 0.03}]


@pytest.mark.parametrize("momentum", [False, True], ids=["adam", "sgd"])
@pytest.mark.parametrize("case", SCHEDULES)
def test_schedules_like_pytorch(case: str, momentum: bool) -> None:
    name, options = SCHEDULES[case]

    def make(stack: Any, optimizers: Any) -> tuple[Any, Any]:
        groups = _two_groups(stack, stack.nn if stack is oracle else nn)
        chosen = optimizers.SGD(groups, lr=0.1, momentum=0.9) if momentum else optimizers.Adam(groups, lr=0.1)
        kinds = optimizers.swa_utils if name == "SWALR" else optimizers.lr_scheduler
        return chosen, getattr(kinds, name)(chosen, **options)

    _same_course(make(oracle, oracle.optim), make(ddpgrad, optim), 40)


def test_combined_schedules_like_pytorch() -> None:
    def make(stack: Any, optimizers: Any) -> tuple[Any, Any]:
        chosen = optimizers.SGD(_two_groups(stack, stack.nn if stack is oracle else nn), lr=0.1)
        kinds = optimizers.lr_scheduler
        warm = kinds.LinearLR(chosen, start_factor=0.1, total_iters=4)
        return chosen, kinds.SequentialLR(
            chosen,
            [warm, kinds.CosineAnnealingLR(chosen, T_max=10), kinds.ExponentialLR(chosen, 0.9)],
            [4, 14],
        )

    def chain(stack: Any, optimizers: Any) -> tuple[Any, Any]:
        chosen = optimizers.SGD(_two_groups(stack, stack.nn if stack is oracle else nn), lr=0.1)
        kinds = optimizers.lr_scheduler
        return chosen, kinds.ChainedScheduler(
            [kinds.ConstantLR(chosen, 0.1, 5), kinds.ExponentialLR(chosen, 0.9)]
        )

    _same_course(make(oracle, oracle.optim), make(ddpgrad, optim), 25)
    _same_course(chain(oracle, oracle.optim), chain(ddpgrad, optim), 25)


def _same_course(theirs: Any, ours: Any, epochs: int) -> None:
    for _ in range(epochs):
        for theirs_group, ours_group in zip(theirs[0].param_groups, ours[0].param_groups, strict=True):
            for key in {"lr", "initial_lr", "momentum", "betas"} & set(theirs_group):
                assert ours_group[key] == pytest.approx(theirs_group[key], rel=1e-12, abs=1e-15)
        assert ours[1].get_last_lr() == pytest.approx(theirs[1].get_last_lr(), rel=1e-12, abs=1e-15)
        for optimizer, schedule in (theirs, ours):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PyTorch's SequentialLR warns about its own call
                optimizer.step()
                schedule.step()


@pytest.mark.parametrize(
    "options",
    [
        {"patience": 2, "cooldown": 1, "factor": 0.5, "min_lr": [0.01, 0.02]},
        {"mode": "max", "patience": 1, "threshold": 0.1, "threshold_mode": "abs"},
        {"mode": "max", "patience": 0, "threshold": 0.2},
        {"patience": 1, "threshold": 0.05, "threshold_mode": "abs", "eps": 0.02},
    ],
)
def test_plateau_like_pytorch(options: dict[str, Any]) -> None:
    courses = []
    for stack, optimizers in ((oracle, oracle.optim), (ddpgrad, optim)):
        chosen = optimizers.SGD(_two_groups(stack, stack.nn if stack is oracle else nn), lr=0.1)
        schedule = optimizers.lr_scheduler.ReduceLROnPlateau(chosen, **options)
        course = []
        for epoch in range(30):
            schedule.step(1.0 / (1 + min(epoch, 5)) + 0.01 * (epoch % 2))
            course.append(schedule.get_last_lr())
        courses.append(course)
    assert courses[0] == courses[1]


@pytest.mark.parametrize("name", ["StepLR", "CosineAnnealingLR", "ExponentialLR", "LinearLR", "PolynomialLR"])
def test_jumps_and_tensors_like_pytorch(name: str) -> None:
    """A learning rate in a tensor, which stays that tensor; and an epoch given to `step`."""
    options = {"StepLR": {"step_size": 3}, "CosineAnnealingLR": {"T_max": 9}, "ExponentialLR": {"gamma": 0.9}}
    courses = []
    for stack in (oracle, ddpgrad):
        rate = stack.tensor(0.1, dtype=stack.float64)
        chosen = stack.optim.SGD([stack.nn.Parameter(stack.zeros(2))], lr=rate)
        schedule = getattr(stack.optim.lr_scheduler, name)(chosen, **options.get(name, {}))
        course = [float(rate)]
        for epoch in (None, None, 7, None, 2):
            chosen.step()
            if epoch is None:
                schedule.step()
            else:
                with pytest.warns(UserWarning, match="The epoch parameter in `scheduler.step"):
                    schedule.step(epoch)
            course += [float(rate), float(schedule.get_last_lr()[0])]
        assert chosen.param_groups[0]["lr"] is rate
        courses.append(course)
    assert courses[1] == pytest.approx(courses[0], rel=1e-12)


def test_no_schedule_is_forgotten() -> None:
    tested = {name for name, _ in SCHEDULES.values()} - {"SWALR"}
    combined = {"SequentialLR", "ChainedScheduler", "ReduceLROnPlateau"}  # tested apart
    assert set(oracle.optim.lr_scheduler.__all__) - tested - combined == {"LRScheduler"}


@pytest.mark.parametrize(
    ("name", "options"), [("OneCycleLR", {"max_lr": 0.5, "total_steps": 9}), ("ReduceLROnPlateau", {})]
)
def test_the_layout_of_a_state(name: str, options: dict[str, Any]) -> None:
    states = []
    for stack, optimizers in ((oracle, oracle.optim), (ddpgrad, optim)):
        chosen = optimizers.SGD([stack.nn.Parameter(stack.ones(1))], lr=0.1, momentum=0.9)
        states.append(getattr(optimizers.lr_scheduler, name)(chosen, **options).state_dict())
    wanted, found = states
    assert set(wanted) - set(found) <= {"use_beta1", "mode_worse"}
    for key in set(wanted) & set(found):
        assert found[key] == pytest.approx(wanted[key]) if key == "_last_lr" else found[key] == wanted[key], (
            key
        )

"""The learning rate schedules against PyTorch, epoch by epoch."""

import warnings
from typing import Any

import pytest
import torch
from both import agree

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


def _two_groups(library: Any) -> Any:
    first, second = (library.nn.Parameter(library.zeros(length)) for length in (2, 3))
    return [{"params": [first]}, {"params": [second], "lr": 0.03}]


@pytest.mark.parametrize("momentum", [False, True], ids=["adam", "sgd"])
@pytest.mark.parametrize("case", SCHEDULES)
def test_schedules_like_pytorch(case: str, momentum: bool) -> None:
    name, options = SCHEDULES[case]

    def program(library: Any) -> Any:
        optim, groups = library.optim, _two_groups(library)
        optimizer = optim.SGD(groups, lr=0.1, momentum=0.9) if momentum else optim.Adam(groups, lr=0.1)
        kinds = optim.swa_utils if name == "SWALR" else optim.lr_scheduler
        return _course(optimizer, getattr(kinds, name)(optimizer, **options), 40)

    agree(program, 1e-12)


def test_combined_schedules_like_pytorch() -> None:
    def sequence(library: Any) -> Any:
        optimizer = library.optim.SGD(_two_groups(library), lr=0.1)
        kinds = library.optim.lr_scheduler
        warm = kinds.LinearLR(optimizer, start_factor=0.1, total_iters=4)
        parts = [warm, kinds.CosineAnnealingLR(optimizer, T_max=10), kinds.ExponentialLR(optimizer, 0.9)]
        return _course(optimizer, kinds.SequentialLR(optimizer, parts, [4, 14]), 25)

    def chain(library: Any) -> Any:
        optimizer = library.optim.SGD(_two_groups(library), lr=0.1)
        kinds = library.optim.lr_scheduler
        parts = [kinds.ConstantLR(optimizer, 0.1, 5), kinds.ExponentialLR(optimizer, 0.9)]
        return _course(optimizer, kinds.ChainedScheduler(parts), 25)

    agree(sequence, 1e-12)
    agree(chain, 1e-12)


def _course(optimizer: Any, schedule: Any, epochs: int) -> list[Any]:
    course = []
    for _ in range(epochs):
        for group in optimizer.param_groups:
            course.append({key: group.get(key) for key in ("lr", "initial_lr", "momentum", "betas")})
        course.append(schedule.get_last_lr())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's SequentialLR warns about its own call
            optimizer.step()
            schedule.step()
    return course


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
    def program(library: Any) -> Any:
        optimizer = library.optim.SGD(_two_groups(library), lr=0.1)
        schedule = library.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        course = []
        for epoch in range(30):
            schedule.step(1.0 / (1 + min(epoch, 5)) + 0.01 * (epoch % 2))
            course.append(schedule.get_last_lr())
        return course

    agree(program, 0.0)


@pytest.mark.parametrize("name", ["StepLR", "CosineAnnealingLR", "ExponentialLR", "LinearLR", "PolynomialLR"])
def test_jumps_and_tensors_like_pytorch(name: str) -> None:
    """A learning rate in a tensor, which stays that tensor; and an epoch given to `step`."""
    options = {"StepLR": {"step_size": 3}, "CosineAnnealingLR": {"T_max": 9}, "ExponentialLR": {"gamma": 0.9}}

    def program(library: Any) -> Any:
        rate = library.tensor(0.1, dtype=library.float64)
        optimizer = library.optim.SGD([library.nn.Parameter(library.zeros(2))], lr=rate)
        schedule = getattr(library.optim.lr_scheduler, name)(optimizer, **options.get(name, {}))
        course = [float(rate)]
        for epoch in (None, None, 7, None, 2):
            optimizer.step()
            if epoch is None:
                schedule.step()
            else:
                with pytest.warns(UserWarning, match="The epoch parameter in `scheduler.step"):
                    schedule.step(epoch)
            course += [float(rate), float(schedule.get_last_lr()[0])]
        return course, optimizer.param_groups[0]["lr"] is rate

    assert agree(program, 1e-12)[1]


def test_no_schedule_is_forgotten() -> None:
    tested = {name for name, _ in SCHEDULES.values()} - {"SWALR"}
    combined = {"SequentialLR", "ChainedScheduler", "ReduceLROnPlateau"}  # tested apart
    assert set(torch.optim.lr_scheduler.__all__) - tested - combined == {"LRScheduler"}


@pytest.mark.parametrize(
    ("name", "options"), [("OneCycleLR", {"max_lr": 0.5, "total_steps": 9}), ("ReduceLROnPlateau", {})]
)
def test_the_layout_of_a_state(name: str, options: dict[str, Any]) -> None:
    def program(library: Any) -> Any:
        optimizer = library.optim.SGD([library.nn.Parameter(library.ones(1))], lr=0.1, momentum=0.9)
        state = getattr(library.optim.lr_scheduler, name)(optimizer, **options).state_dict()
        return {key: state[key] for key in sorted(state) if key not in ("use_beta1", "mode_worse")}

    agree(program)

"""The optimizers and schedules against PyTorch, over many steps, with every option."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import ddpgrad
from ddpgrad import nn, optim

oracle = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

STEPS = 100
SHAPES = [(4, 3), (8,), (13,), (), (2, 3, 2)]

OPTIMIZERS = {
    "sgd": ("SGD", {"lr": 0.1}),
    "sgd-decay-maximize": ("SGD", {"lr": 0.01, "weight_decay": 0.1, "maximize": True}),
    "sgd-momentum": ("SGD", {"lr": 0.05, "momentum": 0.9}),
    "sgd-dampening": ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    "sgd-nesterov": ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.01}),
    "adam": ("Adam", {"lr": 0.01}),
    "adam-decay": ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
    "adam-amsgrad-maximize": ("Adam", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    "adam-decoupled": ("Adam", {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "adamw": ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
    "adamw-amsgrad": ("AdamW", {"lr": 0.01, "amsgrad": True}),
}


def _values(dtype: Any = np.float64) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [np.array(rng.standard_normal(shape), dtype) for shape in SHAPES]


def _gradient(value: np.ndarray, step: int) -> np.ndarray:
    """Something that changes sign and size from step to step."""
    return np.array(np.sin(value * 3 + step) * (1 + step % 5) + 0.1 * value, value.dtype)


def _in_bucket(params: list[Any]) -> list[Any]:
    """Gradient tensors one after the other in one block, in reverse order, as data parallelism has them."""
    step = 64 // params[0].element_size()
    starts, end = {}, 0
    for i in reversed(range(len(params))):
        starts[i] = end
        end += -(-params[i].numel() // step) * step
    flat = np.zeros(end, params[0].dtype.numpy)
    parts = [flat[starts[i] : starts[i] + p.numel()] for i, p in enumerate(params)]
    return [ddpgrad.from_numpy(part.reshape(tuple(p.shape))) for part, p in zip(parts, params, strict=True)]


@pytest.mark.parametrize("layout", ["separate", "bucket"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("case", OPTIMIZERS)
def test_steps_like_pytorch(case: str, dtype: Any, layout: str) -> None:
    name, options = OPTIMIZERS[case]
    theirs = [oracle.nn.Parameter(oracle.tensor(v)) for v in _values(dtype)]
    ours = [nn.Parameter(ddpgrad.tensor(v)) for v in _values(dtype)]
    their_optimizer = getattr(oracle.optim, name)(theirs, **options)
    our_optimizer = getattr(optim, name)(ours, **options)
    bucket = _in_bucket(ours)
    for step in range(STEPS):
        for i, (p, q) in enumerate(zip(theirs, ours, strict=True)):
            missing = i == 1 and 20 <= step < 23  # a parameter that is not used for a while
            p.grad = None if missing else oracle.from_numpy(_gradient(p.detach().numpy(), step))
            grad = _gradient(p.detach().numpy(), step)
            if missing:
                q.grad = None
            elif layout == "bucket":
                bucket[i].copy_(ddpgrad.from_numpy(grad))
                q.grad = bucket[i]
            else:
                q.grad = ddpgrad.from_numpy(grad)
        their_optimizer.step()
        our_optimizer.step()
    tolerance = 1e-6 if dtype is np.float32 else 1e-12
    for p, q in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(q.detach().numpy(), p.detach().numpy(), rtol=tolerance * 5, atol=tolerance)
    _same_state(their_optimizer.state_dict(), our_optimizer.state_dict(), tolerance)


def _same_state(theirs: dict[str, Any], ours: dict[str, Any], tolerance: float) -> None:
    assert ours["param_groups"] == theirs["param_groups"]
    assert list(ours["state"]) == list(theirs["state"])
    for number, expected in theirs["state"].items():
        found = ours["state"][number]
        expected = {k: v for k, v in expected.items() if v is not None}
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert str(found[key].dtype) == str(value.dtype)
            np.testing.assert_allclose(found[key].numpy(), value.numpy(), rtol=tolerance * 5, atol=tolerance)


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_state_of_pytorch_can_be_continued(name: str) -> None:
    options = {"lr": 0.02, "momentum": 0.9} if name == "SGD" else {"lr": 0.02}
    theirs = [oracle.nn.Parameter(oracle.tensor(v)) for v in _values()]
    their_optimizer = getattr(oracle.optim, name)(theirs, **options)
    ours: list[Any] = []
    our_optimizer: Any = None
    for step in range(20):
        if step == 10:
            ours = [nn.Parameter(ddpgrad.tensor(p.detach().numpy())) for p in theirs]
            our_optimizer = getattr(optim, name)(ours, lr=1.0)
            our_optimizer.load_state_dict(_converted(their_optimizer.state_dict()))
        gradients = [_gradient(p.detach().numpy(), step) for p in theirs]
        for p, q in zip(theirs, gradients, strict=True):
            p.grad = oracle.from_numpy(q)
        for p, q in zip(ours, gradients, strict=False):
            p.grad = ddpgrad.tensor(q)
        their_optimizer.step()
        if our_optimizer is not None:
            our_optimizer.step()
    for p, q in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(q.detach().numpy(), p.detach().numpy(), rtol=1e-12)


def _converted(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _converted(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_converted(v) for v in value]
    return ddpgrad.from_numpy(value.numpy()) if isinstance(value, oracle.Tensor) else value


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
        return chosen, getattr(optimizers.lr_scheduler, name)(chosen, **options)

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


def test_plateau_like_pytorch() -> None:
    courses = []
    for stack, optimizers in ((oracle, oracle.optim), (ddpgrad, optim)):
        chosen = optimizers.SGD(_two_groups(stack, stack.nn if stack is oracle else nn), lr=0.1)
        schedule = optimizers.lr_scheduler.ReduceLROnPlateau(
            chosen, patience=2, cooldown=1, factor=0.5, min_lr=[0.01, 0.02]
        )
        course = []
        for epoch in range(30):
            schedule.step(1.0 / (1 + min(epoch, 5)) + 0.01 * (epoch % 2))
            course.append([group["lr"] for group in chosen.param_groups])
        courses.append(course)
    assert courses[0] == courses[1]

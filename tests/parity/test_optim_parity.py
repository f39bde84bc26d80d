"""The optimizers against PyTorch, over many steps, with every option."""

from typing import Any

import numpy as np
import pytest
import torch as oracle

import ddpgrad
from ddpgrad import nn, optim

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
    "adam-fused": ("Adam", {"lr": 0.01, "fused": True}),
    "adamax": ("Adamax", {"lr": 0.01}),
    "adamax-decay": ("Adamax", {"betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1, "maximize": True}),
    "nadam": ("NAdam", {"lr": 0.01}),
    "nadam-decay": ("NAdam", {"weight_decay": 0.1, "momentum_decay": 0.1, "betas": (0.8, 0.95), "maximize": True}),
    "nadam-decoupled": ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    "radam": ("RAdam", {"lr": 0.01}),
    "radam-decay": ("RAdam", {"weight_decay": 0.1, "eps": 1e-4, "betas": (0.8, 0.95), "maximize": True}),
    "radam-decoupled": ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    "rmsprop": ("RMSprop", {}),
    "rmsprop-centered": ("RMSprop", {"centered": True, "alpha": 0.9, "eps": 1e-2, "maximize": True}),
    "rmsprop-momentum": ("RMSprop", {"lr": 0.001, "momentum": 0.8, "weight_decay": 0.1}),
    "rmsprop-both": ("RMSprop", {"lr": 0.001, "centered": True, "momentum": 0.8, "eps": 1e-2}),
    "adagrad": ("Adagrad", {"lr": 0.1}),
    "adagrad-decay": ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5,
                                  "eps": 1e-3, "maximize": True}),
    "adadelta": ("Adadelta", {}),
    "adadelta-decay": ("Adadelta", {"lr": 0.5, "rho": 0.7, "eps": 1e-4, "weight_decay": 0.1, "maximize": True}),
    "rprop": ("Rprop", {}),
    "rprop-sizes": ("Rprop", {"lr": 0.1, "etas": (0.4, 1.3), "step_sizes": (1e-3, 0.2), "maximize": True}),
    "asgd": ("ASGD", {}),
    "asgd-averages": ("ASGD", {"lr": 0.05, "lambd": 0.1, "alpha": 0.5, "t0": 10, "weight_decay": 0.1,
                               "maximize": True}),
    "adafactor": ("Adafactor", {}),
    "adafactor-options": ("Adafactor", {"lr": 0.1, "beta2_decay": -0.5, "eps": (1e-4, 1e-2), "d": 1.5,
                                        "weight_decay": 0.1, "maximize": True}),
}  # fmt: skip


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


STATEFUL = ["sgd-momentum", "adamw-amsgrad", "adamax", "nadam", "radam", "rmsprop-both", "adagrad-decay", "adadelta",
            "rprop", "asgd-averages", "adafactor"]  # fmt: skip


@pytest.mark.parametrize("case", STATEFUL)
def test_states_can_be_continued_in_the_other_package(case: str) -> None:
    """After ten steps each continues with the state of the other."""
    name, options = OPTIMIZERS[case]
    start = _values()
    courses = []
    for first, second in ((oracle, ddpgrad), (ddpgrad, oracle)):
        values = start
        state: dict[str, Any] | None = None
        for stack in (first, second):
            params = [stack.nn.Parameter(stack.tensor(v)) for v in values]
            optimizer = getattr(stack.optim, name)(params, **(options if state is None else {}))
            if state is not None:
                optimizer.load_state_dict(_state(state, stack))
            for step in range(10):
                for p in params:
                    p.grad = stack.from_numpy(_gradient(p.detach().numpy(), step))
                optimizer.step()
            values, state = [p.detach().numpy().copy() for p in params], optimizer.state_dict()
        courses.append(values)
    for p, q in zip(*courses, strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-10, atol=1e-12)


LBFGS = {
    "steps": {"lr": 0.1, "max_iter": 5},
    "search": {"line_search_fn": "strong_wolfe", "max_iter": 8, "history_size": 3},
    "few evaluations": {"line_search_fn": "strong_wolfe", "max_iter": 10, "max_eval": 6},
}


@pytest.mark.parametrize("case", LBFGS)
def test_lbfgs_like_pytorch(case: str) -> None:
    """On Rosenbrock's function, with the state handed over both ways on the way."""

    def start(stack: Any, values: Any) -> tuple[Any, Any, Any]:
        params = [stack.nn.Parameter(stack.tensor(v)) for v in values]
        optimizer = stack.optim.LBFGS(params, **LBFGS[case])

        def closure() -> Any:
            optimizer.zero_grad()
            x = stack.cat([p.reshape(-1) for p in params])
            loss = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
            loss.backward()
            return loss.detach()

        return params, optimizer, closure

    values = [np.array([-1.2, 1.0]), np.array([[0.5], [2.0]])]
    theirs, ours = start(oracle, values), start(ddpgrad, values)
    for step in range(10):
        if step == 5:
            states = _state(theirs[1].state_dict(), ddpgrad), _state(ours[1].state_dict(), oracle)
            here = [p.detach().numpy().copy() for p in ours[0]]
            theirs, ours = start(oracle, here), start(ddpgrad, here)
            ours[1].load_state_dict(states[0])
            theirs[1].load_state_dict(states[1])
        wanted, found = theirs[1].step(theirs[2]), ours[1].step(ours[2])
        assert float(found) == pytest.approx(float(wanted), rel=1e-6, abs=1e-12)
    for p, q in zip(theirs[0], ours[0], strict=True):
        np.testing.assert_allclose(q.detach().numpy(), p.detach().numpy(), rtol=1e-6)
    mine, wanted = ours[1].state_dict()["state"][0], theirs[1].state_dict()["state"][0]
    assert {**wanted, "al": None}.keys() == {**mine, "al": None}.keys()
    assert (mine["func_evals"], mine["n_iter"]) == (wanted["func_evals"], wanted["n_iter"])


MUON = {
    "defaults": {},
    "plain momentum": {"nesterov": False, "momentum": 0.8, "weight_decay": 0.0, "lr": 0.02},
    "matched": {
        "adjust_lr_fn": "match_rms_adamw",
        "lr": 0.02,
        "ns_steps": 3,
        "ns_coefficients": (2.0, -1.5, 0.5),
    },
}


@pytest.mark.parametrize("case", MUON)
def test_muon_like_pytorch(case: str) -> None:
    """Its matrix iteration rounds to bfloat16, in an order that is the library's own."""
    values = [v.reshape(-1, 3) for v in _values(np.float32) if v.size % 3 == 0]
    runs = []
    for stack in (oracle, ddpgrad):
        params = [stack.nn.Parameter(stack.tensor(v)) for v in values]
        optimizer = stack.optim.Muon(params, **MUON[case])
        for step in range(10):
            for p, v in zip(params, values, strict=True):
                p.grad = stack.from_numpy(_gradient(v, step))
            optimizer.step()
        runs.append((params, optimizer.state_dict()))
    lr = MUON[case].get("lr", 1e-3)
    for p, q in zip(runs[0][0], runs[1][0], strict=True):
        np.testing.assert_allclose(q.detach().numpy(), p.detach().numpy(), rtol=0, atol=0.3 * lr)
    _same_state(runs[0][1], runs[1][1], 1e-6)


def test_no_optimizer_is_forgotten() -> None:
    classes = {n for n in oracle.optim.__all__ if isinstance(getattr(oracle.optim, n, None), type)}
    tested = {name for name, _ in OPTIMIZERS.values()} | {"LBFGS", "Muon"}
    assert classes - tested == {"Optimizer", "SparseAdam"}  # the base; and one in `test_sparse_parity.py`


def test_the_text_of_an_optimizer() -> None:
    texts = []
    for stack in (oracle, ddpgrad):
        optimizer = stack.optim.SGD([stack.nn.Parameter(stack.ones(1))], lr=0.5)
        optimizer.add_param_group({"params": stack.nn.Parameter(stack.ones(1)), "lr": 0.25})
        texts.append(repr(optimizer))
    assert texts[0] == texts[1]


def _state(value: Any, library: Any) -> Any:
    """The state of an optimizer with the tensors of the other library."""
    if isinstance(value, dict):
        return {k: _state(v, library) for k, v in value.items()}
    if isinstance(value, list):
        return [_state(v, library) for v in value]
    return library.from_numpy(value.numpy()) if hasattr(value, "numpy") else value

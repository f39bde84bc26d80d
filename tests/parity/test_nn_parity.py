"""Initial values, random draws, hooks and edges of layers against PyTorch; `test_every_module.py` has every layer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ddpgrad
from ddpgrad import nn

oracle = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

Make = Callable[[Any], Any]  # of the `nn` of either stack


def _images(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def _pair(make: Make) -> tuple[Any, Any]:
    """The same module on both stacks, from the same seed."""
    oracle.manual_seed(3)
    ddpgrad.manual_seed(3)
    return make(oracle.nn), make(nn)


def _close(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    found, expected = (t.detach().numpy() for t in (found, expected))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_embedding() -> None:
    theirs, ours = _pair(lambda n: n.Embedding(7, 3, padding_idx=-2))
    indices = np.array([[0, 5, 5], [6, 1, 0]])
    x, y = theirs(oracle.tensor(indices)), ours(ddpgrad.tensor(indices))
    _close(y, x, 1e-6)
    (x * x).sum().backward()
    (y * y).sum().backward()
    _close(ours.weight.grad, theirs.weight.grad)


def _weights(package: Any) -> Any:
    values = np.array([0.5, 1.5, 2.0, 0.7], np.float32)
    return ddpgrad.tensor(values) if package is nn else oracle.tensor(values)


EXTREMES: dict[str, tuple[Make, np.ndarray, np.ndarray | None]] = {
    "log-sigmoid": (lambda n: n.LogSigmoid(), _images(3, 4) * 50, None),
    "bce": (lambda n: n.BCELoss(), np.array([0, 0.2, 1, 1], np.float32), np.array([1, 0.5, 1, 0], np.float32)),
    "bce-logits": (
        lambda n: n.BCEWithLogitsLoss(pos_weight=_weights(n)), _images(3, 4) * 40, np.abs(np.sin(_images(3, 4)))
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EXTREMES)
def test_extreme_values(case: str) -> None:
    make, values, target = EXTREMES[case]
    results = []
    for stack in (oracle, ddpgrad):
        x = stack.tensor(values, requires_grad=True)
        out = make(stack.nn)(x, *([] if target is None else [stack.tensor(target)]))
        out.sum().backward()
        results.append((out, x.grad))
    for expected, found in zip(*results, strict=True):
        _close(found, expected)


INITS: dict[str, Callable[[Any, Any], Any]] = {
    "uniform": lambda init, w: init.uniform_(w, -2.0, 3.0),
    "normal": lambda init, w: init.normal_(w, 1.0, 2.0),
    "trunc-normal": lambda init, w: init.trunc_normal_(w, 0.1, 0.5, -0.4, 0.9),
    "trunc-normal-narrow": lambda init, w: init.trunc_normal_(w, 0.0, 1.0, 0.5, 0.9),
    "xavier-uniform": lambda init, w: init.xavier_uniform_(w, init.calculate_gain("tanh")),
    "xavier-normal": lambda init, w: init.xavier_normal_(w),
    "kaiming-uniform": lambda init, w: init.kaiming_uniform_(w, mode="fan_out", nonlinearity="relu"),
    "kaiming-normal": lambda init, w: init.kaiming_normal_(w, a=0.3),
    "orthogonal": lambda init, w: init.orthogonal_(w, 2.0),
    "constant": lambda init, w: init.constant_(w, 0.3),
    "dirac": lambda init, w: init.dirac_(w, 2),
}


@pytest.mark.parametrize("case", INITS)
def test_initial_values(case: str) -> None:
    for shape in ((6, 4, 3, 3), (4, 30, 1, 1)):
        oracle.manual_seed(5)
        ddpgrad.manual_seed(5)
        theirs, ours = oracle.nn.Parameter(oracle.empty(shape)), nn.Parameter(ddpgrad.empty(shape))
        INITS[case](oracle.nn.init, theirs)
        assert INITS[case](nn.init, ours) is ours
        _close(ours, theirs, 1e-5 if case == "orthogonal" else 2e-6)
    assert ddpgrad.rand(1).item() == oracle.rand(1).item()  # both streams stand at the same place


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clipping(norm_type: float, max_norm: float) -> None:
    gradients = [_images(4, 3), _images(7) * 3, np.array(2.0, np.float32)]
    theirs = [oracle.nn.Parameter(oracle.zeros(g.shape)) for g in gradients]
    ours = [nn.Parameter(ddpgrad.zeros(g.shape)) for g in gradients]
    for p, q, g in zip(theirs, ours, gradients, strict=True):
        p.grad, q.grad = oracle.tensor(g), ddpgrad.tensor(g)
    expected = oracle.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    _close(nn.utils.clip_grad_norm_(iter(ours), max_norm, norm_type), expected, 1e-6)
    for p, q in zip(theirs, ours, strict=True):
        _close(q.grad, p.grad, 1e-6)
    oracle.nn.utils.clip_grad_value_(theirs, 0.1)
    nn.utils.clip_grad_value_(ours, 0.1)
    for p, q in zip(theirs, ours, strict=True):
        _close(q.grad, p.grad, 1e-6)


def test_backward_hooks_see_what_pytorch_shows() -> None:
    seen: list[list[Any]] = []
    for package, stack in ((oracle.nn, oracle), (nn, ddpgrad)):
        stack.manual_seed(0)
        log: list[Any] = []
        model = package.Sequential(package.Linear(3, 4), package.Tanh(), package.Linear(4, 2))

        def note(module: Any, grad_input: Any, grad_output: Any, log: list[Any] = log) -> None:
            gradients = [
                None if g is None else g.detach().numpy().copy() for g in (*grad_input, *grad_output)
            ]
            log.append((type(module).__name__, gradients))

        for module in model:
            module.register_full_backward_hook(note)
        model[1].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
        model[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns that the first input needs no gradient
            model(stack.tensor(_images(5, 3))).sum().backward()
        log.append(("weight", [model[0].weight.grad.numpy()]))
        seen.append(log)
    for (name, expected), (found_name, found) in zip(*seen, strict=True):
        assert found_name == name
        for e, f in zip(expected, found, strict=True):
            assert (e is None) == (f is None)
            if e is not None:
                np.testing.assert_allclose(f, e, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("between", ["permuted", "relu", "softmax", "layer_norm"])
@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 1, 0)])
@pytest.mark.parametrize("shape", [(3, 40, 5), (3, 1, 50)])
def test_dropout_after_a_permutation_draws_in_order_of_memory(
    shape: tuple[int, ...], order: tuple[int, ...], between: str
):
    results = []
    for module in (oracle, ddpgrad):
        module.manual_seed(4)
        functions = module.nn.functional
        x = module.ones(*shape, requires_grad=True)
        y = x.permute(order)
        if between == "layer_norm":
            y = functions.layer_norm(y, y.shape[1:], bias=module.ones(y.shape[1:]))
        elif between != "permuted":
            y = functions.relu(y) if between == "relu" else functions.softmax(y * 2, 1)
        dropped = functions.dropout(y, 0.5)
        dropped.square().sum().backward()
        results.append((dropped.detach().numpy(), x.grad.numpy()))
    for expected, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("form", ["dropout", "dropout2d", "alpha_dropout"])
def test_dropout_draws_pytorchs_numbers(form: str, p: float):
    results = []
    for module in (oracle, ddpgrad):
        module.manual_seed(4)
        drop = getattr(module.nn.functional, form)
        dropped = drop(module.ones(3, 40, 2, 3000 if p < 0.5 else 3), p, True)
        results.append((dropped.numpy(), module.rand(2).numpy()))
    for expected, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("form", ["max_pool1d", "avg_pool1d", "max_pool2d", "avg_pool2d"])
def test_in_ceil_mode_one_window_may_be_larger_than_the_image(form: str):
    shape = (2, 3, 7) if form.endswith("1d") else (2, 3, 7, 5)
    results = []
    for module in (oracle, ddpgrad):
        x = module.arange(float(np.prod(shape))).reshape(shape).requires_grad_()
        pooled = getattr(module.nn.functional, form)(x, 8, ceil_mode=True)
        pooled.sum().backward()
        results.append((pooled.detach().numpy(), x.grad.numpy()))
        with pytest.raises(RuntimeError):
            getattr(module.nn.functional, form)(x, 8)
        with pytest.raises(RuntimeError):
            getattr(module.nn.functional, form)(x, 8, stride=1, ceil_mode=True)
    for expected, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)

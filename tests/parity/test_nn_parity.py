"""Layers, losses, functions and initial values against PyTorch: results, gradients, buffers and random draws."""

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


LAYERS: dict[str, tuple[Make, np.ndarray]] = {
    "linear": (lambda n: n.Linear(5, 3), _images(4, 2, 5)),
    "linear-no-bias": (lambda n: n.Linear(5, 3, bias=False), _images(5)),
    "conv": (lambda n: n.Conv2d(4, 6, 3, stride=2, padding=(1, 2)), _images(2, 4, 7, 6)),
    "conv-groups": (
        lambda n: n.Conv2d(4, 6, (3, 2), groups=2, dilation=(1, 2), bias=False),
        _images(2, 4, 7, 6),
    ),
    "conv-same": (lambda n: n.Conv2d(2, 3, 3, padding="same"), _images(2, 5, 4)),
    "layer-norm": (lambda n: n.LayerNorm(5), _images(4, 2, 5)),
    "layer-norm-2d": (lambda n: n.LayerNorm((2, 5), eps=1e-3, bias=False), _images(4, 2, 5)),
    "batch-norm-1d": (lambda n: n.BatchNorm1d(5), _images(6, 5)),
    "batch-norm-1d-length": (lambda n: n.BatchNorm1d(5, momentum=None), _images(6, 5, 3)),
    "batch-norm": (lambda n: n.BatchNorm2d(4, momentum=0.3, eps=1e-3), _images(3, 4, 2, 5)),
    "batch-norm-plain": (
        lambda n: n.BatchNorm2d(4, affine=False, track_running_stats=False),
        _images(3, 4, 2, 5),
    ),
    "max-pool": (lambda n: n.MaxPool2d(3, stride=2, padding=1), _images(2, 3, 7, 6)),
    "max-pool-ceil": (lambda n: n.MaxPool2d(2, ceil_mode=True), _images(3, 7, 5)),
    "avg-pool": (lambda n: n.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), _images(2, 3, 7, 6)),
    "avg-pool-divisor": (lambda n: n.AvgPool2d(2, divisor_override=3), _images(2, 3, 6, 6)),
    "adaptive-one": (lambda n: n.AdaptiveAvgPool2d(1), _images(2, 3, 7, 6)),
    "adaptive": (lambda n: n.AdaptiveAvgPool2d((3, None)), _images(2, 3, 7, 6)),
    "adaptive-even": (lambda n: n.AdaptiveAvgPool2d((2, 3)), _images(2, 3, 4, 6)),
    "relu": (lambda n: n.ReLU(), _images(3, 4)),
    "relu6": (lambda n: n.ReLU6(), _images(3, 4) * 8),
    "leaky-relu": (lambda n: n.LeakyReLU(0.2), _images(3, 4)),
    "prelu": (lambda n: n.PReLU(4), _images(3, 4, 2)),
    "elu": (lambda n: n.ELU(0.7), _images(3, 4)),
    "gelu": (lambda n: n.GELU(), _images(3, 4)),
    "gelu-tanh": (lambda n: n.GELU("tanh"), _images(3, 4)),
    "silu": (lambda n: n.SiLU(), _images(3, 4)),
    "mish": (lambda n: n.Mish(), _images(3, 4)),
    "glu": (lambda n: n.GLU(1), _images(3, 4)),
    "hardtanh": (lambda n: n.Hardtanh(-0.5, 0.3), _images(3, 4)),
    "tanh": (lambda n: n.Tanh(), _images(3, 4)),
    "sigmoid": (lambda n: n.Sigmoid(), _images(3, 4)),
    "log-sigmoid": (lambda n: n.LogSigmoid(), _images(3, 4) * 50),
    "softplus": (lambda n: n.Softplus(2, 5), _images(3, 4) * 4),
    "softmax": (lambda n: n.Softmax(1), _images(3, 4, 2)),
    "log-softmax": (lambda n: n.LogSoftmax(-1), _images(3, 4)),
    "flatten": (lambda n: n.Flatten(1, 2), _images(3, 4, 2, 2)),
    "unflatten": (lambda n: n.Unflatten(1, (2, -1)), _images(3, 4, 2)),
    "sequential": (
        lambda n: n.Sequential(
            n.Conv2d(1, 4, 3), n.BatchNorm2d(4), n.ReLU(inplace=True), n.Flatten(), n.Linear(64, 3)
        ),
        _images(5, 1, 6, 6),
    ),
}


def _pair(make: Make) -> tuple[Any, Any]:
    """The same module on both stacks, from the same seed."""
    oracle.manual_seed(3)
    ddpgrad.manual_seed(3)
    return make(oracle.nn), make(nn)


def _close(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    found, expected = (t.detach().numpy() for t in (found, expected))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", LAYERS)
def test_layer(case: str) -> None:
    make, values = LAYERS[case]
    theirs, ours = _pair(make)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for expected, found in zip(theirs.state_dict().values(), ours.state_dict().values(), strict=True):
        _close(found, expected, 1e-6)  # the seed alone makes them equal
    for training in (True, True, False):
        x, y = oracle.tensor(values, requires_grad=True), ddpgrad.tensor(values, requires_grad=True)
        expected, found = theirs.train(training)(x), ours.train(training)(y)
        _close(found, expected)
        (expected * expected.detach().cos()).sum().backward()
        (found * found.detach().cos()).sum().backward()
        _close(y.grad, x.grad, 1e-4)
        for p, q in zip(theirs.parameters(), ours.parameters(), strict=True):
            _close(q.grad, p.grad, 1e-4)
    for expected, found in zip(theirs.buffers(), ours.buffers(), strict=True):
        _close(found, expected)


def test_embedding() -> None:
    theirs, ours = _pair(lambda n: n.Embedding(7, 3, padding_idx=-2))
    indices = np.array([[0, 5, 5], [6, 1, 0]])
    x, y = theirs(oracle.tensor(indices)), ours(ddpgrad.tensor(indices))
    _close(y, x, 1e-6)
    (x * x).sum().backward()
    (y * y).sum().backward()
    _close(ours.weight.grad, theirs.weight.grad)


CLASSES = np.array([0, 3, 2, 3, 1, -100])
LOSSES: dict[str, tuple[Make, Any, Any]] = {
    "cross-entropy": (lambda n: n.CrossEntropyLoss(), _images(6, 4), CLASSES),
    "cross-entropy-smooth": (
        lambda n: n.CrossEntropyLoss(label_smoothing=0.1, ignore_index=2, reduction="sum"),
        _images(5, 4),
        CLASSES[:5],
    ),
    "cross-entropy-weighted": (lambda n: n.CrossEntropyLoss(_weights(n)), _images(6, 4), CLASSES),
    "cross-entropy-dims": (
        lambda n: n.CrossEntropyLoss(_weights(n), reduction="none"),
        _images(2, 4, 3),
        CLASSES.reshape(2, 3),
    ),
    "cross-entropy-one": (lambda n: n.CrossEntropyLoss(), _images(4), np.array(2)),
    "cross-entropy-soft": (
        lambda n: n.CrossEntropyLoss(_weights(n), label_smoothing=0.2),
        _images(5, 4, 2),
        np.abs(_images(5, 4, 2)) / 4,
    ),
    "nll": (lambda n: n.NLLLoss(_weights(n)), _images(6, 4), CLASSES),
    "nll-dims": (
        lambda n: n.NLLLoss(ignore_index=3, reduction="none"),
        _images(2, 4, 2),
        CLASSES[:4].reshape(2, 2),
    ),
    "mse": (lambda n: n.MSELoss(), _images(3, 4), _images(12).reshape(3, 4) * 2),
    "l1": (lambda n: n.L1Loss(reduction="sum"), _images(3, 4), _images(12).reshape(3, 4) * 2),
    "smooth-l1": (lambda n: n.SmoothL1Loss(beta=0.5), _images(3, 4), _images(12).reshape(3, 4) * 2),
    "huber": (lambda n: n.HuberLoss(delta=0.5), _images(3, 4), _images(12).reshape(3, 4) * 2),
    "bce": (
        lambda n: n.BCELoss(),
        np.array([0.0, 0.2, 1.0, 1.0], np.float32),
        np.array([1, 0.5, 1, 0], np.float32),
    ),
    "bce-logits": (
        lambda n: n.BCEWithLogitsLoss(pos_weight=_weights(n)),
        _images(3, 4) * 40,
        np.abs(np.sin(_images(3, 4))),
    ),
    "kl-div": (lambda n: n.KLDivLoss(reduction="batchmean"), _images(3, 4), np.abs(_images(3, 4)) // 0.5),
}


def _weights(package: Any) -> Any:
    values = np.array([0.5, 1.5, 2.0, 0.7], np.float32)
    return ddpgrad.tensor(values) if package is nn else oracle.tensor(values)


@pytest.mark.parametrize("case", LOSSES)
def test_loss(case: str) -> None:
    make, values, target = LOSSES[case]
    theirs, ours = _pair(make)
    x, y = oracle.tensor(values, requires_grad=True), ddpgrad.tensor(values, requires_grad=True)
    expected, found = theirs(x, oracle.tensor(target)), ours(y, ddpgrad.tensor(target))
    assert tuple(found.shape) == tuple(expected.shape)
    _close(found, expected)
    expected.sum().backward()
    found.sum().backward()
    _close(y.grad, x.grad, 1e-4)


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "pad": lambda F, x: F.pad(x, (1, 2, -1, 3), value=0.5),
    "normalize": lambda F, x: F.normalize(x, p=3.0, dim=0),
    "cosine": lambda F, x: F.cosine_similarity(x, x.flip(0), dim=1),
    "one-hot": lambda F, x: F.one_hot((x > 0).long(), 3).float() * x.unsqueeze(-1),
    "softmin": lambda F, x: F.softmin(x, dim=1),
    "attention": lambda F, x: F.scaled_dot_product_attention(
        x[None], x[None] * 2, x[None].sin(), is_causal=True
    ),
    "attention-mask": lambda F, x: F.scaled_dot_product_attention(
        x, x, x, attn_mask=(x @ x.T > 0).float(), scale=0.3
    ),
    "attention-bool": lambda F, x: F.scaled_dot_product_attention(x, x, x, attn_mask=x @ x.T > -1),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_function(case: str) -> None:
    values = _images(4, 5)
    x, y = oracle.tensor(values, requires_grad=True), ddpgrad.tensor(values, requires_grad=True)
    expected, found = FUNCTIONS[case](oracle.nn.functional, x), FUNCTIONS[case](nn.functional, y)
    _close(found, expected)
    expected.square().sum().backward()
    found.square().sum().backward()
    _close(y.grad, x.grad, 1e-4)


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

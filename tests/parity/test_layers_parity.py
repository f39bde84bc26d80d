"""Activations in place, embeddings, dropout and lazy layers against PyTorch, beyond `test_every_module.py`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ddpgrad

oracle = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

Make = Callable[[Any], Any]  # of either stack
RNG = np.random.default_rng(1)


def _values(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def _close(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    found, expected = (t.detach().numpy() for t in (found, expected))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def _pair(make: Make) -> tuple[Any, Any]:
    oracle.manual_seed(3)
    ddpgrad.manual_seed(3)
    theirs, ours = make(oracle), make(ddpgrad)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for expected, found in zip(theirs.state_dict().values(), ours.state_dict().values(), strict=True):
        _close(found, expected, 1e-6)  # the seed alone makes them equal
    return theirs, ours


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    **{
        f"{name}-in-place": lambda t, x, name=name, more=more: getattr(t.nn.functional, name)(
            x * 1, *more, inplace=True
        )
        for name, more in {
            "relu": (), "elu": (0.5,), "celu": (0.5,), "selu": (), "silu": (), "mish": (), "hardswish": (),
            "hardsigmoid": (), "leaky_relu": (0.3,), "threshold": (0.1, 2.0), "rrelu": (0.1, 0.4, True),
            "hardtanh": (-0.3, 0.4),
        }.items()
    },
    "relu_": lambda t, x: t.nn.functional.relu_(x * 1),
    "gumbel": lambda t, x: t.nn.functional.gumbel_softmax(x, 0.5),
    "gumbel-hard": lambda t, x: t.nn.functional.gumbel_softmax(x, hard=True, dim=0) * x,
}  # fmt: skip


@pytest.mark.parametrize("case", FUNCTIONS)
def test_function(case: str) -> None:
    values = _values(4, 5)
    found = []
    for stack in (oracle, ddpgrad):
        stack.manual_seed(2)
        x = stack.tensor(values, requires_grad=True)
        out = FUNCTIONS[case](stack, x)
        (out * out.detach().cos()).sum().backward()
        found.append((out, x.grad))
    for expected, got in zip(*found, strict=True):
        _close(got, expected, 1e-4)


@pytest.mark.parametrize("name", ["softmax", "softmin", "log_softmax"])
def test_the_dimension_of_softmax_that_is_not_given(name: str) -> None:
    for shape in ((3,), (3, 4), (2, 3, 4), (2, 3, 2, 2)):
        values = _values(*shape)
        with pytest.warns(UserWarning, match="Implicit dimension choice"):
            expected = getattr(oracle.nn.functional, name)(oracle.tensor(values))
        with pytest.warns(UserWarning, match="Implicit dimension choice"):
            found = getattr(ddpgrad.nn.functional, name)(ddpgrad.tensor(values))
        _close(found, expected)


EMBEDDINGS: dict[str, Callable[[Any], Any]] = {
    "max-norm": lambda t: t.nn.Embedding(7, 3, max_norm=1.0, norm_type=1.0),
    "by-frequency": lambda t: t.nn.Embedding(7, 3, padding_idx=2, scale_grad_by_freq=True),
    "bag-mean": lambda t: t.nn.EmbeddingBag(7, 3, padding_idx=1),
    "bag-sum": lambda t: t.nn.EmbeddingBag(7, 3, mode="sum"),
    "bag-max": lambda t: t.nn.EmbeddingBag(7, 3, mode="max", max_norm=1.5),
}


@pytest.mark.parametrize("case", EMBEDDINGS)
def test_embedding(case: str) -> None:
    theirs, ours = _pair(EMBEDDINGS[case])
    indices = np.array([[0, 5, 5, 2], [6, 1, 0, 2]])
    inputs: list[list[Any]] = [[indices]]
    if case.startswith("bag"):
        inputs = [[indices], [indices.reshape(-1), np.array([0, 3, 3, 7])]]
    for arguments in inputs:
        expected, found = (
            m(*[s.tensor(a) for a in arguments]) for s, m in ((oracle, theirs), (ddpgrad, ours))
        )
        _close(found, expected, 1e-6)
        expected.square().sum().backward()
        found.square().sum().backward()
        _close(ours.weight.grad, theirs.weight.grad, 1e-5)
        _close(ours.weight, theirs.weight, 1e-6)  # max_norm shortens it


def test_weighted_bags() -> None:
    values, weights = _values(7, 3), _values(6)
    found = []
    for stack in (oracle, ddpgrad):
        table, factors = stack.tensor(values, requires_grad=True), stack.tensor(weights, requires_grad=True)
        out = stack.nn.functional.embedding_bag(
            stack.tensor([0, 5, 5, 2, 6, 1]), table, stack.tensor([0, 2, 6]), mode="sum",
            per_sample_weights=factors, include_last_offset=True,
        )  # fmt: skip
        out.square().sum().backward()
        found.append((out, table.grad, factors.grad))
    for expected, got in zip(*found, strict=True):
        _close(got, expected, 1e-5)
    table = ddpgrad.tensor(values)
    layer = ddpgrad.nn.EmbeddingBag.from_pretrained(table, mode="max")
    assert not layer.weight.requires_grad and layer.weight.data_ptr() == table.data_ptr()


@pytest.mark.parametrize(
    "name", ["Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"]
)
def test_dropout_family(name: str) -> None:
    """PyTorch's masks are others, so what is dropped is checked by its statistics."""
    ndim = {"Dropout1d": 3, "Dropout2d": 4, "Dropout3d": 5}.get(name, 4)
    layer = getattr(ddpgrad.nn, name)(0.25)
    assert repr(layer) == repr(getattr(oracle.nn, name)(0.25))
    x = ddpgrad.randn(100, 50, *[2] * (ndim - 2))
    out = layer(x)
    assert layer.eval()(x) is x
    if "Alpha" in name:
        assert float(out.mean()) == pytest.approx(float(x.mean()), abs=0.05)
        assert float(out.std()) == pytest.approx(float(x.std()), abs=0.05)
        if name == "AlphaDropout":
            return
        dropped = (out == out.amin((2, 3), True)).all(-1).all(-1)
    else:
        dropped = (out == 0).reshape(100, 50, -1).all(-1)
        kept = ~dropped.reshape(100, 50, *[1] * (ndim - 2)).expand(*x.shape)
        _close(out[kept], (x / 0.75)[kept].detach())
    assert float(dropped.float().mean()) == pytest.approx(0.25, abs=0.03)


def test_adaptive_softmax() -> None:
    theirs, ours = _pair(lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 6], div_value=2.0))
    values, targets = _values(5, 8), np.array([0, 11, 4, 2, 5])
    found = []
    for stack, module in ((oracle, theirs), (ddpgrad, ours)):
        x = stack.tensor(values, requires_grad=True)
        out, loss = module(x, stack.tensor(targets))
        loss.backward()
        found.append([out, loss, x.grad, module.log_prob(x), *(p.grad for p in module.parameters())])
        found[-1].append(module.predict(x))
    for expected, got in zip(*found, strict=True):
        _close(got, expected, 1e-4)
    with pytest.raises(RuntimeError, match=r"\[0, 11\]"):
        ours(ddpgrad.tensor(values), ddpgrad.tensor(targets + 1))


def test_lazy_layers_become_ordinary_ones() -> None:
    for make, shape in (
        (lambda t: t.nn.LazyLinear(3), (4, 5)),
        (lambda t: t.nn.LazyBatchNorm2d(), (2, 3, 4, 4)),
        (lambda t: t.nn.LazyInstanceNorm1d(affine=True), (2, 3, 4)),
    ):
        oracle_layer, layer = make(oracle), make(ddpgrad)
        assert repr(layer) == repr(oracle_layer)
        values = _values(*shape)
        oracle.manual_seed(3)
        ddpgrad.manual_seed(3)
        _close(layer(ddpgrad.tensor(values)), oracle_layer(oracle.tensor(values)))
        assert repr(layer) == repr(oracle_layer) and type(layer).__name__ == type(oracle_layer).__name__
    fresh = ddpgrad.nn.LazyLinear(3)
    fresh.load_state_dict(ddpgrad.nn.Linear(5, 3).state_dict())
    assert fresh.weight.shape == (3, 5)
    with pytest.raises(RuntimeError, match="uninitialized"):
        ddpgrad.nn.LazyLinear(3).weight.shape  # noqa: B018


def test_sparse_initial_values() -> None:
    for stack in (oracle, ddpgrad):
        stack.manual_seed(5)
    theirs = oracle.nn.init.sparse_(oracle.empty(10, 4), 0.3)
    ours = ddpgrad.nn.init.sparse_(ddpgrad.empty(10, 4), 0.3)
    _close(ours, theirs, 1e-6)


BAGS: list[Any] = [
    lambda t, w, i: t.nn.functional.embedding_bag(w, i, t.tensor([0, 2])),  # the former order
    lambda t, w, i: t.nn.functional.embedding_bag(i, w, t.tensor([0, 3]), mode="sum", include_last_offset=True),
    lambda t, w, i: t.nn.functional.embedding_bag(i, w, t.tensor([], dtype=t.int64)),
    lambda t, w, i: t.nn.functional.embedding_bag(i, w, t.tensor([1, 2])),
    lambda t, w, i: t.nn.functional.embedding_bag(i, w, t.tensor([0, 9])),
    lambda t, w, i: t.nn.functional.embedding_bag(i, w, t.tensor([0.0, 2.0])),
    lambda t, w, i: t.nn.functional.embedding_bag(i.float(), w, t.tensor([0, 2])),
    lambda t, w, i: t.nn.functional.embedding_bag(i, w[0], t.tensor([0])),
    lambda t, w, i: t.nn.functional.embedding_bag(i + 2, w, t.tensor([0])),
    lambda t, w, i: t.nn.functional.embedding_bag(-i, w, t.tensor([0])),
    lambda t, w, i: t.nn.functional.embedding_bag(i, w, t.tensor([0]), padding_idx=7),
    lambda t, w, i: t.nn.functional.embedding_bag(i, w, t.tensor([0]), mode="max", scale_grad_by_freq=True),
    lambda t, w, i: t.nn.functional.embedding_bag(i, w, t.tensor([0]), mode="sum", per_sample_weights=t.ones(3)),
    lambda t, w, i: t.nn.functional.embedding_bag(i, w, t.tensor([0]), mode="sum", per_sample_weights=w[:, 0].double()),
    lambda t, w, i: t.nn.functional.embedding_bag(i, w, t.tensor([], dtype=t.int64), include_last_offset=True),
]  # fmt: skip


@pytest.mark.filterwarnings("always:Argument order")
@pytest.mark.parametrize("number", range(len(BAGS)))
def test_bags_that_are_not_usual(number: int) -> None:
    found: list[Any] = []
    for t in (ddpgrad, oracle):
        with warnings.catch_warnings(record=True) as caught:
            try:
                result = BAGS[number](t, t.arange(8.0).reshape(4, 2), t.arange(4)).tolist()
            except Exception as error:
                result = [type(error).__name__, str(error).partition("\n")[0]]
        found.append([result, [(str(w.message), w.filename == __file__) for w in caught]])
    assert found[0] == found[1]

"""Losses against PyTorch, beyond `test_nn_parity.py`: values and gradients with each reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ddpgrad

oracle = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RNG = np.random.default_rng(1)
SIGNS = np.array([1.0, -1.0, 1.0, -1.0, 1.0])


def _values(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


X, Y, Z = _values(5, 4), _values(5, 4), _values(5, 4)
LABELS = np.array([[0, 2, -1, 1], [3, -1, 0, 0], [-1, 0, 0, 0], [1, 0, 3, 2], [2, 2, -1, 0]])
HALVES = np.abs(RNG.integers(0, 3, (5, 4))).astype(float)
# The loss of stack `t` with options `k`, and its arguments; the first of them is differentiated.
LOSSES: dict[str, tuple[Callable[[Any, Any], Any], list[np.ndarray]]] = {
    "margin-ranking": (lambda t, k: t.nn.MarginRankingLoss(0.3, **k), [X[:, 0], Y[:, 0], SIGNS]),
    "hinge-embedding": (lambda t, k: t.nn.HingeEmbeddingLoss(0.7, **k), [X[:, 0], SIGNS]),
    "soft-margin": (lambda t, k: t.nn.SoftMarginLoss(**k), [X * 30, SIGNS[:, None] * np.ones((5, 4))]),
    "multi-margin": (lambda t, k: t.nn.MultiMarginLoss(margin=0.6, **k), [X, np.array([0, 3, 2, 1, 1])]),
    "multi-margin-2": (
        lambda t, k: t.nn.MultiMarginLoss(2, weight=t.tensor([0.5, 1.0, 2.0, 0.1]).double(), **k),
        [X, np.array([0, 3, 2, 1, 1])],
    ),
    "multi-margin-one": (lambda t, k: t.nn.MultiMarginLoss(**k), [X[0], np.array(2)]),
    "multilabel-margin": (lambda t, k: t.nn.MultiLabelMarginLoss(**k), [X, LABELS]),
    "multilabel-margin-one": (lambda t, k: t.nn.MultiLabelMarginLoss(**k), [X[0], LABELS[0]]),
    "multilabel-soft": (
        lambda t, k: t.nn.MultiLabelSoftMarginLoss(t.tensor([0.5, 1.0, 2.0, 0.1]).double(), **k),
        [X, (Y > 0) * 1.0],
    ),
    "cosine-embedding": (lambda t, k: t.nn.CosineEmbeddingLoss(0.1, **k), [X, Y, SIGNS]),
    "cosine-embedding-one": (lambda t, k: t.nn.CosineEmbeddingLoss(**k), [X[0], Y[0], np.array(-1)]),
    "triplet": (lambda t, k: t.nn.TripletMarginLoss(1.5, 3.0, **k), [X, Y, Z]),
    "triplet-swap": (lambda t, k: t.nn.TripletMarginLoss(swap=True, **k), [X, Y, Z]),
    "triplet-distance": (
        lambda t, k: t.nn.TripletMarginWithDistanceLoss(
            distance_function=lambda a, b: 1 - t.nn.functional.cosine_similarity(a, b), swap=True, **k
        ),
        [X, Y, Z],
    ),
    "poisson": (lambda t, k: t.nn.PoissonNLLLoss(full=True, **k), [X, HALVES]),
    "poisson-mean": (lambda t, k: t.nn.PoissonNLLLoss(log_input=False, **k), [np.abs(X), HALVES]),
    "gaussian": (lambda t, k: t.nn.GaussianNLLLoss(full=True, **k), [X, Y, np.abs(Z)]),
    "gaussian-one": (lambda t, k: t.nn.GaussianNLLLoss(eps=0.5, **k), [X, Y, np.abs(Z[:, 0])]),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("case", LOSSES)
def test_loss(case: str, reduction: str) -> None:
    make, arrays = LOSSES[case]
    found = []
    for stack in (oracle, ddpgrad):
        tensors = [stack.tensor(a).requires_grad_(i == 0) for i, a in enumerate(arrays)]
        loss = make(stack, {"reduction": reduction})(*tensors)
        loss.sum().backward()
        found.append((loss, tensors[0].grad))
    for expected, got in zip(*found, strict=True):
        assert tuple(got.shape) == tuple(expected.shape)
        np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("form", ["rows", "joined", "one"])
def test_ctc(form: str, reduction: str) -> None:
    """The fourth sequence is too short for its repeated labels: infinite, or 0 with zero_infinity."""
    scores, labels = _values(7, 4, 5), np.array([[1, 2, 2, 4], [3, 3, 1, 1], [2, 1, 1, 1], [2, 2, 2, 1]])
    times, sizes = np.array([7, 6, 5, 3]), np.array([4, 2, 0, 3])
    if form == "one":
        scores, labels, times, sizes = scores[:, 0], labels[0], times[:1], sizes[:1]
    if form == "joined":
        labels = np.concatenate([row[:n] for row, n in zip(labels, sizes, strict=True)])
    found = []
    for stack in (oracle, ddpgrad):
        x = stack.tensor(scores, requires_grad=True)
        loss = stack.nn.CTCLoss(reduction=reduction, zero_infinity=True)(
            stack.nn.functional.log_softmax(x, -1), stack.tensor(labels),
            *(stack.tensor(n if form != "one" else n[0]) for n in (times, sizes)),
        )  # fmt: skip
        loss.sum().backward()
        found.append((loss, x.grad))
    for expected, got in zip(*found, strict=True):
        assert tuple(got.shape) == tuple(expected.shape)
        np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-7, atol=1e-9)


def test_ctc_of_a_sequence_that_is_too_short() -> None:
    scores = ddpgrad.log_softmax(ddpgrad.randn(2, 1, 3), -1)
    loss = ddpgrad.nn.functional.ctc_loss(scores, ddpgrad.tensor([[1, 1]]), (2,), (2,))
    assert float(loss) == float("inf")


def test_variances_must_not_be_negative() -> None:
    x = ddpgrad.ones(3)
    with pytest.raises(ValueError, match="negative"):
        ddpgrad.nn.functional.gaussian_nll_loss(x, x, -x)
    with pytest.raises(ValueError, match="incorrect size"):
        ddpgrad.nn.functional.gaussian_nll_loss(x, x, ddpgrad.ones(2))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", ["l1_loss", "mse_loss", "huber_loss"])
def test_weights_of_elements(name: str, reduction: str) -> None:
    """Whether a mean is over elements or over weights differs from loss to loss."""
    values = np.array([[1.0, -2.0, 3.0], [0.2, 0.1, 5.0]])
    results = []
    for stack in (oracle, ddpgrad):
        x = stack.tensor(values, requires_grad=True)
        weight = stack.tensor([[1.0, 2.0, 0.0], [3.0, 0.5, 1.0]]).double()
        loss = getattr(stack.nn.functional, name)
        out = loss(x, stack.tensor(np.sin(values)), weight=weight, reduction=reduction)
        out.sum().backward()
        results.append((out.detach().numpy(), x.grad.numpy()))
        with pytest.raises(ValueError, match="must have the same size"):
            loss(x, x, weight=weight[0])
    for found, wanted in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)

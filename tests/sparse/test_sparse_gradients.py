"""Sparse gradients of embeddings: they hold what dense ones do, and optimizers that take them do the same with less."""

from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad import nn, optim
from ddpgrad.nn import functional as F

ROWS, WIDTH = 7, 3


def table(sparse: bool, kind: Any = nn.Embedding, **options: Any) -> Any:
    torch.manual_seed(1)
    return kind(ROWS, WIDTH, sparse=sparse, **options)


def batch(step: int) -> torch.Tensor:
    return torch.tensor([[step % ROWS, 1, 3], [1, 6 - step % 3, 1]])


def dense(t: torch.Tensor | None) -> np.ndarray:
    assert t is not None
    return t.detach().to_dense().numpy()


@pytest.mark.parametrize(
    ("kind", "options"),
    [(nn.Embedding, {}), (nn.Embedding, {"padding_idx": 1}), (nn.Embedding, {"max_norm": 0.5}),
     (nn.EmbeddingBag, {"mode": "sum"}), (nn.EmbeddingBag, {"mode": "mean", "padding_idx": 1})],
)  # fmt: skip
def test_a_sparse_gradient_is_the_dense_one(kind: Any, options: dict[str, Any]) -> None:
    grads = []
    for sparse in (False, True):
        layer = table(sparse, kind, **options)
        for step in range(2):
            layer(batch(step)).pow(2).sum().backward()
        assert layer.weight.grad.is_sparse is sparse
        grads.append(dense(layer.weight.grad))
    np.testing.assert_allclose(grads[1], grads[0], rtol=1e-6)


def test_weights_and_offsets_of_bags() -> None:
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    grads = []
    for sparse in (False, True):
        layer = table(sparse, nn.EmbeddingBag, mode="sum")
        layer(torch.tensor([1, 3, 1, 2]), torch.tensor([0, 3]), weights).pow(2).sum().backward()
        grads.append(dense(layer.weight.grad))
    np.testing.assert_allclose(grads[1], grads[0], rtol=1e-6)


def test_sparse_and_dense_gradients_add_up() -> None:
    layer = table(True)
    layer(batch(0)).sum().backward()
    expected = dense(layer.weight.grad)
    (layer.weight * 2).sum().backward()  # sparse, then dense
    assert not layer.weight.grad.is_sparse
    np.testing.assert_array_equal(dense(layer.weight.grad), expected + 2)
    before = layer.weight.grad
    layer(batch(0)).sum().backward()  # dense, then sparse: in place
    assert layer.weight.grad is before
    np.testing.assert_array_equal(dense(before), 2 * expected + 2)
    layer.weight.grad = None
    (layer(batch(0)).sum() + (layer.weight * 2).sum()).backward()  # within one pass
    np.testing.assert_array_equal(dense(layer.weight.grad), expected + 2)


def test_hooks_grad_and_second_derivatives() -> None:
    seen: list[bool] = []
    layer = table(True)
    layer.weight.register_hook(lambda g: seen.append(g.is_sparse))
    layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.is_sparse))
    layer(batch(0)).sum().backward()
    assert seen == [True, True]
    (grad,) = torch.autograd.grad(layer(batch(0)).pow(3).sum(), layer.weight, create_graph=True)
    assert grad.is_sparse
    (second,) = torch.autograd.grad(grad.coalesce().values().sum(), layer.weight)
    plain = table(False)
    (grad,) = torch.autograd.grad(plain(batch(0)).pow(3).sum(), plain.weight, create_graph=True)
    (expected,) = torch.autograd.grad(grad.sum(), plain.weight)
    np.testing.assert_allclose(dense(second), dense(expected), rtol=1e-6)


def train(make: Any, sparse: bool, steps: int = 5, **options: Any) -> tuple[np.ndarray, Any]:
    """The table after some steps in which every row has a gradient, so that lazy updates are whole ones."""
    layer = table(sparse)
    optimizer = make(layer.parameters(), **options)
    for step in range(steps):
        optimizer.zero_grad()
        rows = torch.cat([torch.arange(ROWS), batch(step).reshape(-1)])
        layer(rows).pow(2).sum().backward()
        optimizer.step()
    return dense(layer.weight), optimizer


@pytest.mark.parametrize(
    ("make", "options"),
    [(optim.SGD, {"lr": 0.05}), (optim.SGD, {"lr": 0.05, "maximize": True}),
     (optim.SGD, {"lr": 0.05, "momentum": 0.9, "dampening": 0.1}),
     (optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}), (optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1})],
)  # fmt: skip
def test_optimizers_do_with_sparse_gradients_what_they_do_with_dense_ones(make: Any, options: Any) -> None:
    np.testing.assert_allclose(train(make, True, **options)[0], train(make, False, **options)[0], rtol=2e-6)


def test_sparse_adam_is_adam_where_every_row_has_a_gradient() -> None:
    options = {"lr": 0.05, "eps": 1e-12}
    np.testing.assert_allclose(
        train(optim.SparseAdam, True, **options)[0], train(optim.Adam, False, **options)[0], rtol=1e-4
    )


@pytest.mark.parametrize("make", [optim.SGD, optim.Adagrad, optim.SparseAdam])
def test_only_rows_with_a_gradient_change(make: Any) -> None:
    layer = table(True)
    optimizer = make(layer.parameters(), lr=0.1)
    for rows in ([0, 2], [2, 2]):
        before = dense(layer.weight).copy()
        optimizer.zero_grad()
        layer(torch.tensor(rows)).pow(2).sum().backward()
        optimizer.step()
        changed = (dense(layer.weight) != before).any(1)
        assert changed.nonzero()[0].tolist() == sorted(set(rows))


def test_a_group_may_have_gradients_of_both_kinds() -> None:
    found = []
    for sparse in (False, True):
        layer, head = table(sparse), nn.Linear(WIDTH, 2)
        with torch.no_grad():
            head.weight.fill_(0.5), head.bias.zero_()  # pyright: ignore[reportUnusedExpression]
        optimizer = optim.SGD([*layer.parameters(), *head.parameters()], lr=0.1)
        for step in range(3):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            head(layer(batch(step))).pow(2).sum().backward()
            optimizer.step()
        found.append([dense(p) for p in (*layer.parameters(), *head.parameters())])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize(
    "make", [optim.SparseAdam, optim.Adagrad, lambda p, lr: optim.SGD(p, lr, momentum=0.9)]
)
def test_state_dicts_continue_a_run(make: Any) -> None:
    whole, _ = train(make, True, 4, lr=0.1)
    _, first = train(make, True, 2, lr=0.1)
    layer = table(True)
    with torch.no_grad():
        layer.weight.copy_(first.param_groups[0]["params"][0])
    second = make(layer.parameters(), lr=0.1)
    second.load_state_dict(first.state_dict())
    for step in (2, 3):
        second.zero_grad()
        layer(torch.cat([torch.arange(ROWS), batch(step).reshape(-1)])).pow(2).sum().backward()
        second.step()
    np.testing.assert_allclose(dense(layer.weight), whole, rtol=1e-6)


REFUSING = (
    "Adam", "AdamW", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "Adafactor",
    "Muon",
)  # fmt: skip


@pytest.mark.parametrize("name", REFUSING)
def test_other_optimizers_refuse_sparse_gradients(name: str) -> None:
    layer = table(True)
    layer(batch(0)).sum().backward()
    shown = "Adam" if name == "AdamW" else name
    with pytest.raises(RuntimeError, match=f"^{shown} does not support sparse gradients"):
        getattr(optim, name)(layer.parameters()).step()


def test_gradients_are_cleared_clipped_and_unscaled() -> None:
    layer, plain = table(True), table(False)
    for each in (layer, plain):
        each(batch(0)).pow(2).sum().backward()
    norms = [nn.utils.clip_grad_norm_(each.parameters(), 0.1) for each in (layer, plain)]
    assert torch.allclose(*norms)
    np.testing.assert_allclose(dense(layer.weight.grad), dense(plain.weight.grad), rtol=1e-6)
    optimizer = optim.SGD(layer.parameters(), 0.1)
    optimizer.zero_grad(set_to_none=False)
    assert layer.weight.grad.is_sparse and layer.weight.grad._nnz() == 0
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(layer(batch(0)).sum()).backward()
    scaler.unscale_(optimizer)
    plain.zero_grad()
    plain(batch(0)).sum().backward()
    np.testing.assert_array_equal(dense(layer.weight.grad), dense(plain.weight.grad))
    layer.weight.grad._values()[0] = float("inf")
    before = dense(layer.weight).copy()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.zeros(()))
    scaler.step(optimizer)
    np.testing.assert_array_equal(dense(layer.weight), before)


W = torch.ones(3, 2, requires_grad=True)
INDEX = torch.tensor([[0, 1]])
LOOKED_UP = F.embedding(INDEX, W.detach(), sparse=True, scale_grad_by_freq=True)  # fine without a gradient
ERRORS: list[tuple[Any, type[Exception], str]] = [
    (lambda: F.embedding(INDEX, W, sparse=True, scale_grad_by_freq=True), RuntimeError, "scale_grad_by_freq"),
    (lambda: F.embedding_bag(INDEX, W, sparse=True, mode="max"), ValueError, "max mode does not support sparse"),
    (lambda: optim.SparseAdam([torch.eye(2).to_sparse().requires_grad_()]), ValueError, r"indices \[\[0, 0\]\]"),
    (lambda: optim.SparseAdam([W], lr=0), ValueError, "Invalid learning rate: 0"),
    (lambda: _stepped(optim.SparseAdam, W.sum()), RuntimeError, "does not support dense gradients"),
    (lambda: _stepped(optim.SGD, _rows(), weight_decay=0.1), RuntimeError, "weight_decay is not compatible"),
    (lambda: _stepped(optim.Adagrad, _rows(), weight_decay=0.1), RuntimeError, "weight_decay option is not compatible"),
    (lambda: _stepped(optim.SGD, _rows(), fused=True), RuntimeError, "_fused_sgd"),
]  # fmt: skip


def _rows() -> torch.Tensor:
    return F.embedding(INDEX, W, sparse=True).sum()


def _stepped(make: Any, loss: torch.Tensor, **options: Any) -> None:
    W.grad = None
    loss.backward()
    make([W], lr=0.1, **options).step()


@pytest.mark.parametrize(("act", "error", "message"), ERRORS)
def test_errors(act: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        act()

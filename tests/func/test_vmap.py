"""The loop over a batch."""

from __future__ import annotations

import functools
import importlib
from types import SimpleNamespace
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad.func import grad, hessian, jacfwd, vmap
from ddpgrad.utils._pytree import SUPPORTED_NODES, register_pytree_node


def test_dimensions():
    a, b = torch.arange(6.0).reshape(3, 2), torch.tensor([1.0, 10.0])
    assert vmap(torch.dot, in_dims=(0, None))(a, b).tolist() == (a @ b).tolist()
    assert vmap(lambda row: row * 2, in_dims=1, out_dims=1)(a).tolist() == (a * 2).tolist()
    both, tree = vmap(lambda row: (row.sum(), {"twice": row * 2}), out_dims=(0, {"twice": -1}))(a)
    assert both.tolist() == [1.0, 5.0, 9.0] and tree["twice"].tolist() == (a * 2).t().tolist()
    assert vmap(lambda pair: pair["x"] + pair["y"], in_dims=({"x": 0, "y": None},))(
        {"x": b, "y": b}
    ).shape == (2, 2)
    assert vmap(vmap(lambda x: x * 2))(a).tolist() == (a * 2).tolist()


class Pair:
    """A container that `register_pytree_node` makes known."""

    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second


class Batch:
    """Tensors with a batch dimension, as tensordict's collections are: vmap takes one as it takes a tensor."""

    def __init__(self, **tensors: Any) -> None:
        self.tensors = tensors

    def _add_batch_dim(self, **options: Any) -> Any:
        raise NotImplementedError

    @property
    def shape(self) -> Any:
        return next(iter(self.tensors.values())).shape[:1]

    ndim = 1

    def __getitem__(self, index: Any) -> Batch:
        return Batch(**{name: tensor[index] for name, tensor in self.tensors.items()})


def test_registered_containers_and_collections_with_batch_dimensions():
    register_pytree_node(Pair, lambda p: ([p.first, p.second], None), lambda parts, _: Pair(*parts))
    try:
        rows = torch.arange(6.0).reshape(3, 2)
        out = vmap(lambda p: Pair(p.first.sum(), p.second * 2))(Pair(rows, rows[:, 0]))
        assert out.first.tolist() == [1.0, 5.0, 9.0] and out.second.tolist() == [0.0, 4.0, 8.0]
        slopes = torch.func.grad(lambda p: (p.first * p.second).sum())(Pair(rows, rows + 1))
        assert torch.equal(slopes.first, rows + 1) and torch.equal(slopes.second, rows)
    finally:
        del SUPPORTED_NODES[Pair]
    batch = Batch(x=rows, y=torch.ones(3))
    assert vmap(lambda b, k: b.tensors["x"].sum() * k + b.tensors["y"], (0, None))(batch, 2.0).tolist() == [
        3.0, 11.0, 19.0,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="dimensionality 1"):
        vmap(lambda b: b.tensors["y"], 1)(batch)


def test_gradients_of_each_example(device: str):
    w, x = torch.tensor([1.0, 2.0], device=device), torch.arange(6.0, device=device).reshape(3, 2)
    each = vmap(grad(lambda w, x: (w * x).sum() ** 2), in_dims=(None, 0))(w, x)
    assert each.tolist() == (2 * (x @ w).unsqueeze(1) * x).tolist()
    total = w.clone().requires_grad_()
    vmap(lambda row: (total * row).sum())(x).sum().backward()
    assert total.grad.tolist() == x.sum(0).tolist()
    layer = torch.nn.Linear(2, 2, device=device)
    pairs = vmap(vmap(lambda a, b: layer(a * b).tanh().sum(), (None, 0)), (0, None))(x, x)
    wanted = layer(x.unsqueeze(1) * x).tanh().sum(-1)
    for got, want in zip(
        *(torch.autograd.grad(out.sum(), layer.weight) for out in (pairs, wanted)), strict=True
    ):
        torch.testing.assert_close(got, want)


def test_rows_of_a_jacobian_go_through_one_graph_which_is_freed_after_the_last():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x**2
    rows = vmap(lambda seed: torch.autograd.grad(y, x, seed)[0])(torch.eye(3))
    assert rows.tolist() == [[2.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 6.0]]
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(y, x, torch.ones(3))


def test_randomness():
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(2)

    x = torch.zeros(3, 2)
    same, different = vmap(noisy, randomness="same")(x), vmap(noisy, randomness="different")(x)
    assert same[0].tolist() == same[2].tolist() and different[0].tolist() != different[2].tolist()
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(noisy)(x)
    with pytest.raises(RuntimeError, match="Only allowed values for randomness"):
        vmap(noisy, randomness="any")(x)


def test_randomness_of_generators():
    """Draws from a generator of the caller's count as those from the default one do; with 'same' it ends after one call."""
    x, draws = torch.zeros(3, 2), torch.rand(2, 2, generator=torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(5)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(lambda v: v + torch.rand(2, generator=generator))(x)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(lambda v: v + torch.rand(0).sum())(x)
    same = vmap(lambda v: v + torch.rand(2, generator=generator), randomness="same")(x)
    assert same.tolist() == [draws[0].tolist()] * 3
    assert torch.rand(2, generator=generator).tolist() == draws[1].tolist()


def test_randomness_of_jacfwd():
    x = torch.ones(3)

    def noisy(v: torch.Tensor) -> torch.Tensor:
        return v * torch.rand(3)

    for refused in (jacfwd(noisy), hessian(lambda v: noisy(v).sum())):
        with pytest.raises(RuntimeError, match="randomness error mode"):
            refused(x)
    with pytest.raises(RuntimeError, match="Only allowed values for randomness"):
        jacfwd(noisy, randomness="any")(x)
    assert jacfwd(noisy, randomness="different")(x).shape == (3, 3)


def test_no_examples():
    assert vmap(lambda x: x.sum() * torch.ones(4), out_dims=1)(torch.ones(0, 3)).shape == (4, 0)
    assert vmap(lambda x: torch.ones(2), out_dims=None)(torch.ones(3)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: vmap(torch.add)(torch.ones(3), torch.ones(2)), r"got sizes \[3, 2\]"),
        (lambda: vmap(torch.abs)(3), "please use None as the respective in_dim"),
        (lambda: vmap(torch.abs, in_dims=1)(torch.ones(3)), "dimensionality 1"),
        (
            lambda: vmap(torch.abs, in_dims=(None,))(torch.ones(3)),
            "Expected at least one Tensor to vmap over",
        ),
        (lambda: vmap(torch.add, in_dims=[0, None])(torch.ones(3), 1), "expected `in_dims` to be int or a"),
        (lambda: vmap(lambda x: 3)(torch.ones(3)), "must only return Tensors"),
        (lambda: vmap(torch.abs, chunk_size=0)(torch.ones(3)), "should be None or greater than 0"),
        (lambda: vmap(torch.abs, out_dims="a")(torch.ones(3)), "`out_dims` must be an int, None or"),
        (lambda: vmap(torch.abs, out_dims=None)(torch.arange(3.0)), "differs between examples"),
        (lambda: vmap(torch.add, in_dims=(0,))(torch.ones(3), torch.ones(3)), "in_dims is not compatible"),
    ],
)
def test_errors(call: Any, text: str):
    with pytest.raises(ValueError, match=text):
        call()


def test_out_dims_of_one_output_and_of_what_is_no_tensor():
    x = torch.arange(6.0).reshape(2, 3)
    assert vmap(lambda row: row, out_dims=(1,))(x).tolist() == x.T.tolist()
    rows, word = vmap(lambda row: (row, "word"), out_dims=(0, None))(x)
    assert rows.tolist() == x.tolist() and word == "word"
    with pytest.raises(ValueError, match="not compatible"):
        vmap(lambda pair: pair[0], in_dims=((0, 0),))([x, x])


def test_what_all_examples_share_may_not_be_written_to():
    x, sums = torch.arange(6.0).reshape(2, 3), torch.zeros(3)
    norm, owner = torch.nn.BatchNorm1d(3), SimpleNamespace(sums=[sums])
    for write in (
        lambda row: sums.add_(row), lambda row: vmap(sums[0].add_)(row), owner.sums[0].copy_, norm,
        functools.partial(lambda row, total: torch.add(row, 1, out=total["sums"]), total={"sums": sums}),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="inplace arithmetic on what has no batch dimension"):
            vmap(write)(x if write is not norm else x[:, None].expand(2, 4, 3))
    with pytest.raises(RuntimeError, match="inplace arithmetic on what has no batch dimension"):
        vmap(lambda total, row: total.add_(row), in_dims=(None, 0))(sums, x)
    vmap(lambda row: row.add_(x.sum() * 0))(x)  # known by name, and what is mapped
    vmap(lambda row: row.mul_(2))(x)
    assert x.tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]


def test_a_mask_is_looked_up_at_the_places_of_each_example():
    padding = torch.tensor([[True, False], [True, True]])
    module = importlib.import_module("ddpgrad._dynamo._trace_wrapped_higher_order_op")
    with module.TransformGetItemToIndex():  # as transformers makes masks
        assert vmap(lambda at: padding[at, 1])(torch.arange(2)).tolist() == [False, True]

"""Activations in place, embeddings, dropout and lazy layers against PyTorch, beyond `test_every_module.py`."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch as oracle
from both import agree, check

import ddpgrad

RNG = np.random.default_rng(1)


def _values(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


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

    def program(t: Any) -> Any:
        x = t.tensor(values, requires_grad=True)
        out = FUNCTIONS[case](t, x)
        (out * out.detach().cos()).sum().backward()
        return out, x.grad

    agree(program, 1e-5)


EMBEDDINGS: dict[str, Callable[[Any], Any]] = {
    "padding": lambda n: n.Embedding(7, 3, padding_idx=-2),
    "max-norm": lambda n: n.Embedding(7, 3, max_norm=1.0, norm_type=1.0),
    "by-frequency": lambda n: n.Embedding(7, 3, padding_idx=2, scale_grad_by_freq=True),
    "bag-mean": lambda n: n.EmbeddingBag(7, 3, padding_idx=1),
    "bag-sum": lambda n: n.EmbeddingBag(7, 3, mode="sum"),
    "bag-max": lambda n: n.EmbeddingBag(7, 3, mode="max", max_norm=1.5),
}


@pytest.mark.parametrize("case", EMBEDDINGS)
def test_embedding(case: str) -> None:
    indices = np.array([[0, 5, 5, 2], [6, 1, 0, 2]])
    check(EMBEDDINGS[case], [indices], orders=1)
    if case.startswith("bag"):
        check(EMBEDDINGS[case], [indices.reshape(-1), np.array([0, 3, 3, 7])], orders=1)


def test_weighted_bags() -> None:
    def program(t: Any, module: Any, table: Any, factors: Any) -> Any:
        return t.nn.functional.embedding_bag(
            t.tensor([0, 5, 5, 2, 6, 1]), table, t.tensor([0, 2, 6]), mode="sum", per_sample_weights=factors,
            include_last_offset=True,
        )  # fmt: skip

    check(lambda n: n.Identity(), [_values(7, 3), _values(6)], call=program)
    table = ddpgrad.ones(7, 3)
    layer = ddpgrad.nn.EmbeddingBag.from_pretrained(table, mode="max")
    assert not layer.weight.requires_grad and layer.weight.data_ptr() == table.data_ptr()


def test_adaptive_softmax() -> None:
    def make(n: Any) -> Any:
        return n.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 6], div_value=2.0)

    def call(t: Any, module: Any, x: Any, targets: Any) -> Any:
        with pytest.raises(RuntimeError, match=r"\[0, 11\]"):
            module(x, targets + 1)
        return *module(x, targets), module.log_prob(x), module.predict(x)

    check(make, [_values(5, 8), np.array([0, 11, 4, 2, 5])], call=call)


def test_lazy_layers_become_ordinary_ones() -> None:
    check(lambda n: n.LazyInstanceNorm1d(affine=True), [_values(2, 3, 4)])
    fresh = ddpgrad.nn.LazyLinear(3)
    fresh.load_state_dict(ddpgrad.nn.Linear(5, 3).state_dict())
    assert fresh.weight.shape == (3, 5)
    with pytest.raises(RuntimeError, match="uninitialized"):
        ddpgrad.nn.LazyLinear(3).weight.shape  # noqa: B018


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
    lambda t, w, i: t.embedding_bag(w, i, t.tensor([0, 2, 2]))[0],
    lambda t, w, i: t.cat([part.flatten() for part in t.embedding_bag(w, i, t.tensor([0, 2, 2]), False, 1)]),
    lambda t, w, i: t.cat([part.flatten() for part in t.embedding_bag(w, i, t.tensor([0, 2, 2]), mode=2)]),
    lambda t, w, i: t.cat([part.flatten() for part in t.embedding_bag(w, i, t.tensor([0, 2]), False, 2, False, None, False, 3)]),
    lambda t, w, i: t.ops.aten.embedding_bag.padding_idx(w, i, t.tensor([0, 2]), False, 0, False, None, False, -1)[0],
    lambda t, w, i: t.embedding_bag(w, i, t.tensor([0]), mode=3),
    lambda t, w, i: t._weight_norm(w, t.norm_except_dim(w, 3, 1), 1),
    lambda t, w, i: t.norm_except_dim(w, 2, -1),
    lambda t, w, i: t.norm_except_dim(w, 2, 4),
    lambda t, w, i: t.conv_tbc(w[:, None], w.reshape(2, 2, 2), w[1], 1),
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

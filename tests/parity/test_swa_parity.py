"""Averaged models against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ddpgrad

oracle = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def _models() -> tuple[Any, Any]:
    """Two equal models, in PyTorch and here."""
    models = []
    for stack in (oracle, ddpgrad):
        models.append(
            stack.nn.Sequential(stack.nn.Linear(4, 3), stack.nn.BatchNorm1d(3), stack.nn.Linear(3, 2))
        )
    models[1].load_state_dict({k: ddpgrad.tensor(v.numpy()) for k, v in models[0].state_dict().items()})
    return models[0], models[1]


def _same(theirs: Any, ours: Any) -> None:
    wanted, found = theirs.state_dict(), ours.state_dict()
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name].numpy(), value.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


AVERAGES = {
    "mean": lambda swa: {},
    "function": lambda swa: {"avg_fn": swa.get_swa_avg_fn()},
    "lists": lambda swa: {"multi_avg_fn": swa.get_swa_multi_avg_fn()},
    "moving": lambda swa: {"avg_fn": swa.get_ema_avg_fn(0.7)},
    "moving lists with buffers": lambda swa: {
        "multi_avg_fn": swa.get_ema_multi_avg_fn(0.7),
        "use_buffers": True,
    },
    "mean with buffers": lambda swa: {
        "use_buffers": True
    },  # a count of batches among them, which is an integer
}


@pytest.mark.parametrize("case", AVERAGES)
def test_averages_like_pytorch(case: str) -> None:
    theirs, ours = _models()
    averaged = [
        stack.optim.swa_utils.AveragedModel(model, **AVERAGES[case](stack.optim.swa_utils))
        for stack, model in ((oracle, theirs), (ddpgrad, ours))
    ]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 4)).astype(np.float32)
    for _ in range(4):
        for p, q in zip(theirs.parameters(), ours.parameters(), strict=True):
            change = rng.standard_normal(tuple(p.shape)).astype(np.float32)
            p.data.add_(oracle.from_numpy(change))
            q.data.add_(ddpgrad.from_numpy(change))
        theirs(oracle.from_numpy(x))
        ours(ddpgrad.from_numpy(x))
        for model, source in zip(averaged, (theirs, ours), strict=True):
            model.update_parameters(source)
    _same(*averaged)
    np.testing.assert_allclose(
        averaged[1](ddpgrad.from_numpy(x)).detach().numpy(),
        averaged[0](oracle.from_numpy(x)).detach().numpy(),
        rtol=1e-4,
        atol=1e-5,
    )


def test_statistics_of_batch_norm_like_pytorch() -> None:
    models = _models()
    batches = np.random.default_rng(1).standard_normal((3, 8, 4)).astype(np.float32)
    for stack, model in zip((oracle, ddpgrad), models, strict=True):
        model.eval()
        stack.optim.swa_utils.update_bn([[stack.from_numpy(b), None] for b in batches], model)
        assert not model.training and model[1].momentum == 0.1
    _same(*models)

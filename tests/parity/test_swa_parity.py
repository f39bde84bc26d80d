"""Averaged models against PyTorch."""

from typing import Any

import numpy as np
import pytest
from both import agree


def _model(stack: Any) -> Any:
    return stack.nn.Sequential(stack.nn.Linear(4, 3), stack.nn.BatchNorm1d(3), stack.nn.Linear(3, 2))


AVERAGES: dict[str, Any] = {
    "mean": lambda swa: {},
    "function": lambda swa: {"avg_fn": swa.get_swa_avg_fn()},
    "lists": lambda swa: {"multi_avg_fn": swa.get_swa_multi_avg_fn()},
    "moving": lambda swa: {"avg_fn": swa.get_ema_avg_fn(0.7)},
    "moving lists with buffers": lambda swa: {"multi_avg_fn": swa.get_ema_multi_avg_fn(0.7), "use_buffers": True},
    "mean with buffers": lambda swa: {"use_buffers": True},  # a count of batches among them, which is an integer
}  # fmt: skip


@pytest.mark.parametrize("case", AVERAGES)
def test_averages_like_pytorch(case: str) -> None:
    def program(stack: Any) -> Any:
        rng, model, swa = np.random.default_rng(0), _model(stack), stack.optim.swa_utils
        averaged = swa.AveragedModel(model, **AVERAGES[case](swa))
        x = stack.tensor(rng.standard_normal((8, 4)).astype(np.float32))
        for _ in range(4):
            for p in model.parameters():
                p.data.add_(stack.tensor(rng.standard_normal(tuple(p.shape)).astype(np.float32)))
            model(x)
            averaged.update_parameters(model)
        return dict(averaged.state_dict()), averaged(x)

    agree(program, 1e-5)


def test_statistics_of_batch_norm_like_pytorch() -> None:
    batches = np.random.default_rng(1).standard_normal((3, 8, 4)).astype(np.float32)

    def program(stack: Any) -> Any:
        model = _model(stack).eval()
        stack.optim.swa_utils.update_bn([[stack.tensor(b), None] for b in batches], model)
        assert not model.training and model[1].momentum == 0.1
        return dict(model.state_dict())

    agree(program, 1e-5)

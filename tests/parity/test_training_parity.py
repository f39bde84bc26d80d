"""100 steps from the same weights and batches give PyTorch's losses: an MLP, a CNN and a GPT."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch as pytorch
from threadpoolctl import threadpool_limits

import ddpgrad
from ddpgrad.launcher.bench import models

STEPS = 100
# The benchmark's models in sizes that a test can wait for, and learning rates at which these learn.
JOBS = {
    "mlp": (partial(models.mlp, inputs=32, width=64, size=16), 0.05),
    "cnn": (partial(models.mnist_cnn, side=8, width=8, dropout=0.0, size=16), 0.01),
    "gpt": (partial(models.gpt, layers=2, width=32, heads=4, context=32, size=4), 1e-3),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads of BLAS and OpenMP wait for each other in loops, which takes minutes where cores are shared."""
    with threadpool_limits(1):
        yield


def batches(job: models.Job) -> list[tuple[np.ndarray, ...]]:
    """A few batches, drawn by PyTorch, as arrays; training goes over them again and again."""
    return [tuple(part.numpy().copy() for part in job.batch(seed)) for seed in range(3)]


def train(torch: Any, job: models.Job, lr: float, data: list[tuple[np.ndarray, ...]]) -> list[float]:
    """The loss before every step."""
    optimizer = job.optimizer(job.model.parameters(), lr=lr)
    losses = []
    for step in range(STEPS):
        x, y = (torch.from_numpy(array) for array in data[step % len(data)])
        loss = job.loss(job.model, (x, y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", JOBS)
def test_the_loss_of_every_step_is_pytorchs(name):
    pytorch.manual_seed(0)
    build, lr = JOBS[name]
    theirs, ours = build(pytorch), build(ddpgrad)
    state = {
        key: ddpgrad.from_numpy(value.numpy().copy()) for key, value in theirs.model.state_dict().items()
    }
    assert list(ours.model.state_dict()) == list(state)
    ours.model.load_state_dict(state)
    data = batches(theirs)

    expected, got = train(pytorch, theirs, lr, data), train(ddpgrad, ours, lr, data)
    assert expected[-1] < 0.8 * expected[0], "the run does not learn, so that it compares little"
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4)
    for key, statistics in theirs.model.named_buffers():
        np.testing.assert_allclose(ours.model.get_buffer(key).numpy(), statistics, atol=1e-5, err_msg=key)

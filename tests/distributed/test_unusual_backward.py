"""Backward passes that are not one forward's: gradients are those of one process on the joined batch."""

import numpy as np
import pytest
from replicas import gradients, ranks, share

import ddpgrad as torch
from ddpgrad import nn
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.nn.parallel import DistributedDataParallel as DDP
from ddpgrad.utils.checkpoint import checkpoint

X = torch.tensor(np.random.default_rng(0).normal(size=(8, 4)))


class Twice(nn.Module):
    """A part that is used twice, each time within a checkpoint if that is not None."""

    def __init__(self, use_reentrant: bool | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.part, self.last = (nn.Linear(4, 4, dtype=torch.float64) for _ in range(3))
        self.use_reentrant = use_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        for _ in range(2):
            if self.use_reentrant is None:
                h = self.part(h).tanh()
            else:
                h = checkpoint(lambda h: self.part(h).tanh(), h, use_reentrant=self.use_reentrant)
        return self.last(h)


def penalty(model, x):
    """The loss and the mean square of its gradient by the input, which is differentiated again."""
    x = x.clone().requires_grad_()
    out = model(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (out.square().mean() + slope.square().mean()).backward()


def several_forwards(model, x):
    first, second = model(x), model(x * 2)
    (first.square().mean() + (second * first).mean()).backward()


def usual(model, x):
    model(x).square().mean().backward()


CASES = {
    "a gradient penalty": (penalty, None, {}),
    "several forwards": (several_forwards, None, {}),
    "used twice": (usual, None, {}),
    "used twice, checkpointed": (usual, False, {}),
    "used twice, checkpointed, several forwards": (several_forwards, False, {}),
    "used twice, reentrant, with a static graph": (usual, True, {"static_graph": True}),
}


@pytest.mark.parametrize("shard", [False, True], ids=["ddp", "fully_shard"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_one_process_on_the_joined_batch(name, shard):
    step, use_reentrant, options = CASES[name]
    alone = Twice(use_reentrant)
    for _ in range(2):
        step(alone, X)

    def program():
        model = Twice(use_reentrant)
        if shard:
            fully_shard(model.part)
            fully_shard(model)
        else:
            model = DDP(model, **options)
        for _ in range(2):  # the second adds to the first, and buckets are laid out anew between them
            step(model, share(X))
        if shard:
            return {n: p.grad.full_tensor().numpy() for n, p in model.named_parameters()}
        return gradients(model.module)

    for found in ranks(2, program):
        for key, want in gradients(alone).items():
            np.testing.assert_allclose(found[key], want, rtol=1e-8, atol=1e-12, err_msg=key)

"""ZeroRedundancyOptimizer: the bits of the optimizer alone, a share of its state, and its files."""

import numpy as np
import pytest
from replicas import batch_for, perceptron, ranks, share

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad.distributed.optim import ZeroRedundancyOptimizer
from ddpgrad.nn.parallel import DistributedDataParallel as DDP

KINDS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01}),
}


def steps(model, optimizer, count: int, scheduler=None) -> None:
    x, y = batch_for(perceptron)
    for _ in range(count):
        optimizer.zero_grad()
        F.cross_entropy(model(share(x)), share(y)).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def bits(model) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in model.parameters()]


def groups(model):
    """Two groups of different options, one with a single parameter."""
    first, *others = model.parameters()
    return [{"params": [first], "lr": 0.02}, {"params": others}]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world_size", [1, 2, 6])
def test_same_bits_as_the_optimizer_alone(kind, world_size):
    make, options = KINDS[kind]

    def program():
        found = []
        for zero in (False, True):
            model = perceptron()
            wrapped = DDP(model)
            optimizer = (
                ZeroRedundancyOptimizer(groups(model), make, **options)
                if zero
                else make(groups(model), **options)
            )
            steps(wrapped, optimizer, 4, torch.optim.lr_scheduler.StepLR(optimizer, 2))
            found.append((bits(model), len(optimizer.state)))
        return found

    results = ranks(world_size, program)
    for (alone, whole), (shared, _) in results:
        assert shared == alone == results[0][0][0]
        assert whole == 4
    # Every parameter has its state on one rank.
    assert sum(shared for _, (_, shared) in results) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_state_is_that_of_the_optimizer_alone_and_loads_into_other_worlds(kind):
    make, options = KINDS[kind]

    def saved(zero):
        model = perceptron()
        optimizer = (
            ZeroRedundancyOptimizer(model.parameters(), make, **options)
            if zero
            else make(model.parameters(), **options)
        )
        steps(DDP(model), optimizer, 3)
        if zero:
            with pytest.raises(RuntimeError, match="has not been consolidated"):
                optimizer.state_dict()
            optimizer.consolidate_state_dict(to=1)
            if dist.get_rank() != 1:
                return None
        return model.state_dict(), optimizer.state_dict()

    _, (weights, whole) = ranks(2, lambda: saved(True))
    _, (_, expected) = ranks(2, lambda: saved(False))
    assert whole["param_groups"] == expected["param_groups"]
    assert list(whole["state"]) == list(expected["state"])
    for number, values in expected["state"].items():
        for name, value in values.items():
            np.testing.assert_array_equal(np.asarray(whole["state"][number][name]), np.asarray(value))

    def goes_on(zero):
        model = perceptron()
        model.load_state_dict(weights)
        optimizer = (
            ZeroRedundancyOptimizer(model.parameters(), make, **options)
            if zero
            else make(model.parameters(), **options)
        )
        optimizer.load_state_dict(whole)
        steps(DDP(model), optimizer, 2)
        return bits(model)

    assert ranks(3, lambda: goes_on(True)) == ranks(3, lambda: goes_on(False))


def test_a_group_that_is_added_later_is_dealt_too():
    def program():
        model = perceptron()
        first, *others = model.parameters()
        optimizer = ZeroRedundancyOptimizer([first], torch.optim.AdamW, lr=0.01)
        optimizer.add_param_group({"params": others, "lr": 0.1})
        steps(DDP(model), optimizer, 2)
        return bits(model), len(optimizer.state)

    def alone():
        model = perceptron()
        first, *others = model.parameters()
        optimizer = torch.optim.AdamW([{"params": [first]}, {"params": others, "lr": 0.1}], lr=0.01)
        steps(DDP(model), optimizer, 2)
        return bits(model)

    results = ranks(2, program)
    assert [result[0] for result in results] == ranks(2, alone)
    assert sum(count for _, count in results) == 4

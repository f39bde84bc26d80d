"""Post-local SGD: gradients of a subgroup, parameters averaged from time to time."""

import pytest
from replicas import ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from ddpgrad.distributed.algorithms.model_averaging import averagers, hierarchical_model_averager
from ddpgrad.distributed.optim import PostLocalSGDOptimizer
from ddpgrad.nn.parallel import DistributedDataParallel as DDP

RATE = 0.5


def test_ranks_go_apart_after_the_warm_up_and_meet_again():
    """The gradient of a rank's only weight is its number: all can be computed by hand."""

    def program():
        rank = dist.get_rank()
        mine, _ = dist.new_subgroups(2)
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        ddp = DDP(model, check_replicas_every=1)
        ddp.register_comm_hook(PostLocalSGDState(None, mine, start_localSGD_iter=2), post_localSGD_hook)
        averager = averagers.PeriodicModelAverager(period=2, warmup_steps=3)
        optimizer = PostLocalSGDOptimizer(torch.optim.SGD(ddp.parameters(), RATE), averager)
        seen = []
        for _ in range(4):
            optimizer.zero_grad()
            ddp(torch.full((1, 1), float(rank))).sum().backward()
            optimizer.step()
            seen.append(model.weight.item())
        assert optimizer.state_dict()["step"] == averager.step == 4
        with pytest.warns(UserWarning, match="does not contain a step counter"):
            optimizer.load_state_dict(optimizer.optim.state_dict())
        assert averager.step == 0
        return seen

    low, _, _, high = ranks(4, program)
    whole, first, last = 1.5 * RATE, 0.5 * RATE, 2.5 * RATE
    assert low == [-whole, -2 * whole, -2 * whole - first, -4 * whole]
    assert high == [-whole, -2 * whole, -2 * whole - last, -4 * whole]


def test_the_largest_period_that_fits_says_who_is_averaged():
    def program():
        weight = nn.Parameter(torch.zeros(1))
        averager = hierarchical_model_averager.HierarchicalModelAverager({1: 2, 2: 4})
        seen = []
        for _ in range(3):
            weight.data.fill_(dist.get_rank())
            weight.grad = torch.zeros(1)
            averager.average_parameters([{"params": [weight, nn.Parameter(torch.zeros(9))]}])
            seen.append(weight.item())
        for wrong in ({}, {0: 4}, {2: 2}):
            with pytest.raises(ValueError, match="period_group_size_dict"):
                hierarchical_model_averager.HierarchicalModelAverager(wrong)
        return seen

    assert ranks(4, program) == [[1.5, 0.5, 1.5]] * 2 + [[1.5, 2.5, 1.5]] * 2

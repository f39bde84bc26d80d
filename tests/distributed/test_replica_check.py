"""Replicas that drift apart are found, by rank, parameter and step."""

import re

import pytest
from replicas import perceptron, ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.errors import MismatchError
from ddpgrad.nn.parallel import DistributedDataParallel as DDP


def training(steps: int, size: int = 3, disturb=lambda step, model: None, **options):
    """What `steps` steps leave: (checks, seconds) on every rank."""

    def program():
        model = perceptron()
        ddp = DDP(model, **options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(1, steps + 1):
            optimizer.zero_grad()
            ddp(torch.ones(2, 6)).sum().backward()
            optimizer.step()
            disturb(step, model)
        return ddp.replica_check.checks, ddp.replica_check.seconds

    return ranks(size, program)


def test_equal_replicas_are_compared_every_so_many_steps(monkeypatch: pytest.MonkeyPatch):
    for checks, seconds in training(7, check_replicas_every=3):
        assert checks == 3  # before the forwards of steps 2, 4 and 7
        assert seconds > 0
    assert [checks for checks, _ in training(7, check_replicas_every=0)] == [0, 0, 0]
    monkeypatch.setenv("DDPGRAD_CHECK_REPLICAS", "2")
    assert [checks for checks, _ in training(3)] == [2, 2, 2]


def test_a_rank_with_another_update_is_found_after_the_first_step():
    def disturb(step, model):
        if dist.get_rank() == 1:
            with torch.no_grad():
                model[2].bias *= 2

    with pytest.raises(
        MismatchError, match=r"after step 1, parameter '2.bias' of rank 1 is not that of rank 0"
    ):
        training(2, 2, disturb)


@pytest.mark.parametrize(("rank", "size"), [(1, 2), (0, 3), (2, 3)])
def test_one_bit_in_one_parameter_of_one_rank_is_found(rank: int, size: int):
    def disturb(step, model):
        if step == 4 and dist.get_rank() == rank:
            with torch.no_grad():
                model[2].bias[3] += 1e-6

    with pytest.raises(MismatchError) as caught:
        training(9, size, disturb, check_replicas_every=3)
    like = 1 if rank == 0 else 0
    expected = rf"after step 6, parameter '2.bias' of rank {rank} is not that of rank {like}; 1 of 4 .* after step 3\."
    assert re.search(expected, str(caught.value)), caught.value

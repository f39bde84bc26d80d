"""What users have for tests of their own: one result for any number of ranks, and a fixture."""

import pytest

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad.nn.parallel import DistributedDataParallel as DDP
from ddpgrad.testing import assert_equivalent

pytest_plugins = ["ddpgrad.pytest_plugin"]


def train(average: bool = True, per_rank: bool = False):
    """The weights after some steps on a batch that the ranks share; wrong on purpose where the flags say so."""
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x, y = torch.randn(8, 5), torch.randn(8, 2)
    model = torch.nn.Linear(5, 2)
    ddp = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.mse_loss(ddp(x.chunk(size)[rank]), y.chunk(size)[rank])
        (loss if average else loss * size).backward()
        optimizer.step()
    if per_rank:
        with torch.no_grad():
            model.bias += 1e-3 * rank
    return {"weight": model.weight.detach(), "bias": model.bias.detach()}


def test_a_right_program_passes():
    assert_equivalent(train, world_sizes=[1, 2, 4])


def test_a_wrong_program_is_told_what_differs():
    with pytest.raises(AssertionError, match=r"(?s)^2 ranks do not give what 1 give: .*item \['weight'\]"):
        assert_equivalent(lambda: train(average=False))
    with pytest.raises(
        AssertionError, match=r"(?s)^with 2 ranks, rank 1 does not have what rank 0 has: .*'bias'"
    ):
        assert_equivalent(lambda: train(per_rank=True))


def test_the_fixture_runs_a_program_as_several_numbers_of_ranks(as_ranks, request: pytest.FixtureRequest):
    def program():
        dist.init_process_group()
        total = torch.ones(1)
        dist.all_reduce(total)
        return total.item()

    results = as_ranks(program)
    assert results == [float(len(results))] * len(results)
    assert f"[{len(results)}-ranks]" in request.node.name

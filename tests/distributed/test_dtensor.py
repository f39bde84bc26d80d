"""Tensors of which each rank has a part: what programs compute of the parts, and of the whole."""

import pytest

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

X = torch.arange(10.0).reshape(5, 2)


def on_two_ranks(program):
    def run():
        dist.init_process_group()
        found = program(dist.init_device_mesh("cpu", (2,)))
        dist.destroy_process_group()
        return found

    return dist.simulate(run, 2)


@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Replicate()])
def test_gradients_of_parts_and_of_the_whole_are_those_of_the_tensor(placement):
    def program(mesh):
        x = distribute_tensor(X, mesh, [placement]).requires_grad_()
        (2 * x.to_local()).sum().backward()
        (x.full_tensor() * X).sum().backward()
        assert (x.grad.placements, x.grad.shape) == (x.placements, x.shape)
        with torch.no_grad():
            assert not x.to_local().requires_grad
            assert not x.full_tensor().requires_grad
        return x.grad.full_tensor().tolist()

    assert on_two_ranks(program) == [(X + 2).tolist()] * 2


def test_a_penalty_on_parts_joins_the_averages_of_fully_shard():
    def program(mesh):
        model = nn.Linear(2, 4)
        nn.init.constant_(model.weight, 0.5)
        fully_shard(model, mesh=mesh)
        weight = model.weight
        model(torch.ones(1, 2)).sum().backward()
        weight.to_local().pow(2).sum().backward()
        return weight.grad.full_tensor().tolist()

    assert on_two_ranks(program) == [[[2.0, 2.0]] * 4] * 2


def test_from_local_makes_alike_what_is_to_be():
    def program(mesh):
        own = torch.full((2,), float(dist.get_rank() + 1))
        return DTensor.from_local(own, mesh, run_check=True).to_local().tolist()

    assert on_two_ranks(program) == [[1.0, 1.0]] * 2


@pytest.mark.parametrize(("order", "expected"), [(1.0, 6.0), (float("inf"), 3.0), (3.0, 36.0 ** (1 / 3))])
def test_gradients_are_clipped_by_norms_of_any_order(order, expected):
    def program(mesh):
        p = nn.Parameter(distribute_tensor(torch.zeros(3), mesh, [Shard(0)]))
        p.grad = distribute_tensor(torch.tensor([1.0, -2.0, 3.0]), mesh, [Shard(0)])
        total = nn.utils.clip_grad_norm_([p], 0.5, order).full_tensor().item()
        return total, p.grad.full_tensor()[2].item()

    for total, last in on_two_ranks(program):
        assert total == pytest.approx(expected)
        assert last == pytest.approx(3 * 0.5 / expected, rel=1e-5)

"""What `CommDebugMode` counts, and what `visualize_sharding` prints."""

import pytest
from replicas import on_ranks, perceptron, ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from ddpgrad.distributed.tensor.debug import CommDebugMode, visualize_sharding
from ddpgrad.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

FUNCTIONAL, C10D = torch.ops.c10d_functional, torch.ops.c10d


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        (Shard(0), Replicate(), {FUNCTIONAL.all_gather_into_tensor: 1}),
        (Partial(), Replicate(), {FUNCTIONAL.all_reduce: 1}),
        (Partial(), Shard(0), {FUNCTIONAL.reduce_scatter_tensor: 1}),
        (Replicate(), Shard(1), {}),
    ],
)
@on_ranks(2)
def test_collectives_of_a_move_are_counted(before, after, counts):
    x = DTensor.from_local(torch.ones(2, 4), dist.init_device_mesh("cpu", (2,)), [before])
    with CommDebugMode() as mode:
        x.redistribute(placements=[after])
    x.redistribute(placements=[after])
    assert mode.get_comm_counts() == counts
    assert mode.get_total_counts() == len(counts)


@on_ranks(2)
def test_collectives_are_those_of_the_modules_that_call_them():
    mesh = dist.init_device_mesh("cpu", (2,))
    model = parallelize_module(perceptron(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    with CommDebugMode() as mode:
        model(torch.ones(2, 6, requires_grad=True)).sum().backward()
    once, never = {FUNCTIONAL.all_reduce: 1}, {}
    assert mode.comm_module_counts == {
        "Global": {"forward": once, "backward": once},
        "Sequential": {"forward": once, "backward": once},
        "Sequential.0": {"forward": never, "backward": once},
        "Sequential.1": {"forward": never, "backward": never},
        "Sequential.2": {"forward": once, "backward": never},
    }
    assert mode.get_sharding_info()["Sequential.2.weight"] == (Shard(1),)
    assert list(mode.get_parameter_info()["Sequential.0"]) == ["weight", "bias"]
    table = mode.generate_comm_debug_tracing_table()
    assert "    Sequential.2\n      *weight: (Shard(dim=1),)\n" in table
    assert "      FORWARD PASS\n        *c10d_functional.all_reduce: 1\n" in table


@on_ranks(2)
def test_collectives_of_fully_shard_and_of_functions_are_counted():
    model = perceptron()
    fully_shard(model[0])
    fully_shard(model)
    with CommDebugMode() as mode:
        model(torch.ones(2, 6)).sum().backward()
        dist.all_reduce(torch.ones(2))
    gathers = 3  # the root keeps its own until backward
    assert mode.get_comm_counts() == {
        C10D._allgather_base_: gathers,
        C10D._reduce_scatter_base_: 2,
        C10D.allreduce_: 1,
    }


def test_a_name_of_a_collective_says_what_to_call():
    assert str(FUNCTIONAL.all_reduce) == "c10d_functional.all_reduce"
    assert FUNCTIONAL.all_reduce.default is FUNCTIONAL.all_reduce
    with pytest.raises(NotImplementedError, match=r"call the function of torch.distributed"):
        FUNCTIONAL.all_reduce()
    with pytest.raises(AttributeError, match=r"has no attribute 'all_reduced'.*all_reduce"):
        FUNCTIONAL.all_reduced  # noqa: B018


def test_a_table_says_which_rank_has_what(capsys):
    def program():
        mesh = dist.init_device_mesh("cpu", (2, 2))
        visualize_sharding(distribute_tensor(torch.zeros(5, 4), mesh, [Shard(0), Shard(1)]))
        visualize_sharding(distribute_tensor(torch.zeros(5), mesh, [Replicate(), Shard(0)]))
        visualize_sharding(distribute_tensor(torch.zeros(0), mesh))
        with pytest.raises(RuntimeError, match="1D or 2D"):
            visualize_sharding(distribute_tensor(torch.zeros(2, 2, 2), mesh))

    ranks(4, program)
    assert capsys.readouterr().out == (
        "         Col 0-1    Col 2-3\n"
        "-------  ---------  ---------\n"
        "Row 0-2  cpu:0      cpu:1\n"
        "Row 3-4  cpu:2      cpu:3\n"
        "         Col 0-0\n"
        "-------  ---------\n"
        "Row 0-2  cpu:0,2\n"
        "Row 3-4  cpu:1,3\n"
    )

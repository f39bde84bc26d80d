"""Collectives that return new tensors: their values, their gradients, and the groups that they take."""

import pytest
from replicas import ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.distributed._functional_collectives as fc


def on_two_ranks(program):
    return ranks(2, lambda: program(torch.arange(1.0, 5.0) * (dist.get_rank() + 1)))


G = "0"  # the name of the default group
# The values on both ranks, and the gradients of their sum weighted by 1, 2, ... times the rank's number from 1.
CASES = {
    "sum": (lambda x: fc.all_reduce(x, "sum", G), [[3, 6, 9, 12]] * 2, [[3, 6, 9, 12]] * 2),
    "gather": (
        lambda x: fc.all_gather_tensor(x, 0, G),
        [[1, 2, 3, 4, 2, 4, 6, 8]] * 2,
        [[3, 6, 9, 12], [15, 18, 21, 24]],
    ),
    "columns": (
        lambda x: fc.all_gather_tensor(x.reshape(2, 2), 1, G),
        [[1, 2, 2, 4, 3, 4, 6, 8]] * 2,
        [[3, 6, 15, 18], [9, 12, 21, 24]],
    ),
    "scatter": (lambda x: fc.reduce_scatter_tensor(x, "sum", 0, G), [[3, 6], [9, 12]], [[1, 2, 2, 4]] * 2),
    "to all": (
        lambda x: fc.all_to_all_single(x, [2, 2], [2, 2], G),
        [[1, 2, 2, 4], [3, 4, 6, 8]],
        [[1, 2, 2, 4], [3, 4, 6, 8]],
    ),
    "broadcast": (lambda x: fc.broadcast(x, 1, G), [[2, 4, 6, 8]] * 2, [[1, 2, 3, 4], [2, 4, 6, 8]]),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    call, values, gradients = CASES[name]

    def program(x):
        x.requires_grad_()
        y = fc.wait_tensor(call(x)).reshape(-1)
        (y * torch.arange(1.0, len(y) + 1) * (dist.get_rank() + 1)).sum().backward()
        assert x.tolist() == (torch.arange(1.0, 5.0) * (dist.get_rank() + 1)).tolist()
        return y.tolist(), x.grad.tolist()

    assert on_two_ranks(program) == list(zip(values, gradients, strict=True))


def test_groups_are_named_in_every_way():
    def program(x):
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("all",))
        ways = [dist.group.WORLD, dist.new_group([0, 1]).group_name, mesh, (mesh, 0), [0, 1]]
        with pytest.raises(ValueError, match="expected a ProcessGroup, its name"):
            fc.all_reduce(x, "sum", 3)
        with pytest.raises(RuntimeError, match="no reduction 'nope'"):
            fc.all_reduce(x, "nope", G)
        with pytest.raises(AssertionError, match="multiple of group_size 2"):
            fc.reduce_scatter_tensor(x[:3], "sum", 0, G)
        largest = fc.all_reduce_coalesced([x, -x], "max", G)
        swapped = fc.permute_tensor(x, [1, 0], G)
        return (
            [fc.all_reduce(x, "sum", g).tolist() for g in ways],
            [t.tolist() for t in largest],
            swapped.tolist(),
        )

    first, second = on_two_ranks(program)
    assert first[:2] == second[:2] == ([[3, 6, 9, 12]] * 5, [[2, 4, 6, 8], [-1, -2, -3, -4]])
    assert (first[2], second[2]) == ([2, 4, 6, 8], [1, 2, 3, 4])

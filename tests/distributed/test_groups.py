"""Groups of ranks and messages between them: one contract on every transport."""

from __future__ import annotations

import pytest

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.errors import MismatchError, StallError


def in_a_group(fn):
    def run():
        dist.init_process_group()
        return fn(dist.get_rank())

    return run


def test_ranks_that_name_different_members_are_told():
    with pytest.raises(MismatchError, match="rank 1 is the first that differs"):
        dist.simulate(in_a_group(lambda rank: dist.new_group([0] if rank else [0, 1])), 2)


def test_a_message_of_another_dtype_is_refused_before_anything_is_written():
    def exchange(rank):
        if rank == 0:
            dist.send(torch.zeros(4, dtype=torch.float64), 1)
        else:
            dist.recv(torch.zeros(4), 0)

    with pytest.raises(MismatchError, match=r"(?s)float64.*Nothing was written") as caught:
        dist.simulate(in_a_group(exchange), 2)
    assert "test_groups.py" in str(caught.value)


def test_a_receive_that_nobody_answers_is_named_at_once():
    with pytest.raises(StallError, match=r"recv\(src=1"):
        dist.simulate(in_a_group(lambda rank: dist.recv(torch.zeros(1), 1 - rank)), 2)


def test_use_outside_the_group_is_an_error():
    def use(rank):
        group = dist.new_group([0])
        if rank == 1:
            dist.all_reduce(torch.zeros(1), group=group)

    with pytest.raises(ValueError, match="rank 1 is not part of the group"):
        dist.simulate(in_a_group(use), 2)

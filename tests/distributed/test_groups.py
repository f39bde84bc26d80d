"""Groups of ranks and messages between them: one contract on every transport."""

from datetime import timedelta

import numpy as np
import pytest

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.distributed.distributed_c10d import _set_pg_timeout as set_pg_timeout
from ddpgrad.distributed.transports.calls import AllToAll, Counts
from ddpgrad.distributed.transports.mpi.pairwise import pieces, starts
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


def test_a_rank_outside_the_group_is_warned_and_takes_no_part():
    def use(rank):
        group = dist.new_group([0])
        x = torch.full((1,), 7.0)
        if rank == 0:
            dist.all_reduce(x, group=group)
            return
        with pytest.warns(UserWarning, match="Running all_reduce on global rank 1 which does not belong"):
            assert dist.all_reduce(x, group=group) is None
        with pytest.warns(UserWarning, match="Running recv"):
            assert dist.recv(x, 0, group) == -1
        assert x.item() == 7
        with pytest.raises(
            ValueError, match=r"Invalid process group specified.*rank 1 is not part of the group"
        ):
            dist.get_backend(group)
        dist.destroy_process_group(group)

    dist.simulate(in_a_group(use), 2)


def test_a_group_that_was_left_is_not_left_again():
    def leave(rank):
        group = dist.new_group([0, 1])
        dist.destroy_process_group(group)
        with pytest.raises(
            ValueError, match=r"Invalid process group specified: destroy_process_group was called"
        ):
            dist.destroy_process_group(group)

    dist.simulate(in_a_group(leave), 2)


def test_lists_of_another_length_are_refused_on_all_ranks():
    def share(rank):
        with pytest.raises(MismatchError, match=r"'3 objects'.*\n.*'1 objects'"):
            dist.broadcast_object_list([1, 2, 3] if rank == 0 else [None])

    dist.simulate(in_a_group(share), 2)


def test_a_work_tells_what_went_wrong():
    def differ(rank):
        work = dist.all_reduce(torch.zeros(2 + rank), async_op=True)
        with pytest.raises(MismatchError):
            work.wait()
        assert work.is_completed()
        assert not work.is_success()
        assert isinstance(work.exception(), MismatchError)
        seen.append(rank)

    seen: list[int] = []
    dist.simulate(in_a_group(differ), 2)
    assert sorted(seen) == [0, 1]


def test_an_exchange_moves_only_what_is_for_others():
    """Three processes of 1, 2 and 1 ranks, by hand: every byte goes once, from its sender to its receiver."""
    table = np.array([[0, 5, 1, 2], [3, 0, 0, 7], [1, 1, 1, 1], [9, 0, 4, 0]])
    blocks = [range(1), range(1, 3), range(3, 4)]
    counts = Counts(table)
    sent = [np.arange(row.sum(), dtype=np.int16) + 100 * rank for rank, row in enumerate(table)]
    calls = [AllToAll(None, sent[r], np.zeros(table[:, r].sum(), np.int16), counts) for r in range(4)]
    ends = [pieces([calls[r] for r in block], block, blocks, limit=64) for block in blocks]
    moved = np.zeros((3, 3), int)
    for round_of_all in zip(*ends, strict=True):
        for source, out in enumerate(round_of_all):
            for target, into in enumerate(round_of_all):
                a, b = starts(out.sent)[target], starts(into.received)[source]
                assert out.sent[target] == into.received[source]
                into.receive[b : b + out.sent[target]] = out.send[a : a + out.sent[target]]
                moved[source, target] += out.sent[target]
    for target, call in enumerate(calls):
        parts = [sent[source][counts.block(source, target)[0]] for source in range(4)]
        assert call.result.tolist() == np.concatenate(parts).tolist()
    by_process = np.add.reduceat(np.add.reduceat(table, [0, 1, 3], axis=0), [0, 1, 3], axis=1)
    assert (moved == by_process * 2).all()


def test_a_group_that_is_made_again_has_its_own_limit_of_time(monkeypatch):
    monkeypatch.setenv("DDPGRAD_TIMEOUT", "500")

    def limits(given):
        dist.init_process_group(timeout=given)
        group = dist.group.WORLD
        limit = group.communicator._port.transport.timeout
        dist.destroy_process_group()
        return limit

    found = dist.simulate(lambda: [limits(given) for given in (7.0, 8.0, None)], 1)
    assert found == [[7.0, 8.0, 500.0]]


def test_the_limit_of_time_is_set_later():
    def limits(rank):
        pair, only = dist.new_group([0, 1]), dist.new_group([0])
        set_pg_timeout(timedelta(seconds=40), pair)
        if rank:
            with pytest.raises(ValueError, match="no member of it"):
                set_pg_timeout(30.0, only)
        return pair.timeout, pair.communicator._port.transport.timeout, dist.group.WORLD.timeout != 40.0

    assert dist.simulate(in_a_group(limits), 2) == [(40.0, 40.0, True)] * 2


def test_collectives_write_to_what_was_made_in_inference_mode():
    def reduce(rank):
        with torch.inference_mode():
            x, rows = torch.full((2,), rank + 1.0), [torch.zeros(2) for _ in range(2)]
        dist.all_reduce(x)
        dist.all_gather(rows, x * (rank + 1))
        return x.tolist(), [row.tolist() for row in rows]

    assert dist.simulate(in_a_group(reduce), 2) == [([3.0, 3.0], [[3.0, 3.0], [6.0, 6.0]])] * 2

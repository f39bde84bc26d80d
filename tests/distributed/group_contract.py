"""What groups and messages must do on every transport, run by each rank; prints "ok" at the end."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.distributed.ranks import host
from ddpgrad.errors import StallError


def check(backend: str | None = None) -> str:
    """Run the whole contract as one rank of a world of any size."""
    dist.init_process_group(backend)
    try:
        _crossing()
        _groups()
        _rooted()
        _exchanges()
        _outputs()
        _messages()
        _objects()
        _differentiable()
        _works()
        _splits()
        _limits()
    finally:
        dist.destroy_process_group()
    assert not dist.is_initialized()
    dist.init_process_group(backend)
    try:
        assert _total(1) == dist.get_world_size()
    finally:
        dist.destroy_process_group()
    return "ok"


def _total(value: float, group=None) -> float:
    t = torch.tensor([float(value)])
    dist.all_reduce(t, group=group)
    return t.item()


def _groups() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    even = list(range(0, size, 2))
    group = dist.new_group(even)
    if rank in even:
        assert dist.get_rank(group) == even.index(rank)
        assert dist.get_world_size(group) == len(even)
        assert dist.get_process_group_ranks(group) == even
        assert _total(rank, group) == sum(even)
        big = torch.full((70_001,), float(rank))  # more than a flag round takes
        dist.all_reduce(big, group=group)
        assert big[70_000].item() == sum(even)
        t = torch.tensor([rank])
        dist.broadcast(t, src=even[-1], group=group)
        assert t.item() == even[-1]
        t = torch.tensor([rank])
        dist.broadcast(t, group=group, group_src=0)
        assert t.item() == even[0]
    else:
        assert dist.get_rank(group) == -1
        assert group is dist.GroupMember.NON_GROUP_MEMBER
    # Disjoint groups made by one call, and one that only its members make.
    assert _total(rank, dist.new_group([rank])) == rank
    if rank in even:
        alone = dist.new_group(even, use_local_synchronization=True)
        assert _total(rank, alone) == sum(even)
    # Groups in each other's way: every pair of neighbours, while the world goes on.
    pairs = [list(range(i, min(i + 2, size))) for i in range(0, size, 2)]
    mine, made = dist.new_subgroups_by_enumeration(pairs)
    assert len(made) == len(pairs)
    members = dist.get_process_group_ranks(mine)
    for step in range(3):
        assert _total(rank + step, mine) == sum(members) + step * len(members)
        assert _total(1) == size
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1), process_group=mine)
    ddp(torch.full((1, 2), float(rank))).sum().backward()
    assert ddp.module.weight.grad[0, 0].item() == sum(members) / len(members)
    dist.destroy_process_group(mine)
    assert _total(1) == size
    # A group gives back what it took: names of its memory, open files and processes that are watched.
    held = []
    for _ in range(3):
        group = dist.new_group()
        assert _total(1, group) == size
        dist.destroy_process_group(group)
        with pytest.raises(RuntimeError, match="destroy_process_group was called"):
            dist.all_reduce(torch.ones(1), group=group)
        assert _total(1) == size  # all ranks of this process have left
        gc.collect()  # what was there before
        held.append((len(os.listdir("/proc/self/fd")), _shared_memory()))
    assert all(after <= before for before, after in zip(held[0], held[2], strict=True)), held


def _crossing() -> None:
    """0 and 1, and 2 and 3, may share a process: what 0 and 2 do ends when 1 and 3 have done it, who begin in the middle."""
    rank = dist.get_rank()
    if dist.get_world_size() < 4 or rank > 3:
        return

    def in_turn(act):
        if rank in (1, 2):
            dist.recv(torch.zeros(1), {1: 0, 2: 3}[rank])
        elif rank == 0:
            dist.send(torch.zeros(1), 1)
        result = act()
        if rank == 3:
            dist.send(torch.zeros(1), 2)
        return result

    pair = [rank % 2, rank % 2 + 2]
    group = in_turn(lambda: dist.new_group(pair, use_local_synchronization=True))
    for _ in range(2):
        assert in_turn(lambda: _total(rank, group)) == sum(pair)
    dist.destroy_process_group(group)


def _shared_memory() -> int:
    return sum("/dev/shm/ddpgrad" in line for line in Path("/proc/self/maps").read_text().splitlines())


def _rooted() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    last = size - 1
    t = torch.tensor([float(rank)])
    dist.reduce(t, dst=last)
    assert t.item() == (sum(range(size)) if rank == last else rank)
    got = [torch.empty(2) for _ in range(size)] if rank == last else None
    dist.gather(torch.tensor([rank, 1.0]), got, dst=last)
    if got is not None:
        assert [g.tolist() for g in got] == [[r, 1.0] for r in range(size)]
    t = torch.empty(2, dtype=torch.int64)
    dist.scatter(t, [torch.tensor([r, -r]) for r in range(size)] if rank == 0 else None)
    assert t.tolist() == [rank, -rank]
    t = torch.tensor([1.0, 2.0])
    dist.all_reduce(t, op=dist.make_premul_sum(2.0))
    assert t.tolist() == [2.0 * size, 4.0 * size]
    bits = torch.tensor([1 << rank, 7])
    dist.all_reduce(bits, op=dist.ReduceOp.BOR)
    assert bits.tolist() == [2**size - 1, 7]


def _exchanges() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    rows = torch.arange(size * 2).reshape(size, 2) + 100 * rank
    for output in (
        torch.empty(size * size, 2, dtype=torch.int64),
        torch.empty(size * size * 2, dtype=torch.int64),
        torch.empty(size, size, 2, dtype=torch.int64),
    ):
        work = dist.all_gather_into_tensor(output, rows, async_op=True)
        assert work is not None
        work.wait()
        assert output.reshape(size, size, 2)[:, 0, 0].tolist() == [100 * r for r in range(size)]
    part = torch.empty(1, 2, dtype=torch.int64)
    dist.reduce_scatter_tensor(part, rows)
    assert part[0, 0].item() == size * 2 * rank + 100 * sum(range(size))
    mine = torch.empty(3)
    dist.reduce_scatter(mine, [torch.full((3,), float(rank + r)) for r in range(size)])
    assert mine.tolist() == [sum(range(size)) + size * rank] * 3
    out = torch.empty_like(rows)
    dist.all_to_all_single(out, rows)
    assert out[:, 0].tolist() == [2 * rank + 100 * r for r in range(size)]
    # Rank s sends d + 1 rows to rank d, each with the value s.
    sent = torch.full((sum(range(1, size + 1)), 1), float(rank))
    got = torch.empty((rank + 1) * size, 1)
    dist.all_to_all_single(got, sent, [rank + 1] * size, list(range(1, size + 1)))
    assert got.flatten().tolist() == [float(r) for r in range(size) for _ in range(rank + 1)]
    lists = [torch.empty(rank + 1, 2) for _ in range(size)]
    dist.all_to_all(lists, [torch.full((d + 1, 2), float(rank)) for d in range(size)])
    assert [t[0, 0].item() for t in lists] == list(range(size))
    everyone = [torch.empty(2) for _ in range(size)]
    work = dist.all_gather(everyone, torch.tensor([rank, 0.5]), async_op=True)
    assert work is not None
    assert [t[0].item() for t in work.get_future().then(lambda f: f.value()).wait()] == list(range(size))


def _outputs() -> None:
    """What is sent may lie in the output, and the output anywhere: small, and more than passes at once."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for n in (3, 200_000):
        whole = torch.zeros(size, n)
        whole[rank] = rank + 1.0
        version = whole._version
        dist.all_gather_into_tensor(whole, whole[rank])
        assert whole.mean(1).tolist() == [r + 1.0 for r in range(size)] and whole._version > version
        apart = torch.zeros(n, size).t()
        dist.all_gather_into_tensor(apart, torch.full((n,), rank + 1.0))
        assert apart.equal(whole)
        dist.reduce_scatter_tensor(whole[rank], whole)
        assert whole[:, n // 2].tolist() == [(r + 1.0) * (size if r == rank else 1) for r in range(size)]
        rows = torch.arange(size).repeat_interleave(n) + 10 * rank
        dist.all_to_all_single(rows, rows)
        assert rows.equal(torch.arange(size).repeat_interleave(n) * 10 + rank)
        for half in (torch.zeros(2 * size * n)[1::2], torch.zeros(2 * size * n)[1 : 1 + size * n]):
            dist.all_to_all_single(half, torch.full((size * n,), float(rank)))
            assert half.reshape(size, n)[:, -1].tolist() == [float(r) for r in range(size)]


def _messages() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        return
    after, before = (rank + 1) % size, (rank - 1) % size
    for n in (0, 3, 300_000):  # nothing, a letter, more than a ring holds
        out = torch.full((n,), float(rank))
        into = torch.empty(n)
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, out, after), dist.P2POp(dist.irecv, into, before)]
        )
        for work in works:
            work.wait()
        assert (into == before).all()
    # Everyone sends first: short messages need no receiver.
    dist.send(torch.tensor([rank, 1]), after, tag=1)
    dist.send(torch.tensor([rank, 2]), after, tag=2)
    t = torch.empty(2, dtype=torch.int64)
    assert dist.recv(t, before, tag=2) == before
    assert t.tolist() == [before, 2]
    assert dist.recv(t, before, tag=1) == before
    assert t.tolist() == [before, 1]
    half = torch.zeros(4, 2, dtype=torch.bfloat16)
    dist.send(torch.full((4,), 0.5 + rank, dtype=torch.bfloat16), after)
    dist.recv(half[:, 1], before)
    assert half.float().tolist() == [[0.0, 0.5 + before]] * 4
    if rank == 0:
        seen = sorted(dist.recv(t) for _ in range(size - 1))
        assert seen == list(range(1, size))
    else:
        dist.send(torch.tensor([rank, rank]), 0)
    dist.barrier()


def _works() -> None:
    """Collectives that are waited for later, in another order than they began."""
    rank, size = dist.get_rank(), dist.get_world_size()
    summed, spread, mine = torch.full((3,), 1.0), torch.tensor(float(rank)), torch.empty(2)
    rows, parts = torch.empty(size, 1), [torch.empty(1) for _ in range(size)]
    works = [
        dist.all_reduce(summed, async_op=True),
        dist.broadcast(spread, 0, async_op=True),
        dist.all_to_all_single(rows, torch.full((size, 1), float(rank)), async_op=True),
        dist.all_to_all(parts, [torch.full((1,), float(rank))] * size, async_op=True),
        dist.scatter(
            mine, [torch.full((2,), float(r)) for r in range(size)] if rank == 0 else None, async_op=True
        ),
        dist.barrier(async_op=True),
    ]
    for work in reversed(works):
        assert work is not None
        assert work.wait()
        assert work.is_completed()
        assert work.exception() is None
    assert (summed == size).all()
    assert spread.item() == 0
    assert rows.flatten().tolist() == [p.item() for p in parts] == list(range(size))
    assert mine.tolist() == [rank, rank]
    dist.monitored_barrier(timeout=60)


def _splits() -> None:
    """Halves of the world, and what is left of it afterwards."""
    rank, size = dist.get_rank(), dist.get_world_size()
    halves = [r for r in (list(range(size // 2)), list(range(size // 2, size))) if r]
    mine = dist.split_group(split_ranks=halves)
    here = next(half for half in halves if rank in half)
    assert dist.get_process_group_ranks(mine) == here
    assert [dist.get_global_rank(mine, dist.get_group_rank(mine, r)) for r in here] == here
    assert _total(rank, mine) == sum(here)
    before = dist.get_pg_count()
    dist.destroy_process_group(mine)
    assert dist.get_pg_count() == before - 1


def _objects() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    table = np.arange(6, dtype=np.float32).reshape(2, 3) + rank
    everyone: list = [None] * size
    dist.all_gather_object(everyone, {"rank": rank, "table": table})
    assert [item["rank"] for item in everyone] == list(range(size))
    assert everyone[-1]["table"].tolist() == (table - rank + size - 1).tolist()
    assert everyone[-1]["table"].dtype == np.float32
    got: list = []
    dist.gather_object(("item", rank), got if rank == 0 else None)
    assert got == ([("item", r) for r in range(size)] if rank == 0 else [])
    out = [None]
    dist.scatter_object_list(out, [{"for": r} for r in range(size)] if rank == 0 else None)
    assert out == [{"for": rank}]


def _differentiable() -> None:
    """Each form is linear: what its backward makes of any gradients is the adjoint of its forward."""
    rank, size = dist.get_rank(), dist.get_world_size()
    d = dist.nn.functional
    like = torch.empty(3, dtype=torch.float64)
    uneven = [torch.empty(rank + 1, dtype=torch.float64) for _ in range(size)]
    forms = {
        "all_reduce": lambda x: [d.all_reduce(x[0])],
        "average": lambda x: [d.all_reduce(x[0], dist.ReduceOp.AVG)],
        "broadcast": lambda x: [d.broadcast(x[0], size - 1)],
        "reduce": lambda x: [d.reduce(x[0], size - 1, dist.ReduceOp.AVG)],
        "gather": lambda x: list(d.gather(x[0], size - 1)),
        "scatter": lambda x: [d.scatter(x, size - 1)],
        "all_gather": lambda x: list(d.all_gather(x[0])),
        "reduce_scatter": lambda x: [d.reduce_scatter(like, x)],
        "average parts": lambda x: [d.reduce_scatter(like, x, dist.ReduceOp.AVG)],
        "all_to_all": lambda x: list(d.all_to_all(uneven, [x[r].expand(3)[:1].repeat(r + 1) for r in range(size)])),
        "rows": lambda x: [
            d.all_to_all_single(torch.empty(size * (rank + 1)), x[0][:1].repeat(size * (size + 1) // 2),
                                [rank + 1] * size, list(range(1, size + 1)))
        ],
    }  # fmt: skip
    torch.manual_seed(rank)
    for name, form in forms.items():
        x = [torch.randint(-9, 9, (3,)).double().requires_grad_() for _ in range(size)]
        y = form(x)
        seen = name != "reduce" or rank == size - 1  # elsewhere the result has no meaning
        g = [torch.randint(-9, 9, t.shape).double() * seen for t in y]
        grads = torch.autograd.grad(y, x, g, allow_unused=True)
        there = sum((a * b).sum().item() for a, b in zip(y, g, strict=True))
        back = sum((a * b).sum().item() for a, b in zip(x, grads, strict=True) if b is not None)
        both = torch.tensor([there, back], dtype=torch.float64)
        dist.all_reduce(both, label=name)
        assert abs(both[0].item() - both[1].item()) < 1e-9, name
    x = torch.tensor([rank + 1.0], requires_grad=True)
    (first,) = torch.autograd.grad(d.all_reduce(x * x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.tolist() == [2.0 * size]


def _limits() -> None:
    """Rank 1 does not come in time; the group can be used afterwards."""
    rank, size, one = dist.get_rank(), dist.get_world_size(), torch.ones(1)
    if size == 1:
        return
    if rank == 0:
        got = torch.zeros(1)
        work = dist.irecv(got, 1)
        with pytest.raises(StallError, match=r"Timed out waiting 20ms .*\[\[1\]\]"):
            work.wait(0.02)
        for all_ranks, named in (
            (False, "Rank 1"),
            (True, f"Rank{'s' * (size > 2)} {', '.join(map(str, range(1, size)))}"),
        ):
            with pytest.raises(StallError, match=f"{named} failed to pass monitoredBarrier in 20 ms"):
                dist.monitored_barrier(timeout=0.02, wait_all_ranks=all_ranks)
        for other in range(1, size):
            dist.send(one, other)
        work.wait(600)
        assert got.item() == 1 and work._source_rank() == 1
    else:
        dist.recv(torch.zeros(1), 0)
        if rank == 1:
            dist.send(one, 0)
        for _ in range(2):  # late
            with pytest.raises(StallError, match=f"Rank {rank} successfully reached monitoredBarrier"):
                dist.monitored_barrier(timeout=60)
    dist.monitored_barrier(timeout=60)
    if host.current().world.launch.procs > 1 and rank in (0, size - 1):  # which are in two processes
        if rank != 0:
            dist.recv(one, 0)
        with pytest.raises(StallError, match=rf"rank {size - 1 - rank} did not come to new_group of ranks 0"):
            dist.new_group([0, size - 1], timeout=0.1, use_local_synchronization=True)
        if rank == 0:
            dist.send(one, size - 1)
    work = dist.group.WORLD.allreduce([one])
    assert work.get_future().wait()[0].item() == size

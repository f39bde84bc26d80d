"""`launcher.prepare` and `setup`: every sample once an epoch, and the same order for every number of ranks."""

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from samples import Stream

import ddpgrad
from ddpgrad import distributed, launcher, nn
from ddpgrad.distributed import simulate
from ddpgrad.errors import CheckpointError
from ddpgrad.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

PERIOD = 1000  # more than any dataset here has samples


def loader(kind: str, size: int, batch: int, drop_last: bool = False, **options) -> DataLoader:
    if kind == "stream":
        return DataLoader(Stream(size), batch, drop_last=drop_last, **options)
    data = range(size)
    if kind == "batches":
        batches = BatchSampler(RandomSampler(data), batch, drop_last)
        return DataLoader(data, batch_sampler=batches, **options)
    if kind == "subset":
        sampler = SubsetRandomSampler(range(0, size, 2), generator=ddpgrad.Generator())
        return DataLoader(data, batch, sampler=sampler, drop_last=drop_last, **options)
    return DataLoader(data, batch, shuffle=kind == "shuffled", drop_last=drop_last, **options)


KINDS = ["sequential", "shuffled", "subset", "batches", "stream"]


def epochs(ranks: int, make, count: int = 2, **options) -> list[list[list[list[int]]]]:
    """By rank, by epoch, the batches."""

    def program():
        prepared = launcher.prepare(make(), **options)
        return [[batch.tolist() for batch in prepared] for _ in range(count)]

    return simulate(program, ranks)


def samples(ranks: list[list[list[list[int]]]], epoch: int) -> list[int]:
    return sorted(itertools.chain(*(batch for rank in ranks for batch in rank[epoch])))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(ranks=st.integers(1, 4), size=st.integers(1, 40), batch=st.integers(1, 5), even=st.booleans())
def test_an_epoch_has_every_sample_once_and_as_many_batches_on_all_ranks(kind, ranks, size, batch, even):
    found = epochs(ranks, lambda: loader(kind, size, batch), even=even)
    wanted = list(range(0, size, 2)) if kind == "subset" else list(range(size))
    units = -(-len(wanted) // batch) if kind == "batches" else len(wanted)  # what is dealt
    last = units % ranks if kind == "batches" else units % (ranks * batch)
    for epoch in range(2):
        counts = {len(rank[epoch]) for rank in found}
        read = samples(found, epoch)
        assert sorted(set(read)) == wanted
        if not even or last == 0 or last >= ranks:
            assert read == wanted
        if even:
            assert len(counts) == 1
        sizes = [[len(b) for b in rank[epoch]] for rank in found]
        assert all(n == batch for mine in sizes for n in mine[:-1]) or kind == "batches"
    if kind in ("shuffled", "batches", "subset") and size > 30:
        assert [rank[0] for rank in found] != [rank[1] for rank in found]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(ranks=st.integers(1, 4), size=st.integers(1, 40), batch=st.integers(1, 5))
def test_drop_last_leaves_out_the_same_on_all_ranks(kind, ranks, size, batch):
    found = epochs(ranks, lambda: loader(kind, size, batch, drop_last=True))
    units = len(range(0, size, 2)) if kind == "subset" else size
    for epoch in range(2):
        assert all(len(b) == batch for rank in found for b in rank[epoch])
        if kind == "batches":
            whole = size // batch
            assert {len(rank[epoch]) for rank in found} == {-(-whole // ranks)}
        else:
            assert {len(rank[epoch]) for rank in found} == {units // (batch * ranks)}
            assert len(samples(found, epoch)) == len(set(samples(found, epoch)))


@pytest.mark.parametrize("kind", ["sequential", "shuffled", "subset", "batches", "stream"])
@settings(max_examples=20)
@given(
    before=st.integers(1, 4), after=st.integers(1, 4), size=st.integers(8, 60), batch=st.integers(1, 4),
    stop=st.integers(0, 3),
)  # fmt: skip
def test_any_number_of_ranks_goes_on_where_the_ranks_stopped(
    tmp_path_factory, kind, before, after, size, batch, stop
):
    folder = tmp_path_factory.mktemp("run")

    def first():
        prepared = launcher.prepare(loader(kind, size, batch))
        list(prepared)
        read = [b.tolist() for b in itertools.islice(prepared, stop)]
        launcher.Checkpointer(folder).save(stop, loader=prepared)
        return read

    def second():
        prepared = launcher.prepare(loader(kind, size, batch))
        launcher.Checkpointer(folder).resume(loader=prepared)
        return [[b.tolist() for b in prepared] for _ in range(2)]

    units = {"subset": len(range(0, size, 2)), "batches": -(-size // batch)}.get(kind, size)
    per_step = before if kind == "batches" else before * batch
    assume(stop * per_step < units)  # the end of the epoch is seen only by who asks for one batch more
    read = simulate(first, before)
    rest = simulate(second, after)
    seen = sorted(itertools.chain(*itertools.chain(*read)))
    left = samples(rest, 0)
    wanted = list(range(0, size, 2)) if kind == "subset" else list(range(size))
    assert sorted(set(left)) == sorted(set(wanted) - set(seen)) or repeats(
        units - stop * per_step, after, batch, kind
    )
    assert set(left) | set(seen) == set(wanted)
    if stop:
        same = epochs(after, lambda: loader(kind, size, batch), count=3)
        assert [rank[1] for rank in rest] == [rank[2] for rank in same]


def repeats(left: int, ranks: int, batch: int, kind: str) -> bool:
    """Whether a last batch of fewer samples than ranks made ranks repeat some."""
    last = left % (ranks if kind == "batches" else ranks * batch)
    return 0 < last < ranks


def test_the_order_is_that_of_one_rank_and_of_a_distributed_sampler():
    alone = epochs(1, lambda: loader("shuffled", 24, 6))[0]
    three = epochs(3, lambda: loader("shuffled", 24, 2))
    for epoch in range(2):
        for step, batch in enumerate(alone[epoch]):
            assert sorted(batch) == sorted(itertools.chain(*(rank[epoch][step] for rank in three)))

    def theirs():
        distributed.init_process_group()
        own = DataLoader(range(24), 2, sampler=DistributedSampler(range(24)))
        assert launcher.prepare(own) is own
        return [[batch.tolist() for batch in own] for _ in range(2)]

    assert simulate(theirs, 3) == three


def test_samplers_that_draw_draw_alike_and_leave_the_generators_alone():
    weights = [1.0] * 10 + [0.0] * 10

    def program():
        ddpgrad.manual_seed(distributed.get_rank() if distributed.is_initialized() else 5)
        sampler = WeightedRandomSampler(weights, 32)
        prepared = launcher.prepare(DataLoader(range(20), 4, sampler=sampler))
        before = ddpgrad.get_rng_state().tolist()
        order = list(prepared.sampler)
        assert ddpgrad.get_rng_state().tolist() == before
        return order

    alone = simulate(program, 1)[0]
    dealt = simulate(program, 4)
    assert list(itertools.chain(*zip(*dealt, strict=True))) == alone
    assert max(alone) < 10


@pytest.mark.parametrize("kind", ["shuffled", "stream"])
def test_workers_read_the_share(kind):
    def make():
        return loader(kind, 22, 2, num_workers=1)

    assert epochs(2, make) == epochs(2, lambda: loader(kind, 22, 2))


def test_a_stream_of_workers_goes_on_only_on_as_many_ranks(tmp_path):
    def program():
        prepared = launcher.prepare(loader("stream", 40, 2, num_workers=1))
        checkpoints = launcher.Checkpointer(tmp_path)
        if checkpoints.latest() is None:
            batches = iter(prepared)
            next(batches)
            checkpoints.save(0, loader=prepared)
            return [b.tolist() for b in batches]
        checkpoints.resume(loader=prepared)
        return [b.tolist() for b in prepared]

    left = simulate(program, 2)
    assert simulate(program, 2) == left
    with pytest.raises(CheckpointError, match="1 workers read goes on only on as many ranks as before, 2"):
        simulate(program, 3)


def test_five_lines_make_a_loop_one_for_many_ranks():
    """Gradients are those of one rank that reads the batches of all."""

    def program(batch):
        ddpgrad.manual_seed(3)
        data = [(ddpgrad.full((4,), float(i)), ddpgrad.tensor(float(i % 3))) for i in range(24)]
        model = nn.Linear(4, 1)
        optimizer = ddpgrad.optim.SGD(model.parameters(), lr=1e-3)
        given = DataLoader(data, batch, shuffle=True)
        loss_fn = nn.MSELoss()
        model, optimizer, batches, loss_fn = launcher.setup(model, optimizer, given, loss_fn)
        for x, y in batches:
            loss_fn(model(x)[:, 0], y).backward()
            optimizer.step()
            optimizer.zero_grad()
        return [p.detach().numpy() for p in model.parameters()]

    alone = simulate(lambda: program(8), 1)[0]
    for mine in simulate(lambda: program(2), 4):
        assert all(
            ddpgrad.allclose(ddpgrad.tensor(a), ddpgrad.tensor(b)) for a, b in zip(mine, alone, strict=True)
        )
    with pytest.raises(TypeError, match="setup takes modules, optimizers and DataLoaders, got int"):
        simulate(lambda: launcher.setup(3), 1)


def test_a_sequential_sampler_needs_no_dataset_of_its_own():
    def program():
        prepared = launcher.prepare(DataLoader(range(7), None, sampler=SequentialSampler(range(7))))
        return [int(x) for x in prepared]

    assert simulate(program, 2) == [[0, 2, 4, 6], [1, 3, 5, 1]]

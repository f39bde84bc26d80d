"""Data loading: PyTorch's order and batches, exact resumption, and shards that cover the data."""

import itertools
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ddpgrad
from ddpgrad.errors import CheckpointError
from ddpgrad.random import fork_rng, rank_generator
from ddpgrad.utils import data

Point = namedtuple("Point", "x y")


class Numbers(data.Dataset):
    """Sample i is i; its reads are recorded."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        self.read.append(index)
        return index


class Stream(data.IterableDataset):
    def __iter__(self):
        return iter(range(7))


def tensor(*values, dtype=np.float32):
    return ddpgrad.from_numpy(np.array(values, dtype=dtype))


def plain(batch):
    """A batch as nested lists."""
    if isinstance(batch, (list, tuple)):
        return [plain(part) for part in batch]
    return batch.tolist() if hasattr(batch, "tolist") else batch


def seen(batches) -> list[list[int]]:
    return [plain(batch) for batch in batches]


# -- the same order as PyTorch ---------------------------------------------------------

# What to build, from a namespace that has PyTorch's names and a dataset of 23 samples.
LOADERS = {
    "sequential": lambda d, torch, s: d.DataLoader(s, batch_size=4),
    "shuffled": lambda d, torch, s: d.DataLoader(s, batch_size=4, shuffle=True),
    "drop_last": lambda d, torch, s: d.DataLoader(s, batch_size=4, shuffle=True, drop_last=True),
    "single samples": lambda d, torch, s: d.DataLoader(s, batch_size=None, shuffle=True),
    "generator": lambda d, torch, s: d.DataLoader(
        s, 5, shuffle=True, generator=torch.Generator().manual_seed(9)
    ),
    "replacement": lambda d, torch, s: d.DataLoader(
        s, 3, sampler=d.RandomSampler(s, replacement=True, num_samples=70, generator=torch.Generator())
    ),
    "more than once": lambda d, torch, s: d.DataLoader(s, 4, sampler=d.RandomSampler(s, num_samples=46)),
    "subset": lambda d, torch, s: d.DataLoader(s, 2, sampler=d.SubsetRandomSampler([3, 5, 7, 11, 13])),
    "weighted": lambda d, torch, s: d.DataLoader(s, 4, sampler=d.WeightedRandomSampler([0.1, 3, 0.5, 2], 10)),
    "weighted once": lambda d, torch, s: d.DataLoader(
        s, 4, sampler=d.WeightedRandomSampler([0.1, 3, 0.5, 2], 3, replacement=False)
    ),
    "batch_sampler": lambda d, torch, s: d.DataLoader(
        s, batch_sampler=d.BatchSampler(d.RandomSampler(s), 6, True)
    ),
    "split": lambda d, torch, s: d.DataLoader(d.random_split(s, [0.5, 0.2, 0.3])[2], 2, shuffle=True),
    "iterable": lambda d, torch, s: d.DataLoader(Stream(), batch_size=3),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", LOADERS)
def test_batches_come_in_pytorchs_order(name):
    torch = pytest.importorskip("torch")
    theirs_data = torch.utils.data
    if name == "iterable":
        theirs = [[0, 1, 2], [3, 4, 5], [6]] * 2
        torch.manual_seed(11)
        torch.empty((), dtype=torch.int64).random_(), torch.empty((), dtype=torch.int64).random_()
    else:
        torch.manual_seed(11)
        loader = LOADERS[name](theirs_data, torch, range(23))
        theirs = [plain(batch) for _ in range(2) for batch in loader]
        length = len(loader)
    with fork_rng():
        ddpgrad.manual_seed(11)
        loader = LOADERS[name](data, ddpgrad, Numbers(23))
        ours = [plain(batch) for _ in range(2) for batch in loader]
        following = rank_generator().uniform(3)
    assert ours == theirs
    assert name == "iterable" or len(loader) == length
    np.testing.assert_array_equal(following, torch.rand(3).numpy())  # the loaders drew equally often


shard_settings = given(
    samples=st.integers(1, 40),
    ranks=st.integers(1, 9),
    shuffle=st.booleans(),
    seed=st.integers(0, 5),
    drop_last=st.booleans(),
    epoch=st.integers(0, 3),
)


def shards(kind, dataset, ranks, epoch, **options) -> list[list[int]]:
    samplers = [kind(dataset, num_replicas=ranks, rank=rank, **options) for rank in range(ranks)]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    assert [len(list(sampler)) for sampler in samplers] == [len(sampler) for sampler in samplers]
    return [list(sampler) for sampler in samplers]


@pytest.mark.torch
@settings(max_examples=60)
@shard_settings
def test_shards_are_pytorchs(samples, ranks, epoch, **options):
    torch = pytest.importorskip("torch")
    theirs = shards(torch.utils.data.DistributedSampler, range(samples), ranks, epoch, **options)
    assert shards(data.DistributedSampler, Numbers(samples), ranks, epoch, **options) == theirs


@settings(max_examples=60)
@shard_settings
def test_shards_are_equally_long_and_cover_the_data(samples, ranks, epoch, drop_last, **options):
    parts = shards(data.DistributedSampler, Numbers(samples), ranks, epoch, drop_last=drop_last, **options)
    assert len({len(part) for part in parts}) == 1
    together = [index for part in parts for index in part]
    if drop_last:
        assert len(set(together)) == len(together) == samples - samples % ranks
    else:
        assert set(together) == set(range(samples))
        assert len(together) - samples < ranks


@settings(max_examples=40)
@given(
    samples=st.integers(0, 30), ranks=st.integers(1, 5), accumulate=st.integers(1, 3), shuffle=st.booleans()
)
def test_an_uneven_sampler_reads_every_sample_once(samples, ranks, **options):
    parts = shards(data.DistributedSampler, range(samples), ranks, 1, even=False, **options)
    assert sorted(index for part in parts for index in part) == list(range(samples))
    lengths = [len(part) for part in parts]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] - lengths[-1] <= options["accumulate"]
    with pytest.raises(ValueError, match="even=False reads every sample, and drop_last leaves some out"):
        data.DistributedSampler(range(3), 2, 0, drop_last=True, even=False)


# -- positions -------------------------------------------------------------------------

KINDS = {
    "shuffled": lambda s, b, d: data.DataLoader(s, b, shuffle=True, drop_last=d),
    "generator": lambda s, b, d: data.DataLoader(
        s, b, shuffle=True, drop_last=d, generator=ddpgrad.Generator().manual_seed(5)
    ),
    "replacement": lambda s, b, d: data.DataLoader(
        s,
        b,
        sampler=data.RandomSampler(
            s, replacement=True, num_samples=2 * len(s) + 33, generator=ddpgrad.Generator()
        ),
        drop_last=d,
    ),
    "distributed": lambda s, b, d: data.DataLoader(
        s, b, sampler=data.DistributedSampler(s, num_replicas=3, rank=1), drop_last=d
    ),
    "iterable": lambda s, b, d: data.DataLoader(Stream(), b, drop_last=d),
}


@settings(max_examples=120)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    samples=st.integers(1, 30),
    batch_size=st.integers(1, 9),
    drop_last=st.booleans(),
    stop=st.integers(0, 40),
)
def test_a_resumed_loader_hands_out_what_was_left(kind, samples, batch_size, drop_last, stop):
    def build():
        dataset = Numbers(samples)
        return dataset, KINDS[kind](dataset, batch_size, drop_last)

    def run(loader, epochs):
        """Yield every batch and a number drawn after it, as dropout draws while training."""
        while loader.epoch < epochs:
            for batch in loader:
                yield plain(batch), rank_generator().raw64()

    with fork_rng():
        ddpgrad.manual_seed(1)
        _, loader = build()
        whole = list(run(loader, 3))
        ddpgrad.manual_seed(1)
        _, loader = build()
        batches = run(loader, 3)
        before = list(itertools.islice(batches, stop))
        state, drawn = loader.state_dict(), rank_generator().get_state()

        ddpgrad.manual_seed(99)
        dataset, loader = build()
        loader.load_state_dict(state)
        rank_generator().set_state(drawn)
        assert loader.state_dict()["batches"] == state["batches"]
        after = list(run(loader, 3))
    assert before + after == whole
    if kind != "iterable":
        assert len(dataset.read) == sum(len(batch) for batch, _ in after)  # what was skipped is not read


def test_the_loader_tells_a_distributed_sampler_its_epoch():
    def epochs(loader, count):
        return [seen(loader) for _ in range(count)]

    numbers = Numbers(12)
    sampler = data.DistributedSampler(numbers, num_replicas=2, rank=0)
    followed = epochs(data.DataLoader(numbers, 3, sampler=sampler), 3)
    assert len({str(epoch) for epoch in followed}) == 3

    sampler = data.DistributedSampler(numbers, num_replicas=2, rank=0)
    loader = data.DataLoader(numbers, 3, sampler=sampler)
    for epoch in (2, 2, 0):  # the program's own choice wins
        sampler.set_epoch(epoch)
        assert seen(loader) == followed[epoch]


ranks_and_batch_size = st.tuples(st.integers(1, 5), st.integers(1, 5))


@settings(max_examples=150)
@given(
    samples=st.integers(1, 40),
    stopped=st.lists(st.tuples(ranks_and_batch_size, st.integers(1, 4)), max_size=3),
    last=ranks_and_batch_size,
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    epoch=st.integers(0, 2),
)
def test_an_epoch_is_continued_by_other_ranks_and_batch_sizes(samples, stopped, last, epoch, **options):
    """Runs stop together after some batches; the last goes on to the end. Together they read the order once."""

    def build(ranks, batch_size, **options):
        samplers = [data.DistributedSampler(range(samples), ranks, rank, **options) for rank in range(ranks)]
        loaders = [data.DataLoader(sampler.dataset, batch_size, sampler=sampler) for sampler in samplers]
        for loader in loaders:
            if state is None:
                for _ in range(epoch):
                    list(loader)
            else:
                loader.load_state_dict(state)
        return loaders

    state, read = None, []
    order = [index for batch in build(1, 1, shuffle=options["shuffle"])[0] for index in plain(batch)]
    assert sorted(order) == list(range(samples))
    for (ranks, batch_size), stop in [*stopped, (last, None)]:
        loaders = build(ranks, batch_size, **options)
        shares = [list(itertools.chain(*seen(itertools.islice(loader, stop)))) for loader in loaders]
        # What the ranks read at one place of their shares are neighbours in the order.
        read += [index for together in zip(*shares, strict=True) for index in together]
        state = loaders[0].state_dict()
        if loaders[0].epoch > epoch:
            break
    assert {loader.epoch for loader in loaders} == {epoch + 1}
    most = max(last[0], *(ranks for (ranks, _), _ in stopped), 1)
    assert abs(len(read) - samples) < most
    if options["drop_last"]:
        assert read == order[: len(read)]
    else:
        assert read == list(itertools.islice(itertools.cycle(order), len(read)))


def test_a_position_that_does_not_fit_is_refused():
    numbers = Numbers(12)

    def loader(batch_size=3, samples=numbers, seed=0):
        sampler = data.DistributedSampler(samples, num_replicas=2, rank=0, seed=seed)
        return data.DataLoader(samples, batch_size, sampler=sampler)

    first = loader()
    next(iter(first))
    state = first.state_dict()
    for other, what in (
        (loader(seed=1), "seed was 0 and is 1"),
        (loader(batch_size=4, seed=1), "seed was 0 and is 1"),
        (loader(samples=Numbers(13)), "number of samples was 12 and is 13"),
    ):
        with pytest.raises(CheckpointError, match=what):
            other.load_state_dict(state)
    plain_loader = data.DataLoader(numbers, 3)
    next(iter(plain_loader))
    with pytest.raises(CheckpointError, match="batch_size was 3 and is 4"):
        data.DataLoader(numbers, 4).load_state_dict(plain_loader.state_dict())
    late = loader()
    late.load_state_dict(state)
    late.sampler.set_epoch(1)
    with pytest.raises(CheckpointError, match=r"epoch 0, but set_epoch\(1\)"):
        next(iter(late))


def test_an_iteration_that_was_replaced_does_not_move_the_position():
    loader = data.DataLoader(Numbers(6), 2)
    old, new = iter(loader), loader._get_iterator()  # as loaders of libraries begin theirs
    next(new)
    assert len(list(old)) == 3
    assert (loader.epoch, loader.state_dict()["batches"]) == (1, 1)


# -- datasets and batches --------------------------------------------------------------


def test_tensor_datasets_are_read_a_batch_at_a_time():
    x, y = tensor(*[[i, -i] for i in range(10)]), tensor(*range(10), dtype=np.int64)
    dataset = data.TensorDataset(x, y)

    class OneByOne(data.TensorDataset):
        def __getitem__(self, index):
            return super().__getitem__(index)

    for source, slow in (
        (dataset, OneByOne(x, y)),
        (data.Subset(data.Subset(dataset, range(1, 10)), [4, 2, 8]), data.Subset(OneByOne(x, y), [5, 3, 9])),
    ):
        fast = list(data.DataLoader(source, batch_size=2))
        assert plain(fast) == plain(list(data.DataLoader(slow, batch_size=2)))
        assert [type(batch) for batch in fast] == [list] * len(fast)
        assert fast[0][1].dtype == ddpgrad.int64
    joined = dataset + data.Subset(dataset, [0])
    assert len(joined) == 11
    assert plain(joined[10]) == plain(joined[-1]) == plain(dataset[0])
    with pytest.raises(IndexError, match="11 samples"):
        joined[11]


def test_random_split_covers_the_dataset_once():
    parts = data.random_split(Numbers(10), [3, 7], generator=ddpgrad.Generator().manual_seed(1))
    assert sorted(index for part in parts for index in part.indices) == list(range(10))
    with pytest.raises(ValueError, match="sum to 9, but the dataset has 10"):
        data.random_split(Numbers(10), [3, 6])


def test_collate_keeps_the_structure_of_samples():
    sample = {
        "array": np.arange(3, dtype=np.int16),
        "tensor": tensor(1.0, 2.0),
        "number": 1.5,
        "count": 3,
        "flag": True,
        "scalar": np.float32(2),
        "name": "a",
        "pair": (1, [2.0, "b"]),
        "point": Point(np.zeros(2), 1),
    }
    batch = data.default_collate([sample, sample])
    kinds = {name: part.dtype for name, part in batch.items() if hasattr(part, "dtype")}
    assert kinds == {
        "array": ddpgrad.int16,
        "tensor": ddpgrad.float32,
        "number": ddpgrad.float64,
        "count": ddpgrad.int64,
        "flag": ddpgrad.bool,
        "scalar": ddpgrad.float32,
    }
    assert batch["array"].shape == (2, 3)
    assert batch["name"] == ["a", "a"]
    assert plain(batch["pair"]) == [[1, 1], [[2.0, 2.0], ["b", "b"]]]
    assert isinstance(batch["point"], Point)
    assert batch["point"].x.shape == (2, 2)
    with pytest.raises(TypeError, match="collate_fn"):
        data.default_collate([object()])
    with pytest.raises(RuntimeError, match="equal size; found lengths"):
        data.default_collate([[1], [1, 2]])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"shuffle": True, "sampler": [0]}, ValueError),
        ({"batch_sampler": [[0]], "batch_size": 2}, ValueError),
        ({"batch_size": 0}, ValueError),
        ({"batch_size": None, "drop_last": True}, ValueError),
        ({"prefetch_factor": 2}, ValueError),
    ],
)
def test_contradicting_arguments_are_refused(options, error):
    with pytest.raises(error):
        data.DataLoader(Numbers(4), **options)

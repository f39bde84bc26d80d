"""Worker processes: the batches of one process, from several; and what happens when a worker goes wrong."""

import gc
import itertools
import os
import random
import re
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import worker_datasets as sent
from matrices import thinned
from worker_loaders import WORKERS, batches, loader, plain

import ddpgrad
from ddpgrad.errors import CheckpointError
from ddpgrad.random import fork_rng, rank_generator
from ddpgrad.utils import data


def same(dataset, *args, **options):
    """The batches without workers and with them, from the same seed, and what the program draws then."""
    found = []
    for workers in (0, WORKERS):
        with fork_rng():
            ddpgrad.manual_seed(3)
            read = batches(dataset, *args, num_workers=workers, **options)
            found.append((read, rank_generator().raw64()))
    return found


# -- the same batches --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (sent.Structures(7), {"batch_size": 3, "shuffle": True}),
        (sent.Structures(7), {"batch_size": None}),
        (sent.Numbers(9), {"batch_size": 2, "drop_last": True, "collate_fn": sent.total}),
        (sent.Numbers(9), {"sampler": data.RandomSampler(range(9), replacement=True, num_samples=40)}),
        (data.Subset(sent.Numbers(9), [8, 3, 1]), {"batch_sampler": [[0, 2], [1]]}),
        (
            data.StackDataset(a=sent.Numbers(5), b=data.Subset(sent.Numbers(9), range(4, 9))),
            {"batch_size": 2},
        ),
        (
            data.TensorDataset(ddpgrad.arange(30).reshape(10, 3).t().t(), ddpgrad.arange(10)),
            {"batch_size": 4},
        ),
        (np.arange(12).reshape(6, 2), {"batch_size": 4, "shuffle": True}),
        ([], {"batch_size": 4}),
    ],
)
def test_workers_give_the_batches_of_one_process(dataset, options):
    alone, together = same(dataset, **options)
    assert together == alone


@pytest.mark.torch
@pytest.mark.parametrize("seeded", [None, False])
def test_numbers_and_order_are_pytorchs(seeded):
    torch = pytest.importorskip("torch")
    torch.manual_seed(5)
    theirs_loader = torch.utils.data.DataLoader(
        TorchDraws(8), 2, shuffle=True, num_workers=WORKERS, multiprocessing_context="fork"
    )
    theirs = [plain(batch) for batch in theirs_loader]
    with fork_rng():
        ddpgrad.manual_seed(5)
        ours = batches(sent.Draws(8), 2, shuffle=True, seed_samples=seeded)
    if seeded is False:
        assert ours == theirs
    else:
        assert [batch[0] for batch in ours] == [batch[0] for batch in theirs]


class TorchDraws:
    """sent.Draws for PyTorch, whose workers are forks and so may use a class of this module."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        import torch

        return index, random.random(), np.random.random(), torch.rand(2)


def test_a_sample_draws_the_same_numbers_whoever_reads_it():
    def epochs(**options):
        with fork_rng():
            ddpgrad.manual_seed(1)
            made = data.DataLoader(sent.Draws(6), seed_samples=True, **options)
            found = [{i: rest for i, *rest in map(plain, itertools.chain(made))} for _ in range(2)]
            return found, rank_generator().raw64(), random.getstate(), np.random.random(0).sum()

    before = random.getstate()
    one, two, none = (
        epochs(batch_size=None, shuffle=s, num_workers=n) for s, n in ((0, 0), (0, 1), (0, WORKERS))
    )
    assert one == two == none
    first, second = one[0]
    assert sorted(first) == list(range(6))
    assert len({str(drawn) for drawn in [*first.values(), *second.values()]}) == 12
    assert random.getstate() == before  # the program's own numbers go on undisturbed


def test_a_worker_knows_who_it_is():
    read = loader(sent.Who(4 * WORKERS), None, generator=ddpgrad.Generator().manual_seed(2))
    found = [plain(sample) for sample in read]
    base_seed = ddpgrad.Generator().manual_seed(2).raw64() % (1 << 63)
    assert [row[1:4] for row in found] == [[i, WORKERS, base_seed + i] for i in range(WORKERS)] * 4
    assert len({row[0] for row in found} - {os.getpid()}) == WORKERS
    assert all(row[4] for row in found)
    assert data.get_worker_info() is None


def test_worker_init_fn_changes_the_workers_own_copy():
    dataset = sent.Counted(4)
    assert batches(dataset, 1, worker_init_fn=sent.mark) == [[104 + 100 * (i % WORKERS)] for i in range(4)]
    assert dataset.count == 4


def test_persistent_workers_stay_and_an_older_iteration_ends():
    made = loader(sent.Who(4), None, persistent_workers=True)
    assert made._iterator is None  # as trainers ask before they change what is loaded
    first, second = [[sample[0] for sample in made] for _ in range(2)]
    assert first == second and made._iterator is not None
    old, new = iter(made), iter(made)
    next(new)
    with pytest.raises(RuntimeError, match="newer iteration"):
        next(old)
    assert len(list(new)) == 3
    again = [sample[0] for sample in loader(sent.Who(4), None)]
    assert not set(again) & set(first)


def test_iterable_datasets_are_dealt_by_themselves():
    found = batches(sent.Shares(9), 2)
    assert found == (
        [[0, 2], [1, 3], [4, 6], [5, 7], [8]] if WORKERS == 2 else [[0, 1], [2, 3], [4, 5], [6, 7], [8]]
    )
    with pytest.warns(UserWarning, match="was reported to be 3"):
        made = loader(sent.Shares(10, length=3), None)
        assert len(made) == 3
        list(made)


# -- memory ------------------------------------------------------------------------------------


def test_batches_keep_their_memory_while_they_live():
    made = loader(sent.Wide(60), None)
    kept = list(made)
    for i, sample in enumerate(kept):
        assert sample.shape == (1000 * (i + 1),) and (sample == i).all()
        sample += 1  # it is the program's own
    view = kept[7].numpy()[5:10]
    del kept, sample
    gc.collect()
    assert [int(sample[0]) for sample in made] == list(range(60))
    np.testing.assert_array_equal(view, 8)


def test_memory_is_used_again_and_nothing_is_left():
    def named() -> set[str]:
        return set(re.findall(r"/dev/shm/\S+", Path("/proc/self/maps").read_text()))

    before, addresses, files = named(), set(), len(os.listdir("/proc/self/fd"))
    for sample in loader(data.Subset(sent.Wide(3), [2] * 100), None):
        addresses.add(sample.data_ptr())
    assert named() <= before  # the memory has no name, under which it could stay behind
    del sample
    gc.collect()
    assert len(addresses) <= 12 * WORKERS  # not 100: batches come in the memory of older ones
    assert len(os.listdir("/proc/self/fd")) <= files + 4  # the fork server's own may have been opened


def test_long_texts_and_long_batches_do_not_block_each_other():
    """Both a task and its answer are larger than the buffer of a connection."""
    found = list(loader(sent.Texts(6), None, prefetch_factor=3))
    assert found == [f"{index} " * 200_000 for index in range(6)]
    many = loader(
        sent.Numbers(1), batch_sampler=[["0" * 300_000]] * 6, collate_fn=sent.as_text, prefetch_factor=3
    )
    assert [len(batch) for batch in many] == [300_000] * 6


def test_workers_share_the_datasets_arrays():
    images = ddpgrad.arange(60000, dtype=ddpgrad.float32).reshape(100, 600)
    dataset = data.TensorDataset(images)
    found = ddpgrad.cat([batch for (batch,) in loader(dataset, 7)])
    assert found.equal(images)


# -- resumption --------------------------------------------------------------------------------


STOPS, KINDS = (0, 1, 4, 6), ("shuffle", "subset", "replacement")
NUMBERS = ((0, WORKERS), (WORKERS, 0), (WORKERS, WORKERS), (1, min(2, WORKERS)))


# By default every stop and every kind occurs with every change of the number.
@pytest.mark.parametrize(
    ("stop", "workers", "kind"),
    thinned(
        dict.fromkeys(product(STOPS, NUMBERS, KINDS)),
        *((stop, NUMBERS[j], KINDS[(i + j) % 3]) for i, stop in enumerate(STOPS) for j in range(4)),
    ),
)
def test_an_epoch_is_continued_by_another_number_of_workers(stop, workers, kind):
    def build(count):
        dataset = sent.Draws(11)
        samplers = {
            "shuffle": lambda: data.RandomSampler(dataset),
            "subset": lambda: data.SubsetRandomSampler(range(11)),
            "replacement": lambda: data.RandomSampler(dataset, True, 70, ddpgrad.Generator().manual_seed(4)),
        }
        return loader(dataset, 2 if kind != "replacement" else 11, sampler=samplers[kind](), num_workers=count,
                      seed_samples=True, prefetch_factor=3 if count else None)  # fmt: skip

    def run(made):
        for batch in made:
            yield plain(batch), rank_generator().raw64()

    with fork_rng():
        ddpgrad.manual_seed(8)
        made = build(workers[0])
        whole = [*run(made), *(plain(b) for b in made)]
        ddpgrad.manual_seed(8)
        made = build(workers[0])
        running = run(made)
        before = list(itertools.islice(running, stop))
        if stop == 0:
            started = iter(made)
        state, drawn = made.state_dict(), rank_generator().get_state()
        del running
        ddpgrad.manual_seed(99)
        made = build(workers[1])
        made.load_state_dict(state)
        rank_generator().set_state(drawn)
        after = [*run(made), *(plain(b) for b in made)]
    assert before + after == whole
    if stop == 0:
        del started


def test_an_iterable_dataset_is_continued_by_as_many_workers():
    made = loader(sent.Shares(23), 2)
    whole = [plain(batch) for batch in made]
    for stop in (1, 5, len(whole) - 1):
        first = loader(sent.Shares(23), 2)
        before = [plain(batch) for batch in itertools.islice(first, stop)]
        second = loader(sent.Shares(23), 2)
        second.load_state_dict(first.state_dict())
        assert before + [plain(batch) for batch in second] == whole
    if WORKERS > 1:
        with pytest.raises(CheckpointError, match=f"num_workers was {WORKERS} and is 1"):
            loader(sent.Shares(23), 2, num_workers=1).load_state_dict(first.state_dict())


# -- what goes wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "error", "texts"),
    [
        ("key", KeyError, ["Caught KeyError in DataLoader worker process", "at sample 5 of the batch [4, 5]", "'five'"]),
        ("own", RuntimeError, ["Caught OwnError", "at sample 5", "five at 5"]),
        ("stop", RuntimeError, ["Caught StopIteration", "at sample 5"]),
        ("kill", RuntimeError, ["exited unexpectedly", "ended with SIGKILL", "was reading sample 5 of the batch [4, 5]"]),
        ("exit", RuntimeError, ["exited unexpectedly", "exit code 3", "sample 5"]),
        ("sleep", RuntimeError, ["timed out after 3 seconds", "is reading sample 5"]),
    ],
)  # fmt: skip
def test_a_failing_worker_is_named_with_its_sample(how, error, texts):
    made = loader(sent.Fails(12, how), 2, timeout=3 if how == "sleep" else 0)
    iteration, found = iter(made), []
    with pytest.raises(error) as caught:
        while True:
            found.append(plain(next(iteration)))
    assert found == [[0, 1], [2, 3]]
    for text in texts:
        assert text in str(caught.value)
    if how in ("key", "own", "stop"):
        assert plain(next(iteration)) == [6, 7]  # the worker lives, and the next batch comes
    else:
        with pytest.raises(error):
            next(iteration)


def test_a_sample_that_stops_iteration_ends_no_loop_without_workers():
    made = data.DataLoader(sent.Fails(12, "stop"), 2)
    with pytest.raises(RuntimeError, match=r"raised StopIteration in batch 2") as caught:
        list(made)
    assert isinstance(caught.value.__cause__, StopIteration)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"num_workers": -1}, ValueError, "num_workers"),
        ({"num_workers": 1, "timeout": -1}, ValueError, "timeout"),
        ({"num_workers": 1, "prefetch_factor": -1}, ValueError, "prefetch_factor"),
        ({"num_workers": 0, "persistent_workers": True}, ValueError, "persistent_workers"),
        ({"num_workers": 0, "multiprocessing_context": "spawn"}, ValueError, "multiprocessing_context"),
        ({"num_workers": 1, "multiprocessing_context": "thread"}, ValueError, "'forkserver'"),
        ({"num_workers": 1, "multiprocessing_context": 3}, TypeError, "multiprocessing_context"),
    ],
)
def test_worker_options_are_checked(options, error, text):
    with pytest.raises(error, match=text):
        data.DataLoader(sent.Numbers(4), **options)
    with pytest.raises(ValueError, match="batch_size attribute should not be set"):
        data.DataLoader(sent.Numbers(4)).batch_size = 3


def test_warnings_are_pytorchs():
    with pytest.warns(UserWarning, match="will create 999 worker processes"):
        data.DataLoader(sent.Numbers(4), num_workers=999)
    if not ddpgrad.cuda.is_available():
        with pytest.warns(UserWarning, match="no accelerator is found"):
            data.DataLoader(sent.Numbers(4), pin_memory=True)


def test_a_loader_of_a_library_is_iterated_in_this_process_only():
    dataloader: Any = data.dataloader

    other = SimpleNamespace(dataset=[1, 2, 3], collate_fn=str, _dataset_kind=0, _index_sampler=[2, 0])
    assert list(dataloader._SingleProcessDataLoaderIter(other)) == ["3", "1"]
    other._dataset_kind = dataloader._DatasetKind.Iterable
    assert list(dataloader._SingleProcessDataLoaderIter(other)) == ["1", "2", "3"]
    with pytest.raises(NotImplementedError, match="num_workers=0"):
        dataloader._MultiProcessingDataLoaderIter(other)

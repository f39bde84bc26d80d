"""A resumed epoch is the uninterrupted one: over dataset and batch sizes, worker processes, ranks and drop_last."""

import itertools
import os
import sys
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import ddpgrad
from ddpgrad.random import fork_rng
from ddpgrad.utils import data

sys.path.append(str(Path(__file__).parent))

import worker_datasets as sent

WORKERS = st.integers(0, min(2, len(os.sched_getaffinity(0))))
Sample = tuple[Any, ...]


def shares(
    samples: int,
    batch_size: int,
    drop_last: bool,
    ranks: int,
    workers: int,
    states: list[Any],
    stop: int | None,
) -> tuple[list[list[Sample]], list[Any]]:
    """What each rank reads of its first epoch, up to `stop` batches, from its state if there is one; its state then.

    A sample is its index and what the random generators drew for it.
    """
    read, after = [], []
    for rank in range(ranks):
        ddpgrad.manual_seed(8 if not states else 99)
        dataset = sent.Draws(samples)
        sampler = data.DistributedSampler(dataset, ranks, rank, drop_last=drop_last)
        loader = data.DataLoader(
            dataset, batch_size, sampler=sampler, drop_last=drop_last, num_workers=workers, seed_samples=True
        )
        if states:
            loader.load_state_dict(states[rank % len(states)])
        batches = iter(loader)
        read.append(
            [
                (int(index), *map(float, drawn), *pair.tolist())
                for batch in itertools.islice(batches, stop)
                for index, *drawn, pair in zip(*batch, strict=True)
            ]
        )
        after.append(loader.state_dict())
        del batches  # and its workers
    return read, after


@settings(max_examples=8)
@given(
    samples=st.integers(1, 17),
    batch_size=st.integers(1, 4),
    drop_last=st.booleans(),
    ranks=st.integers(1, 2),
    workers=st.tuples(WORKERS, WORKERS),
    stop=st.integers(0, 4),
)
def test_a_resumed_epoch_is_the_uninterrupted_one(samples, batch_size, drop_last, ranks, workers, stop):
    options = (samples, batch_size, drop_last, ranks)
    batches = (samples // ranks if drop_last else -(-samples // ranks)) / batch_size
    stop = min(stop, int(batches) - 1 if drop_last else int(-(-batches // 1)) - 1)
    with fork_rng():
        whole, _ = shares(*options, 0, [], None)
        before, states = shares(*options, workers[0], [], max(stop, 0))
        rest, _ = shares(*options, workers[1], states, None)
    assert [a + b for a, b in zip(before, rest, strict=True)] == whole


@settings(max_examples=4)
@given(
    samples=st.integers(4, 17),
    batch_sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    ranks=st.permutations([1, 2, 3]),
    workers=st.tuples(WORKERS, WORKERS),
)
def test_other_ranks_and_workers_read_what_was_left(samples, batch_sizes, ranks, workers):
    with fork_rng():
        before, states = shares(samples, batch_sizes[0], False, ranks[0], workers[0], [], 1)
        rest, _ = shares(samples, batch_sizes[1], False, ranks[1], workers[1], states[:1], None)
    first, second = ({sample[0] for share in part for sample in share} for part in (before, rest))
    assert first | second == set(range(samples))
    if len(first) < samples:  # where padding of the last ranks' shares has repeated none
        assert len(first & second) < max(ranks)

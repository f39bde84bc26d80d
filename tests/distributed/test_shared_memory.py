"""Shared memory itself: what happens when there is none, too little, or no one to share it with."""

import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ddpgrad.distributed import transports
from ddpgrad.distributed.communicator.communicator import Alone, Communicator
from ddpgrad.distributed.transports.shm import segments
from ddpgrad.environment import Launch
from ddpgrad.errors import StallError, TransportError


@pytest.fixture
def ends():
    """Two ends of one job in this process: a pool, and the transport and communicator of each."""
    job = secrets.token_hex(4)
    with ThreadPoolExecutor(2) as pool:

        def connect(proc: int) -> tuple[transports.Transport, Communicator]:
            transport = transports.connect(Launch(2, 2, proc, job), "shm", timeout=20)
            return transport, Communicator(proc, 2, "shm", Alone(transport))

        ends = list(pool.map(connect, range(2)))
        yield pool, ends
        for transport, _ in ends:
            transport.close()


@pytest.fixture
def both(ends):
    """`both(fn)` runs fn(communicator) at both ends at the same time."""
    pool, communicators = ends[0], [communicator for _, communicator in ends[1]]
    return lambda fn: [made.result(30) for made in [pool.submit(fn, c) for c in communicators]]


@pytest.mark.parametrize("length", [100, 300_000])
@pytest.mark.parametrize("allocated", [False, True])
def test_short_ways_give_what_the_general_ones_give(ends, both, length, allocated):
    """`AtOnce`, `SmallSum` and `InWindows` beside `InSlots` and `InShares`."""

    def program(communicator):
        rng = np.random.default_rng(communicator.rank)
        numbers = rng.standard_normal(length).astype(np.float32)
        array = communicator.allocate(length, np.float32) if allocated else np.empty(length, np.float32)
        results = []
        for op in ("sum", "avg", "max"):
            array[...] = numbers
            communicator.all_reduce(array, op)
            results.append(array.tobytes())
        array[...] = numbers
        communicator.broadcast(array, 1)
        results.append(array.tobytes())
        results += [row.tobytes() for row in communicator.all_gather(numbers)]
        results += [part.tobytes() for part in communicator.all_to_all(numbers)]
        return [*results, communicator.reduce_scatter(numbers).tobytes()]

    short = both(program)
    for transport, _ in ends[1]:
        transport._alone = False
    assert both(program) == short


def test_too_little_room_is_said_on_all_ranks_and_survived(both, monkeypatch):
    def allocate(communicator):
        with pytest.raises(TransportError) as caught:
            communicator.allocate(1_000_000, np.float64)
        return str(caught.value)

    def still_works(communicator):
        array = communicator.allocate(1_000_000, np.float32) + 1
        communicator.all_reduce(array)
        return array.sum()

    with monkeypatch.context() as patch:
        patch.setattr(segments, "available", lambda: 5_000_000)
        first, second = both(allocate)
    assert first == second
    assert "16007168 bytes wanted, 5000000 available" in first
    assert "--shm-size" in first
    assert both(still_works) == [2_000_000, 2_000_000]


def test_windows_that_no_rank_uses_are_unmapped(both):
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("window")

    def allocate_often(communicator):
        for _ in range(10):
            array = communicator.allocate(100_000, np.float32)
            communicator.all_reduce(array)

    before = mapped()
    both(allocate_often)
    both(lambda communicator: communicator.allocate(0, np.int8))
    assert mapped() <= before


def test_a_process_that_never_comes():
    job = secrets.token_hex(4)
    with pytest.raises(StallError, match=r"rank 1 did not come to init_process_group within 0\.2 seconds"):
        transports.connect(Launch(2, 2, 0, job), "shm", timeout=0.2)
    with pytest.raises(StallError, match=r"rank 0 did not come to init_process_group within 0\.2 seconds"):
        transports.connect(Launch(2, 2, 1, job), "shm", timeout=0.2)
    assert not list(Path("/dev/shm").glob(f"*{job}*"))


def test_a_job_name_cannot_leave_its_folder():
    with pytest.raises(TransportError, match="must be a word"):
        transports.connect(Launch(2, 2, 0, "../etc/x"), "shm", timeout=0.2)


def test_a_host_with_too_little_is_found_before_anything_waits(mpi_job):
    ended = mpi_job(2, 2, "small_memory.py", "shm")
    assert ended.code == 0, ended.output
    said = r"refused: not enough shared memory in /dev/shm: \d+ bytes wanted, 100000 available"
    assert len(re.findall(said, ended.output)) == 2, ended.output


def test_mpi_takes_over_where_that_was_asked_for(mpi_job):
    ended = mpi_job(2, 2, "small_memory.py", "shm,mpi")
    assert ended.output.count("taken: mpi [2.0, 2.0, 2.0]") == 2, ended.output

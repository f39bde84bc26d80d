"""Shared memory itself: what happens when there is none, too little, or no one to share it with."""

import re
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ddpgrad.distributed import transports
from ddpgrad.distributed.communicator.communicator import Alone, Communicator
from ddpgrad.distributed.transports import base
from ddpgrad.distributed.transports.shm import segments, ways
from ddpgrad.environment import Launch
from ddpgrad.errors import MismatchError, RankFailedError, StallError, TransportError


@pytest.fixture
def ends():
    """Two ends of one job in this process: a pool, and the transport and communicator of each."""
    job = secrets.token_hex(4)
    with ThreadPoolExecutor(2) as pool:

        def connect(proc: int) -> tuple[transports.Transport, Communicator]:
            transport = transports.connect(Launch(2, 2, proc, job), "shm", timeout=120)
            return transport, Communicator(proc, 2, "shm", Alone(transport))

        ends = list(pool.map(connect, range(2)))
        yield pool, ends
        for transport, _ in ends:
            transport.close()


@pytest.fixture
def both(ends):
    """`both(fn)` runs fn(communicator) at both ends at the same time."""
    pool, communicators = ends[0], [communicator for _, communicator in ends[1]]
    return lambda fn: [made.result(600) for made in [pool.submit(fn, c) for c in communicators]]


COLLECTIVES = {
    "all_reduce": lambda c, array: c.all_reduce(array, label="one"),
    "reduce_scatter": lambda c, array: c.reduce_scatter(array, label="one"),
    "broadcast": lambda c, array: c.broadcast(array, 1),
    "all_gather": lambda c, array: c.all_gather(array),
    "all_to_all": lambda c, array: c.all_to_all(array),
    "gather": lambda c, array: c.gather(array, 1),
    "scatter": lambda c, array: c.scatter(array, [array, array] if c.rank == 0 else None),
    "barrier": lambda c, array: c.barrier(),
}


def compile_at_once(monkeypatch) -> None:
    monkeypatch.setattr(ways, "_COMPILE_AFTER", 0)
    monkeypatch.setattr(ways, "_COMPILE_IF_LOADED", 0)


def planned(transport) -> int:
    """How many collectives compiled code carries out."""
    return sum(plan is not None for plan in transport.now.__self__._plans.values())


# float32 of 128 KiB fit a slot of two ranks
@pytest.mark.parametrize("length", [100, 32_768, 32_772, 300_000])
@pytest.mark.parametrize("allocated", [False, True])
def test_short_ways_give_what_the_general_ones_give(ends, both, length, allocated, monkeypatch):
    """`AtOnce`, by Python and compiled, and `InWindows` beside `InSlots` and `InShares`."""
    compile_at_once(monkeypatch)

    def program(communicator):
        rng = np.random.default_rng(communicator.rank)
        numbers = rng.standard_normal(length).astype(np.float32)
        window = communicator.allocate(length, np.float32) if allocated else np.empty(length, np.float32)
        results = []
        for view in (window, window[: length // 2 * 2].reshape(-1, 2), window[::2][: length // 4 * 2]):
            for op in ("sum", "avg", "max"):
                window[...] = numbers
                communicator.all_reduce(view, op)
                results.append(view.tobytes())
            window[...] = numbers
            communicator.broadcast(view, 1)
            results.append(view.tobytes())
            for dtype in (np.float32, np.float16, np.bool_):
                sent = view.astype(dtype)
                results += [row.tobytes() for row in communicator.all_gather(sent)]
                results += [part.tobytes() for part in communicator.all_to_all(sent)]
                results += [row.tobytes() for row in communicator.gather(sent, 1) or ()]
                communicator.scatter(sent, [sent, sent[::-1]] if communicator.rank == 0 else None)
                results.append(sent.tobytes())
            results.append(communicator.reduce_scatter(view).tobytes())
        communicator.barrier()
        return results

    short = both(program)
    assert [both(program), both(program)] == [short, short]
    assert planned(ends[1][0][0]) >= (45 if length <= 32_768 else 1)
    for transport, _ in ends[1]:
        transport.alone = False
    assert both(program) == short


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("fault", ["fails", "differs"])
def test_compiled_collectives_notice_a_rank_that_fails_or_differs(ends, both, name, fault, monkeypatch):
    compile_at_once(monkeypatch)
    call, other = COLLECTIVES[name], COLLECTIVES["broadcast" if name == "barrier" else "barrier"]

    def often(communicator):
        for function in [call, other] * 3:
            function(communicator, np.ones(4, np.float32))

    both(often)
    assert planned(ends[1][0][0]) == planned(ends[1][1][0]) == 2
    array = np.zeros(4, np.float32)

    def once(communicator):
        if communicator.rank == 0:
            call(communicator, array)
        elif fault == "differs":
            other(communicator, np.ones(4, np.float32))
        else:
            ends[1][1][0].fail(1, "raised ValueError: bad", secondary=False)
            raise ValueError("bad")

    pool, communicators = ends[0], [communicator for _, communicator in ends[1]]
    first, second = (pool.submit(once, c) for c in communicators)
    told = RankFailedError if fault == "fails" else MismatchError
    with pytest.raises(told, match="rank 1 raised ValueError" if fault == "fails" else f"of float32|{name}"):
        first.result(600)
    with pytest.raises(ValueError if fault == "fails" else MismatchError):
        second.result(600)
    assert not array.any(), "nothing may have moved"


def test_a_message_has_its_own_time_to_come(ends, both):
    """However long ago an earlier one, whose object may have lain at the same address, was waited for."""
    for transport, _ in ends[1]:
        transport.timeout = 0.5

    def late(communicator):
        array = np.zeros(3)
        for _ in range(4):
            if communicator.rank:
                time.sleep(0.2)
                communicator.send(array + 1, 0).wait()
            else:
                communicator.recv(array, 1)[0].wait()
        return array.tolist()

    assert both(late)[0] == [1, 1, 1]


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


@pytest.mark.parametrize("own_core", [True, False])
@pytest.mark.parametrize("yielding_takes", [1e-6, 0.004])
def test_who_waits_sleeps_once_another_program_has_had_its_core(monkeypatch, own_core, yielding_takes):
    """Not where the cores are shared with other ranks: these it is that are let in."""
    did, clock = [], [1.0]

    def pass_by(kind, seconds):
        did.append(kind)
        clock[0] += seconds

    fake = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda seconds: pass_by("sleep", seconds))
    monkeypatch.setattr(base, "time", fake)
    monkeypatch.setattr(base, "_yield_core", lambda: pass_by("yield", yielding_takes))
    patience = base.Patience(spins=0, own_core=own_core)
    for _ in range(4):
        patience.pause()
    crowded = own_core and yielding_takes > 0.001
    assert did == ["yield", *["sleep" if crowded else "yield"] * 3]

"""Ranks that differ, fail, finish early or hang: every other rank is told which, where and why."""

import re

import numpy as np
import pytest
from matrices import thinned
from patience import patience

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import errors, nn
from ddpgrad.distributed.protocol import guard
from ddpgrad.distributed.ranks import host

# fault of the last rank, the error that the others report, what it must say
FAULTS = [
    ("killed", "RankFailedError", r"rank 2 \(process \d+\) died"),
    ("vanished", "RankFailedError", r"rank 2 \(process \d+\) died"),
    ("raised", "RankFailedError", r"rank 2 raised ValueError: no such weather \(.*faulty_program.py:\d+\)"),
    ("finished", "RankFailedError", "rank 2 has finished its program"),
    ("asleep", "StallError", "rank 2 did not arrive within PATIENCE seconds"),
]


def within(fault: str) -> str:
    """The time limit, in seconds; only a rank that sleeps is to reach it."""
    return str(patience() if fault == "asleep" else 60)


@pytest.mark.parametrize(("fault", "error", "text"), thinned(FAULTS, "killed", "asleep"))
def test_shared_memory_names_the_rank_at_fault(start_job, fault, error, text):
    ended = start_job(3, 3, "faulty_program.py", fault, DDPGRAD_TIMEOUT=within(fault)).ended()
    text = text.replace("PATIENCE", within(fault))
    for rank in (0, 1):
        assert ended[rank].code == 1
        assert re.search(rf"\[{rank}\] {error}: .*{text}", ended[rank].output), ended[rank].output


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    thinned([f for f in FAULTS if f[0] in ("finished", "asleep")], "asleep"),
)
def test_ranks_of_other_hosts_are_named(mpi_job, fault, error, text):
    ended = mpi_job(4, 4, "faulty_program.py", fault, "hierarchical", "2", DDPGRAD_TIMEOUT=within(fault))
    assert ended.code != 0
    said = text.replace("rank 2", "rank 3").replace("PATIENCE", within(fault))
    assert re.search(rf"{error}: .*{said}", ended.output), ended.output


def test_a_rank_that_shares_its_process_is_named_to_the_other_process(start_job):
    ended = start_job(4, 2, "faulty_program.py", "raised").ended()
    # Either of its ranks may learn of it first, and the process ends.
    said = r"\[[01]\] RankFailedError: rank 3 raised ValueError: no such weather"
    assert re.search(said, ended[0].output), ended[0].output
    assert "(raised by rank 3)" in ended[1].output
    assert [process.code for process in ended] == [1, 1]


@pytest.mark.parametrize(
    ("transport", "fault", "error", "text"),
    thinned(
        (
            (transport, *f)
            for transport in ("mpi", "shm")
            for f in FAULTS
            if f[0] not in ("killed", "vanished")
        ),
        ("mpi", "raised"),
        ("shm", "finished"),
    ),
)
def test_mpirun_ends_all_ranks(mpi_job, transport, fault, error, text):
    ended = mpi_job(3, 3, "faulty_program.py", fault, transport, DDPGRAD_TIMEOUT=within(fault))
    assert ended.code != 0
    text = text.replace("PATIENCE", within(fault))
    # One rank's report ends the job at once; which rank is first is not said.
    said = rf"{error}: .*{text}" if fault != "raised" else "ValueError: no such weather"
    assert re.search(said, ended.output), ended.output


# What the others, who wait in recv, say of the last rank; the second waits for any rank.
MESSAGE_FAULTS = [
    ("raised", r"RankFailedError: rank 2 .*raised ValueError: no such weather"),
    ("finished", "RankFailedError: rank 2 has finished its program"),
    ("asleep", r"StallError: ranks? .*2 did not arrive within PATIENCE seconds"),
    ("sent", "got 7.0"),
]


@pytest.mark.parametrize(
    ("fault", "text"),
    thinned([*MESSAGE_FAULTS, ("killed", r"RankFailedError: rank 2 \(process \d+\) died")], "killed", "sent"),
)
def test_a_rank_that_waits_for_a_message_is_told_why_none_comes(start_job, fault, text):
    ended = start_job(3, 3, "faulty_messages.py", fault, "auto", DDPGRAD_TIMEOUT=within(fault)).ended()
    text = text.replace("PATIENCE", within(fault))
    assert re.search(rf"\[0\] {text}", ended[0].output), ended[0].output
    if fault != "sent":
        assert [process.code for process in ended[:2]] == [1, 1]
        assert "Error: rank" in ended[1].output  # it may name rank 0, which failed on account of rank 2


@pytest.mark.parametrize(("fault", "text"), thinned(MESSAGE_FAULTS, "finished"))
def test_the_same_through_mpi(mpi_job, fault, text):
    ended = mpi_job(3, 3, "faulty_messages.py", fault, "mpi", DDPGRAD_TIMEOUT=within(fault))
    text = text.replace("PATIENCE", within(fault))
    assert (ended.code == 0) == (fault == "sent")
    said = text if fault != "raised" else "ValueError: no such weather"  # whoever speaks first ends the job
    assert re.search(said, ended.output), ended.output


def simulate_wrong(program, ranks: int = 3) -> str:
    with pytest.raises(errors.DistributedError) as caught:
        host.simulate(program, ranks)
    return f"{type(caught.value).__name__}: {caught.value}"


def test_the_message_shows_both_sides():
    def program():
        communicator = host.current().communicator()
        size = 4 if communicator.rank == 1 else 5
        communicator.all_reduce(np.ones(size, np.float32), "max", label="fc1.weight, fc1.bias")

    message = simulate_wrong(program)
    line = program.__code__.co_firstlineno + 3
    here = rf"{re.escape(__file__)}:{line}"
    assert re.fullmatch(
        r"MismatchError: the ranks are about to do different things in collective number 1; rank 1 is the "
        r"first that differs \(shape \[4\] instead of \[5\]\):\n"
        rf"  ranks 0, 2: all_reduce\(max\) of float32\[5\] 'fc1.weight, fc1.bias' at {here}\n"
        rf"  rank 1: all_reduce\(max\) of float32\[4\] 'fc1.weight, fc1.bias' at {here}\n"
        r"No data was exchanged\. .*",
        message,
    ), message


def test_sums_are_told_apart_by_line_and_joined_by_label():
    def swapped(label: str):
        communicator = host.current().communicator()
        if communicator.rank == 0:
            communicator.all_reduce(np.ones(2), label=label)
        else:
            communicator.all_reduce(np.ones(2), label=label)

    assert "(line " in simulate_wrong(lambda: swapped(""), ranks=2)
    host.simulate(lambda: swapped("loss"), 2)


def test_a_rank_at_fault_is_not_listed_among_those_that_wait():
    message = str(
        guard.rank_failed(
            [1], "raised ValueError", dict.fromkeys(range(3), ("barrier", "", "", "", "a.py:1"))
        )
    )
    assert message == "rank 1 raised ValueError. Others wait:\n  ranks 0, 2: barrier at a.py:1"


def test_broadcast_and_barrier_may_come_from_different_lines():
    def program():
        communicator = host.current().communicator()
        if communicator.rank == 0:
            communicator.broadcast(np.ones(2))
            communicator.barrier()
        else:
            communicator.broadcast(np.zeros(2))
            communicator.barrier()

    host.simulate(program, 3)


def test_ranks_that_wait_for_different_collectives():
    def program():
        communicator = host.current().communicator()
        if communicator.rank == 2:
            communicator.broadcast(np.ones(2), src=1)
        else:
            communicator.barrier()

    message = simulate_wrong(program, 4)
    assert "ranks 0-1, 3: barrier at" in message
    assert "rank 2: broadcast(src=1) of float64[2] at" in message


def test_a_rank_that_is_done_is_not_waited_for():
    def program():
        communicator = host.current().communicator()
        if communicator.rank != 1:
            communicator.barrier(label="end of epoch")

    message = simulate_wrong(program)
    assert message.startswith(
        "RankFailedError: rank 1 has finished its program. Others wait:\n  ranks 0, 2: barrier"
    )
    assert "'end of epoch'" in message


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda c: c.all_reduce([1.0]), TypeError, "expected a numpy array, got list"),
        (lambda c: c.all_reduce(np.ones(2, bool), "avg"), ValueError, "'avg' is not defined for dtype bool"),
        (lambda c: c.all_reduce(np.ones(2, int), "avg"), ValueError, "'avg' is not defined for dtype int64"),
        (
            lambda c: c.all_reduce(np.ones(2), "mean"),
            ValueError,
            "unknown reduction 'mean'; expected one of sum",
        ),
        (lambda c: c.broadcast(np.ones(2), src=2), ValueError, "src must be a rank from 0 to 1, got 2"),
        (lambda c: c.all_reduce(np.broadcast_to(1.0, 3)), ValueError, "read-only"),
        (lambda c: c.all_gather(np.array(["a", None])), ValueError, "object cannot travel"),
        (lambda c: c.reduce_scatter(np.ones(3)), ValueError, "must be a multiple of 2"),
        (lambda c: c.all_gather_object({"a": [{1, 2}]}), TypeError, r"object\['a'\]\[0\] is a set"),
    ],
)
def test_wrong_arguments(call, error, text):
    with pytest.raises(error, match=text):
        host.simulate(lambda: call(host.current().communicator()), 2)


def test_a_sum_within_backward_is_named_by_the_line_of_the_program():
    def program():
        dist.init_process_group()
        model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
        model(torch.ones(1, 2)).sum().backward()
        return host.current().progress.last()

    for told in host.simulate(program, 2):
        averages = [text for text in told if text.startswith("all_reduce(avg)")]
        assert averages and all("test_guard.py:" in text for text in averages), told

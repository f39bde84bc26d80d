"""Several ranks in one process: who they are, in which order they run, how they end."""

import sys
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from ddpgrad.core import rank_local
from ddpgrad.distributed.ranks import host
from ddpgrad.environment import Launch
from ddpgrad.errors import LaunchError, TransportError


def test_ranks_know_themselves():
    def program():
        member = host.current()
        return member.rank, member.world_size, member.local_rank, threading.current_thread().name

    assert host.simulate(program, 3) == [(rank, 3, rank, f"rank {rank}") for rank in range(3)]
    assert rank_local.bound() is None
    assert host.current().world_size == 1


def test_only_collectives_change_the_running_rank():
    order = []

    def program():
        communicator = host.current().communicator()
        for step in range(2):
            order.append((step, communicator.rank))
            time.sleep(0.001)
            order.append((step, communicator.rank))
            communicator.barrier()

    host.simulate(program, 3)
    first = [(0, rank) for rank in (0, 0, 1, 1, 2, 2)]
    assert order[:6] == first
    # The last to arrive goes on; then the next one that can.
    assert order[6:] == [(1, rank) for rank in (2, 2, 0, 0, 1, 1)]


def test_the_first_failure_is_raised_and_the_others_are_unwound():
    unwound = []

    def program():
        communicator = host.current().communicator()
        if communicator.rank == 1:
            communicator.barrier()
            raise KeyError("lost")
        try:
            communicator.barrier()
            communicator.barrier()
        finally:
            unwound.append(communicator.rank)

    with pytest.raises(KeyError, match="lost") as caught:
        host.simulate(program, 4)
    assert sorted(unwound) == [0, 2, 3]
    assert caught.value.__notes__ == ["(raised by rank 1)"]
    assert caught.traceback[-1].name == "program"


def test_ranks_that_poll_let_others_run():
    def program():
        communicator = host.current().communicator()
        array = np.ones(3)
        work = communicator.all_reduce(array, async_op=True)
        while not work.poll():
            pass
        return array.tolist()

    assert host.simulate(program, 3) == [[3.0, 3.0, 3.0]] * 3


def test_deep_recursion_has_room():
    def depth(n: int) -> int:
        return 0 if n == 0 else 1 + max([depth(n - 1)], key=lambda value: value)

    def program():
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(30_000)
        try:
            return depth(9_000)
        finally:
            sys.setrecursionlimit(limit)

    assert host.simulate(program, 2) == [9_000, 9_000]


def test_launches_without_ranks_or_peers_are_refused():
    with pytest.raises(LaunchError, match="process 2 of 3 has no rank: the world has 2 ranks"):
        host.run_ranks(lambda rank: None, Launch(world_size=2, procs=3, proc=2))
    with pytest.raises(TransportError, match="DDPGRAD_JOB is not set"):
        host.run_ranks(lambda rank: host.current().communicator(), Launch(world_size=2, procs=2))
    with pytest.raises(TransportError, match="joins the ranks of one process"):
        host.run_ranks(lambda rank: host.current().communicator("virtual"), Launch(world_size=2, procs=2))


PROGRAM = """
import sys, typing
from dataclasses import dataclass
from ddpgrad.distributed.ranks import host

@dataclass
class Point:
    x: "Point | None"

rank = host.current().rank
seen = []
def note():
    seen.append(rank)
communicator = host.current().communicator()
communicator.barrier()
note()
communicator.barrier()
assert typing.get_type_hints(Point)["x"] == Point | None
assert sys.modules["__main__"].rank == rank
sys.stdout.write(f"{__name__} {sys.argv[1:]} {seen}\\n")
sys.exit(0 if len(sys.argv) < 3 else int(sys.argv[2]) * rank)
"""


@pytest.mark.parametrize("ranks", [1, 3])
def test_scripts_run_as_main_with_globals_of_their_own(run_program, ranks):
    ended = run_program(PROGRAM, ranks, "--fast")
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == [f"__main__ ['--fast'] [{rank}]" for rank in range(ranks)]


def test_an_exit_code_and_a_traceback_come_through(run_program):
    assert run_program(PROGRAM, 2, "-", "7").returncode == 7
    ended = run_program(
        "from ddpgrad.distributed.ranks import host\nif host.current().rank == 1:\n    1 / 0\n", 2
    )
    assert ended.returncode == 1
    assert "    1 / 0\n" in ended.stderr
    assert ended.stderr.rstrip().endswith("ZeroDivisionError: division by zero\n(raised by rank 1)")


def test_a_breakpoint_stops_one_rank(run_program):
    text = """
from ddpgrad.distributed.ranks import host
rank = host.current().rank
if rank == 2:
    breakpoint()
host.current().communicator().barrier()
print("past", rank)
"""
    ended = run_program(text, 4, stdin="p rank * 100\nw\nc\n")
    assert ended.returncode == 0, ended.stderr
    assert "(Pdb) 200" in ended.stdout
    assert "program.py(6)<module>()" in ended.stdout
    assert all(f"past {rank}" in ended.stdout for rank in range(4))


def test_an_interrupt_reaches_the_rank_that_runs(tmp_path, monkeypatch):
    # The script takes its place; loader workers of later tests would import it.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    path = tmp_path / "endless.py"
    path.write_text(
        "from ddpgrad.distributed.ranks import host\n"
        "if host.current().rank == 1:\n"
        "    import _thread, time\n"
        "    _thread.interrupt_main()\n"
        "    try:\n"
        "        while True:\n"
        "            time.sleep(0.01)\n"
        "    except KeyboardInterrupt:\n"
        "        print('rank 1 was interrupted')\n"
        "        raise\n"
        "host.current().communicator().barrier()\n"
    )
    argv, path_before = sys.argv, list(sys.path)
    try:
        with pytest.raises(KeyboardInterrupt):
            host.run_script(str(path), [], Launch(world_size=2))
    finally:
        sys.argv, sys.path[:] = argv, path_before


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_ranks_compute_with_one_blas_thread_unless_the_user_chose(monkeypatch: pytest.MonkeyPatch):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)

    def threads_of_a_rank() -> set[int]:
        host.current().communicator()
        return blas_threads()

    two = threadpool_limits(2, "blas")  # not as a context: within one, other threads may not set limits
    try:
        before = blas_threads()
        assert host.simulate(threads_of_a_rank, 2) == [{1}, {1}]
        assert blas_threads() == before
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        assert host.simulate(threads_of_a_rank, 2) == [before, before]
    finally:
        two.restore_original_limits()

"""A rank that makes no progress is found, named with its line, and ends the job."""

import json
import signal

import pytest
from matrices import thinned
from patience import patience

from ddpgrad.distributed.failure.blame import stalled
from ddpgrad.distributed.failure.phase import main_stack
from ddpgrad.distributed.failure.watchdog import Progress, find

STALLS = {
    "endless loop": ("[None for _ in iter(int, 1)]", "it began no collective and finished no step"),
    "stopped": ("os.kill(os.getpid(), signal.SIGSTOP)", "its process sent no heartbeat"),
    "interpreter lock": ("sum(range(10**12))", "its process sent no heartbeat"),
}


@pytest.mark.parametrize("stall", thinned(STALLS, "endless loop", "stopped"))
def test_a_stalled_rank_is_named_with_its_line(ddprun, stall):
    body, reason = STALLS[stall]
    limit = str(patience())
    script = ddprun.script(f"\ndef work():\n    if rank == 1: {body}\n    wait()\nwork()\n")
    result = ddprun.run("-n", "3", "--watchdog", limit, "--log-dir", "logs", script)
    assert result.code == 3
    assert "ddprun: rank 1 failed (stalled); all ranks were ended." in result.said
    assert any(f"no progress for {limit} s: {reason}" in line for line in result.said)
    assert 'script.py", line 14 in work' in result.err
    assert len(result.said) <= 25
    report = json.loads((ddprun.folder / "logs" / "failure.json").read_text())
    assert report["exit_code"] == 3 and report["first"]["ranks"] == [1]
    assert report["first"]["where"].endswith("script.py:14")
    # What a rank began in the last moments before it stopped may not have been told.
    assert report["ranks"]["0"]["last"][-1].startswith("barrier at ")
    for rank in range(3):
        assert "line 16 in <module>" in (ddprun.folder / "logs" / f"rank_{rank}.stacks").read_text()


def test_a_process_that_does_not_end_after_its_script_is_named(ddprun):
    script = ddprun.script("""
import atexit
def linger(): time.sleep(1000)
if rank == 1: atexit.register(linger)
""")
    limit = str(patience())
    result = ddprun.run("-n", "2", "--watchdog", limit, script)
    assert result.code == 3
    assert "ddprun: rank 1 failed (stalled); all ranks were ended." in result.said
    assert f"no progress for {limit} s: its script has ended, and its process has not" in result.said
    assert "line 14 in linger" in result.err


@pytest.mark.parametrize("limit", ["--timeout", "--watchdog"])
def test_ranks_that_wait_for_one_another_are_told_of_with_their_groups(ddprun, limit):
    script = ddprun.script("""
import ddpgrad as torch
import ddpgrad.distributed as dist
dist.init_process_group()
groups = [dist.new_group([0, 1]) for _ in "ab"]
for group in groups[:: 1 if rank == 0 else -1]:
    dist.all_reduce(torch.ones(2), group=group)
""")
    result = ddprun.run("-n", "2", limit, str(patience()), script)
    assert result.code == 3
    assert result.said[-4:-1] == ["It waits itself. What the ranks began last:"] + [
        f"  rank {rank}: all_reduce(sum) of float32[2] at script.py:18, in group {rank + 1} of ranks 0-1"
        for rank in (0, 1)
    ], result.err


def test_a_thread_that_goes_on_after_the_script_is_told_of(ddprun):
    script = ddprun.script("\nimport threading\nthreading.Thread(target=time.sleep, args=(1000,)).start()\n")
    result = ddprun.run("-n", "1", "--watchdog", str(patience()), script)
    assert result.code == 3
    assert (
        "Its script has ended; a thread that the script started, and made no daemon, goes on." in result.said
    )


def test_a_stall_within_the_standard_library_is_the_users_line():
    stack = main_stack(
        "Thread 0x00007f0000000001 (most recent call first):\n"
        f'  File "{signal.__file__}", line 39 in _enum_to_int\n'
        '  File "/home/user/script.py", line 14 in work\n'
        '  File "/home/user/script.py", line 16 in <module>\n'
    )
    assert stack is not None and stack.where == "/home/user/script.py:14"
    assert [function for _, function in stack.frames] == ["_enum_to_int", "work", "<module>"]


def test_a_rank_that_says_it_is_alive_is_left_alone(ddprun):
    script = ddprun.script(
        """
from ddpgrad import launcher
launcher.alive()  # which is what takes time at first
wait()
if rank == 1:
    for _ in range(12):
        time.sleep(LIMIT / 10)
        launcher.alive()
wait()
""".replace("LIMIT", str(patience()))
    )
    assert ddprun.run("-n", "2", "--watchdog", str(patience()), script).code == 0


def test_a_rank_that_goes_on_when_its_stack_is_asked_for_is_left_alone(ddprun):
    script = ddprun.script(
        """
from ddpgrad.distributed.failure.stacks_signal import STACKS_SIGNAL
if rank == 1:
    signal.signal(STACKS_SIGNAL, lambda *_: None)
    signal.pause()
wait()
time.sleep(3)  # longer than stacks are waited for
"""
    )
    result = ddprun.run("-n", "2", "--watchdog", str(patience()), script)
    assert result.code == 0, result.err


@pytest.mark.full
def test_a_rank_that_compiles_is_left_alone(ddprun):
    """A compiler takes long, counts no steps, and is not always in the same place."""
    (ddprun.folder / "numba").mkdir()
    (ddprun.folder / "numba" / "passes.py").write_text(
        "import time\ndef work(until):\n    while True:\n"
        + "".join(f"        time.sleep(0.{n})\n" for n in range(1, 9))
        + "        if time.monotonic() > until: return\n"
    )
    script = ddprun.script(
        "\nsys.path.insert(0, 'numba')\nimport passes\n"
        f"if rank == 1: passes.work(time.monotonic() + {3 * patience()})\nwait()\n"
    )
    result = ddprun.run("-n", "2", "--watchdog", str(patience()), script)
    assert result.code == 0, result.err


@pytest.mark.parametrize("procs", thinned(["2", "1"], "2"))
def test_a_rank_that_never_arrives_is_named_by_the_time_limit(ddprun, procs):
    limit = str(patience())
    script = ddprun.script("\nif rank == 1: time.sleep(1000)\nwait()\n")
    result = ddprun.run("-n", "2", "--procs", procs, "--timeout", limit, script)
    assert result.code == 3
    assert "ddprun: rank 1 failed (stalled); all ranks were ended." in result.said
    assert f"rank 1 had finished 0 optimizer steps, at {script}:" in result.err
    assert f"rank 1 did not arrive within {limit} seconds" in result.err


@pytest.mark.parametrize(
    "options", [(), pytest.param(("--mpi",), marks=pytest.mark.full)], ids=["shared memory", "MPI"]
)
def test_a_rank_that_does_not_come_to_meet_the_others_is_named(ddprun, request, options):
    if options:
        request.getfixturevalue("mpiexec")
    late = "from ddpgrad import environment\nimport time, ddpgrad.distributed as dist\n"
    late += "if environment.launch().proc == 1: time.sleep(600)\ndist.init_process_group()\n"
    limit = str(patience())
    result = ddprun.run("-n", "2", *options, "--timeout", limit, ddprun.script(late, prelude=""))
    assert result.code == 3
    assert "ddprun: rank 1 failed (stalled); all ranks were ended." in result.said
    assert 'script.py", line 3 in <module>' in result.err


def progress(rank: int, collectives: int, changed: float, heartbeat: float = 100.0) -> Progress:
    return Progress(rank, (collectives, 0, 0), changed, heartbeat)


def test_the_rank_that_the_others_wait_for_is_the_one():
    waiting, behind = progress(0, 11, 10.0), progress(1, 10, 50.0)
    assert find([waiting, behind], 60.0, 100.0) is None  # it still makes progress
    found = find([waiting, behind], 40.0, 100.0)
    assert found is not None and found.ranks == (1, 0)


def test_what_the_rank_waited_for_is_told_though_it_is_being_ended():
    rank = progress(0, 10, 10.0)
    rank.waits_for = "DataLoader worker 0"
    found = find([rank], 40.0, 100.0)
    rank.update((10, 0, 0), [])
    assert found is not None and "It waits for DataLoader worker 0" in stalled(found, {0: rank}, {}).text


def test_a_process_without_a_heartbeat_comes_first():
    silent = progress(0, 11, 10.0, heartbeat=20.0)
    found = find([silent, progress(1, 10, 10.0)], 60.0, 100.0)
    assert found is not None and found.ranks == (0,) and "no heartbeat" in found.reason
    assert find([], 60.0, 100.0) is None

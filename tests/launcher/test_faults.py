"""Any failure of one rank ends all of them, names that rank, and leaves nothing behind."""

import re
from itertools import product

import pytest
from matrices import thinned
from patience import patience
from running import ENDS_EARLY

# The action of rank 1 of 3, for which the others wait; the reason; the end of ddprun's last line.
FAULTS = {
    "exception": ("raise ValueError('boom')", "exit code 1", "ValueError: boom"),
    "exit code": ("sys.exit(3)", "exit code 3", "script.py:13"),
    "exit code of no byte": ("sys.exit(256)", "exit code 1", "script.py:13"),
    "exit code that is no number": ("sys.exit(0.0)", "exit code 1", "0.0"),
    "exit message": ("sys.exit('no data here')", "exit code 1", "no data here"),
    "os._exit": ("os._exit(7)", "exit code 7", "rank 1 called os._exit(7) before its script was finished"),
    "os._exit(0)": ("os._exit(0)", "exit code 0", "rank 1 called os._exit(0) before its script was finished"),
    "native exit": (
        "import ctypes; ctypes.CDLL(None)._exit(0)",
        "exit code 0",
        "by os._exit or in native code.",
    ),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL", "Slurm and containers."),
    "at exit": ("import atexit; atexit.register(os._exit, 5); sys.exit()", "exit code 5", "native code."),
}


@pytest.mark.parametrize("fault", thinned(FAULTS, "exception", "os._exit(0)", "killed"))
def test_a_failing_rank_ends_all_and_is_named_last(ddprun, fault):
    body, reason, last = FAULTS[fault]
    result = ddprun.run("-n", "3", ddprun.script(f"\nif rank == 1: {body}\nwait()\n"))
    assert result.code == 1
    headlines = [line for line in result.said if line.startswith("ddprun:")]
    assert headlines[-1] == f"ddprun: rank 1 failed ({reason}); all ranks were ended."
    assert result.said[-1].endswith(last)
    # The others' own errors are one line, and no traceback.
    others = [line for line in headlines[:-1] if not line.startswith("ddprun: rank 1 ")]
    assert len(others) <= 1 and all("lost a peer" in line for line in others)
    assert result.err.count("Traceback") == (fault == "exception")


def test_a_collective_of_atexit_comes_too_late_and_is_told_so(ddprun):
    """Python ignores what its functions raise, and shows it."""
    script = ddprun.script(
        "import atexit\nimport ddpgrad as torch\nimport ddpgrad.distributed as dist\ndist.init_process_group()\n"
        "atexit.register(dist.all_reduce, torch.ones(1))\n"
    )
    result = ddprun.run("-n", "2", script)
    assert (
        result.code == 0
        and result.err.count("functions of atexit, and threads that go on, come too late") == 2
    )


MODES = {"processes": [], "procs": ["--procs", "2"], "debug": ["--debug"], "mpi": ["--mpi"]}

# Two threads of each rank sum over a group each, while the rank's own thread goes to its end.
THREADS = """
import threading
import ddpgrad as torch
import ddpgrad.distributed as dist
dist.init_process_group()
rank = dist.get_rank()
def work(group, i):
    for step in range(20):
        x = torch.full((2,), (rank + 1.0) * i)
        FAULT
        dist.all_reduce(x, group=group)
    print("sum", i, x[0].item())
for i in (1, 2):
    threading.Thread(target=work, args=(dist.new_group(), i)).start()
"""
THREAD_ENDS = {
    "well": ("pass", 0, ""),
    "mismatch": (
        "x = torch.ones(3 if (rank, step, i) == (1, 9, 2) else 2)",
        4,
        "rank 1 is the first that differs",
    ),
    "leaves": ("if (rank, step, i) == (1, 9, 2): return", 1, "rank 1 has finished its program"),
}


@pytest.mark.parametrize(
    ("mode", "end"),
    thinned(
        [*product(MODES, THREAD_ENDS)], ("procs", "well"), ("processes", "leaves"), ("debug", "mismatch")
    ),
)
def test_threads_of_a_rank_use_groups_of_their_own(ddprun, mode, end, request):
    if mode == "mpi":
        request.getfixturevalue("mpiexec")
    fault, code, text = THREAD_ENDS[end]
    script = ddprun.script(THREADS.replace("FAULT", fault), prelude="")
    result = ddprun.run("-n", "4", *MODES[mode], "--timeout", str(patience()), script)
    assert result.code == code, result.err
    assert text in result.err
    if code == 0:
        assert [result.out.count(f"sum {i} {10 * i}.0") for i in (1, 2)] == [4, 4]


# Threads of each rank call collectives of one group when they like.
SHARED = """
import threading
import ddpgrad as torch
import ddpgrad.distributed as dist
dist.init_process_group()
def work(i):
    wrong = 0
    for step in range(300):
        x = torch.full((SIZE,), i * 1000.0 + step)
        dist.all_reduce(x)
        wrong += x[0].item() != 2 * (i * 1000.0 + step)
    assert not wrong, "sums of another thread"
for i in range(2):
    threading.Thread(target=work, args=(i,)).start()
"""


@pytest.mark.parametrize(
    ("mode", "size"), thinned([*product(MODES, (4, 100_000))], ("debug", 4), ("processes", 100_000))
)
def test_threads_of_a_rank_that_share_a_group_get_no_others_sums(ddprun, mode, size, request):
    if mode == "mpi":
        request.getfixturevalue("mpiexec")
    script = ddprun.script(SHARED.replace("SIZE", str(size)), prelude="")
    result = ddprun.run("-n", "2", *MODES[mode], "--timeout", str(patience()), script)
    assert "sums of another thread" not in result.err
    if result.code:
        assert result.code == 1 and "calls collectives of one group from two threads at once" in result.err


# What is begun in order may be waited for by any thread, and messages with tags may be sent by any.
WAITING = """
import threading
import ddpgrad as torch
import ddpgrad.distributed as dist
dist.init_process_group()
other = 1 - dist.get_rank()
def write(tag):
    for i in range(20):
        x, y = (torch.full((3 if i % 2 else 50_000,), value) for value in (float(tag + i), 0.0))
        sending = dist.isend(x, other, tag=tag)
        dist.recv(y, other, tag=tag)
        sending.wait()
        assert (x == y).all(), (tag, i)
def wait(works):
    for work in works:
        work.wait()
writers = [threading.Thread(target=write, args=(tag,)) for tag in (100, 200)]
for thread in writers: thread.start()
for _ in range(10):
    xs = [torch.full((50_000 if i % 3 else 5,), float(i)) for i in range(20)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    waiters = [threading.Thread(target=wait, args=(works[::step],)) for step in (1, -1)]
    for thread in waiters: thread.start()
    dist.all_reduce(y := torch.ones(70_000))
    for thread in waiters: thread.join()
    assert (y == 2).all() and all((x == 2 * i).all() for i, x in enumerate(xs))
for thread in writers: thread.join()
print("well")
"""
# A rank that waits for one thing moves on the others that it has begun: other ranks may wait for those first.
CROSSING = """
import ddpgrad as torch
import ddpgrad.distributed as dist
dist.init_process_group()
rank, size = dist.get_rank(), 300_000
group = dist.new_group()
def begin(of=None):
    return dist.all_reduce(torch.ones(size), group=of, async_op=True).wait
for first, second in (begin(), begin(group)), (begin(), lambda: dist.barrier(group)):
    for wait in (first, second)[:: 1 if rank else -1]:
        wait()
x = torch.full((size,), 7.0)
sending = dist.isend(x, 1) if rank == 0 else dist.recv(x.zero_(), 0)
dist.barrier()
if rank == 0:
    sending.wait()
assert x[-1] == 7
wait = begin()
if rank == 0:
    dist.recv(x, 1)
wait()
if rank == 1:
    dist.send(x, 0)
print("well")
"""


@pytest.mark.parametrize(
    ("mode", "program"),
    thinned([*product(MODES, ("threads", "crossing"))], ("processes", "threads"), ("processes", "crossing")),
)
def test_works_and_messages_are_waited_for_in_any_order_and_by_any_thread(ddprun, mode, program, request):
    if mode == "mpi":
        request.getfixturevalue("mpiexec")
    script = ddprun.script({"threads": WAITING, "crossing": CROSSING}[program], prelude="")
    result = ddprun.run("-n", "2", *MODES[mode], "--timeout", str(patience()), script)
    assert result.code == 0, result.err
    assert result.out.count("well") == 2


LOST = """
import time
import ddpgrad as torch, ddpgrad.distributed as dist
dist.init_process_group()
rank, last = dist.get_rank(), {last}
if rank == 0:
    for tag in range(5): work = dist.isend(torch.ones({size}), 1, tag=tag)
elif last: dist.recv(torch.ones({size}), 0, tag=2)
if rank == last: time.sleep(1.5)
"""


@pytest.mark.parametrize(
    ("mode", "last", "size"),
    thinned(
        [(mode, *way) for mode, way in product(MODES, ((0, 3), (1, 3), (0, 30_000)))],
        ("processes",),
        ("debug", 1),
    ),
)
def test_messages_that_nobody_receives_are_told_of(ddprun, mode, last, size, request):
    if mode == "mpi":
        request.getfixturevalue("mpiexec")
    result = ddprun.run("-n", "2", *MODES[mode], ddprun.script(LOST.format(last=last, size=size), prelude=""))
    assert result.code == 0, result.err
    assert "RuntimeWarning: messages were sent that nobody received" in result.err
    assert f"to rank 1 from rank 0: send(dst=1, tag=0) of float32[{size}] at script.py:7" in result.err
    assert ("tag=2" in result.err) is (last == 0)


@pytest.mark.parametrize("way", thinned(["raise ValueError", "sys.exit"], "sys.exit"))
def test_an_endless_message_is_cut_and_still_understood(ddprun, way):
    result = ddprun.run("-n", "2", ddprun.script(f"\nif rank == 1: {way}('x' * 3_000_000)\nwait()\n"))
    assert "ddprun: rank 1 failed (exit code 1); all ranks were ended." in result.said
    assert re.fullmatch(r"(ValueError: )?x+ ... \d+ characters left out ... x+", result.said[-1])
    assert len(result.err) < 100_000


def test_a_crash_in_native_code_shows_the_python_line(ddprun):
    result = ddprun.run("-n", "2", ddprun.script("\nif rank == 1: os.abort()\nwait()\n"))
    assert result.code == 1
    headline = result.said.index("ddprun: rank 1 failed (killed by SIGABRT); all ranks were ended.")
    assert any(re.search(r'script.py", line 13 in <module>', line) for line in result.said[headline:])


def test_a_rank_that_finishes_while_others_count_on_it(ddprun):
    result = ddprun.run("-n", "2", ddprun.script("\nif rank == 0: wait()\n"))
    assert result.code == 1
    assert "ddprun: rank 0 failed (exit code 1); all ranks were ended." in result.said
    assert "RankFailedError" in result.err and "rank 1 has finished" in result.err


def test_a_rank_that_ends_before_the_first_meeting(ddprun):
    result = ddprun.run("-n", "2", ddprun.script(ENDS_EARLY, prelude=""))
    assert result.code == 1
    assert "ddprun: rank 1 failed (ended while others wait to meet it); all ranks were ended." in result.said
    assert "ended at script.py:4" in result.err and "  rank 0: script.py:5" in result.said


LEAVES_GROUP = """
import ddpgrad.distributed as dist
dist.init_process_group()
group = dist.new_group()
if dist.get_rank() == 1: dist.destroy_process_group(group)
else: dist.barrier(group)
"""


def test_a_rank_that_leaves_a_group_is_named(ddprun):
    result = ddprun.run("-n", "2", ddprun.script(LEAVES_GROUP, prelude=""))
    assert result.code == 1
    assert "rank 1 has left the group (destroy_process_group)" in result.err


def test_a_rank_in_a_shared_process_is_named(ddprun):
    script = ddprun.script("\nif rank == 2: raise KeyError('weights')\nwait()\n")
    result = ddprun.run("-n", "4", "--procs", "2", script)
    assert result.code == 1
    assert "ddprun: rank 2 failed (exit code 1); all ranks were ended." in result.said
    assert "KeyError: 'weights'" in "\n".join(result.said[-2:])


def test_the_wrapping_of_a_secondary_failure_hides_no_cause(ddprun):
    script = ddprun.script("""
if rank == 1:
    time.sleep(0.5)
    raise ValueError("the cause")
try:
    wait()
except Exception as error:
    raise RuntimeError("training stopped") from error
""")
    result = ddprun.run("-n", "3", script)
    assert result.said[0].startswith("ddprun: ranks 0, 2 lost a peer and stopped")
    assert result.said[-1] == "ValueError: the cause"


def test_ranks_that_will_not_end_are_killed_with_what_they_started(ddprun):
    script = ddprun.script("""
signal.signal(signal.SIGTERM, signal.SIG_IGN)
note(subprocess.Popen(["sleep", "60"]).pid)
wait()
if rank == 1: raise ValueError("boom")
time.sleep(600)
""")
    result = ddprun.run("-n", "2", script)
    assert (result.code, result.said[-1]) == (1, "ValueError: boom")


FORKS = """
import os
import ddpgrad as torch
import ddpgrad.distributed as dist
dist.init_process_group()
dist.all_reduce(torch.ones(2))
x = torch.ones(2)
child = dist.get_rank() == 0 and os.fork() == 0
if not child and dist.get_rank() == 0: os.wait()
try:
    dist.all_reduce(x)
except dist.DistError as error:
    print(error)
print("sum", x.tolist())
if child: raise KeyError("an end of its own")
"""


@pytest.mark.parametrize("mode", thinned(["processes", "procs", "debug"], "processes"))
def test_a_fork_of_a_rank_takes_no_part_in_its_place(ddprun, mode):
    result = ddprun.run("-n", "2", *MODES[mode], ddprun.script(FORKS, prelude="import sys\n"))
    assert result.code == 0, result.err
    assert "only that one takes part in collectives" in result.out
    if mode == "processes":  # else the fork of a thread ends with it
        assert "KeyError: 'an end of its own'" in result.err
    assert (result.out.count("[1.0, 1.0]"), result.out.count("[2.0, 2.0]")) == (1, 2)


def test_breakpoint_without_a_terminal_says_what_to_do(ddprun):
    result = ddprun.run("-n", "2", ddprun.script("\nif rank == 1: breakpoint()\nwait()\n"))
    assert result.code == 1
    assert result.said[-1].endswith("start the same command with `ddprun --debug`.")

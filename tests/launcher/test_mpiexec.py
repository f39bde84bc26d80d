"""The same job through the installed mpiexec, with ddprun and without: same ranks, same ends."""

import json
import re
import signal
import textwrap
from itertools import product
from pathlib import Path

import pytest
from matrices import thinned
from patience import patience
from running import ENDS_EARLY, WITHOUT_DDPRUN, plain

WORK = """
total = np.array([rank + 1.0])
me.communicator().all_reduce(total).wait()
print(f"total {total[0]} of {me.world_size}")
"""


@pytest.mark.parametrize("procs", thinned(["4", "2"], "2"))
def test_ddprun_mpi_gives_the_same_world(ddprun, mpiexec, procs):
    result = ddprun.run("-n", "4", "--procs", procs, "--mpi", ddprun.script(WORK))
    assert result.code == 0
    assert sorted(result.out.splitlines()) == [f"[rank {i}] total 10.0 of 4" for i in range(4)]


@pytest.mark.parametrize(
    ("body", "reason", "last"),
    thinned(
        [
            ("raise ValueError('boom')", "exit code 1", "ValueError: boom"),
            ("os._exit(0)", "exit code 0", "rank 1 called os._exit(0) before its script was finished"),
            ("os.kill(os.getpid(), 9)", "killed by SIGKILL", "and so do Slurm and containers."),
        ],
        "os.kill(os.getpid(), 9)",
    ),
)
def test_ddprun_mpi_ends_all_ranks_and_names_the_first(ddprun, mpiexec, body, reason, last):
    result = ddprun.run("-n", "3", "--mpi", ddprun.script(f"\nif rank == 1: {body}\nwait()\n"))
    assert result.code == 1
    assert f"ddprun: rank 1 failed ({reason}); all ranks were ended." in result.said
    assert result.said[-1].endswith(last)


def test_a_rank_that_ends_before_mpi_starts_ends_the_others(ddprun, mpiexec):
    script = ddprun.script(ENDS_EARLY, prelude="")
    watched = ddprun.run("-n", "2", "--mpi", script)
    assert watched.code == 1
    assert "ended at script.py:4" in watched.err and "rank 0: script.py:5" in watched.err
    alone = ddprun.run(command=plain(mpiexec, ddprun, 2, script))
    assert alone.code != 0
    assert "ddpgrad: rank 1 failed (ended while others wait to meet it); all ranks were ended." in alone.err
    assert "rank 1 of this host has ended" in alone.err and 'script.py", line 5' in alone.err


def test_a_rank_that_comes_too_late_to_mpi_ends_the_others(ddprun, mpiexec):
    ddprun.environment["DDPGRAD_TIMEOUT"] = "1"
    script = ddprun.script(ENDS_EARLY.replace("sys.exit()", "import time; time.sleep(600)"), prelude="")
    result = ddprun.run(command=plain(mpiexec, ddprun, 2, script))
    assert result.code != 0
    assert "not all of them have come within 1 s (DDPGRAD_TIMEOUT)" in result.err


def test_memory_of_mpi_does_not_outlive_ranks_that_are_killed_at_once(ddprun, mpiexec):
    body = """
        open(f"maps-{rank}", "w").write(open("/proc/self/maps").read())
        wait()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert ddprun.run(command=plain(mpiexec, ddprun, 2, ddprun.script(textwrap.dedent(body)))).code != 0
    maps = "".join((ddprun.folder / f"maps-{rank}").read_text() for rank in range(2))
    assert (segments := set(re.findall(r"/dev/shm/\S+", maps)))
    assert not [segment for segment in segments if Path(segment).exists()]


NAMES_ITSELF = """
import os
import torch
import torch.distributed as dist
names = [os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")]
dist.init_process_group()
total = torch.ones(1)
dist.all_reduce(total)
print(*names, total.item(), __name__)
if dist.get_rank() == 1: raise ValueError("boom")
"""


def test_under_mpirun_ddprun_is_a_rank_and_never_a_job_for_each(ddprun, mpiexec):
    script = ddprun.script(NAMES_ITSELF, prelude="")
    *start, python, _ = plain(mpiexec, ddprun, 2, script)
    joined = ddprun.run(command=[*start, python, "-m", "ddpgrad.run", "--as-torch", script])
    assert joined.code != 0
    assert sorted(joined.out.splitlines()) == [f"{i} {i} 2 2 2.0 __main__" for i in range(2)], joined.err
    assert "Traceback (most recent call last):\n  File" in joined.err and "runpy" not in joined.err
    refused = ddprun.run(command=[*start, *ddprun.command("--as-torch", "-n", "2", script)])
    assert (refused.code != 0, refused.out) == (True, "")
    for words in ("has started 2 of this ddprun", "`ddprun --as-torch -n 2 --mpi script.py`", "with -n each"):
        assert words in refused.err
    assert "`mpirun -n 2 python -m ddpgrad.run --as-torch script.py`" in refused.err


def test_a_process_that_cannot_begin_keeps_nobody_waiting(ddprun, mpiexec):
    (ddprun.folder / "sitecustomize.py").write_text("""
import os, sys
if os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) == "1":
    sys.modules["numpy"] = None  # as if the installation were broken on one host
""")
    ddprun.environment["PYTHONPATH"] = str(ddprun.folder)
    result = ddprun.run("-n", "3", "--mpi", ddprun.script(WORK))
    assert result.code == 1
    assert "ddprun: a process without ranks failed (exit code 1); all ranks were ended." in result.said
    assert "numpy" in result.said[-1]


def test_under_mpiexec_a_stopped_rank_shows_its_stack(ddprun, mpiexec):
    script = ddprun.script(
        "\ndef stuck():\n    os.kill(os.getpid(), signal.SIGSTOP)\nif rank == 1: time.sleep(0.5); stuck()\nwait()\n"
    )
    result = ddprun.run("-n", "3", "--mpi", "--watchdog", str(patience() + 2), "--log-dir", "run", script)
    assert result.code == 3
    assert "ddprun: rank 1 failed (stalled); all ranks were ended." in result.said
    assert len(result.said) <= 25 and "in stuck" in "\n".join(result.said)
    report = json.loads((ddprun.folder / "run" / "failure.json").read_text())
    assert report["first"]["ranks"] == [1] and set(report["ranks"]) == {"0", "1", "2"}
    for rank in range(3):
        assert "script.py" in (ddprun.folder / "run" / f"rank_{rank}.stacks").read_text()
        assert report["ranks"][str(rank)]["last"]


def test_under_mpiexec_a_signal_ends_the_ranks_where_they_are(ddprun, mpiexec):
    script = ddprun.script("\nopen(f'ready-{rank}', 'w').close()\ntime.sleep(600)\n")
    popen = ddprun.start("-n", "2", "--mpi", script)
    popen.send_signal(signal.SIGINT)
    result = ddprun.end(popen)
    assert result.code == 130
    assert "ddprun: rank 1 was at" in result.err


@pytest.mark.parametrize(
    ("how", "transport"),
    thinned(product([how for how in WITHOUT_DDPRUN if how != "killed"], ["shm", "mpi"]), ("raises", "mpi")),
)
def test_plain_mpirun_reports_what_ddprun_does(ddprun, mpiexec, transport, how):
    """But of a SIGKILL: mpiexec sends it on to the others before they can speak."""
    ddprun.environment["DDPGRAD_TRANSPORT"] = transport
    ddprun.check_without(plain(mpiexec, ddprun, 3, "script.py"), how)


def test_under_plain_mpirun_a_rank_shows_its_stack_and_goes_on(ddprun, mpiexec):
    script = ddprun.script("\nif rank == 1: os.kill(os.getpid(), signal.SIGQUIT)\nwait()\n" + WORK)
    result = ddprun.run(command=plain(mpiexec, ddprun, 2, script))
    assert result.code == 0 and result.out.splitlines() == ["total 3.0 of 2"] * 2
    assert "ddpgrad: rank 1 began 1 collective, at last\n  barrier at" in result.err
    assert "ddpgrad: rank 1 was at" in result.err and "script.py" in result.err

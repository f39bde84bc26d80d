"""The same job through the installed mpiexec, with ddprun and without: same ranks, same ends."""

from __future__ import annotations

import sys

import pytest

from launcher import mpi

WORK = """
total = np.array([rank + 1.0])
me.communicator().all_reduce(total).wait()
print(f"total {total[0]} of {me.world_size}")
"""


def plain(mpiexec: str, ddprun, ranks: int, script: str) -> list[str]:
    """The command line of a user who starts the script with mpiexec alone."""
    command = [mpiexec]
    if mpi.flavour(mpiexec) == "openmpi":
        ddprun.environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        command += ["--oversubscribe", "--bind-to", "none"]
    return [*command, "-n", str(ranks), sys.executable, script]


@pytest.mark.parametrize("procs", ["4", "2"])
def test_ddprun_mpi_gives_the_same_world(ddprun, mpiexec, procs):
    result = ddprun.run("-n", "4", "--procs", procs, "--mpi", ddprun.script(WORK))
    assert result.code == 0
    assert sorted(result.out.splitlines()) == [f"[rank {i}] total 10.0 of 4" for i in range(4)]


@pytest.mark.parametrize(
    ("body", "reason", "last"),
    [
        ("raise ValueError('boom')", "exit code 1", "ValueError: boom"),
        ("os._exit(0)", "ended before its script was finished", "or inside native code."),
        ("os.kill(os.getpid(), 9)", "ended before its script was finished", "or inside native code."),
    ],
)
def test_ddprun_mpi_ends_all_ranks_and_names_the_first(ddprun, mpiexec, body, reason, last):
    result = ddprun.run("-n", "3", "--mpi", ddprun.script(f"\nif rank == 1: {body}\nwait()\n"))
    assert result.code == 1
    assert f"ddprun: rank 1 failed ({reason}); all ranks were ended." in result.said
    assert result.said[-1].endswith(last)


def test_plain_mpirun_needs_no_ddprun(ddprun, mpiexec):
    result = ddprun.run(command=plain(mpiexec, ddprun, 2, ddprun.script(WORK)))
    assert result.code == 0
    assert result.out.splitlines() == ["total 3.0 of 2"] * 2


@pytest.mark.parametrize("transport", ["shm", "mpi"], ids="over {}".format)
def test_plain_mpirun_ends_when_a_rank_raises(ddprun, mpiexec, transport):
    ddprun.environment["DDPGRAD_TRANSPORT"] = transport
    script = ddprun.script("\nif rank == 1: raise ValueError('boom')\nwait()\n")
    result = ddprun.run(command=plain(mpiexec, ddprun, 2, script))
    assert result.code != 0
    assert "ValueError: boom" in result.err


def test_a_process_that_cannot_begin_keeps_nobody_waiting(ddprun, mpiexec):
    (ddprun.folder / "sitecustomize.py").write_text("""
import os, sys
if os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) == "1":
    sys.modules["ddpgrad.distributed"] = None  # as if the installation were broken on one host
""")
    ddprun.environment["PYTHONPATH"] = str(ddprun.folder)
    result = ddprun.run("-n", "3", "--mpi", ddprun.script(WORK))
    assert result.code == 1
    assert "ddprun: a process without ranks failed (exit code 1); all ranks were ended." in result.said
    assert "ddpgrad.distributed" in result.said[-1]

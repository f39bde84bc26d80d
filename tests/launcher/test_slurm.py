"""ddprun in a Slurm allocation, which srun starts; `cluster/slurm_box.sh start` makes one of this host."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from running import WITHOUT_DDPRUN

from ddpgrad import environment
from ddpgrad.launcher.cli.ddprun import parse
from ddpgrad.launcher.job import mpi

WORK = """
total = np.array([rank + 1.0])
me.communicator().all_reduce(total).wait()
print(f"total {total[0]} of {me.world_size}, local {os.environ['LOCAL_RANK']} of {os.environ['LOCAL_WORLD_SIZE']}")
"""


@pytest.fixture(scope="session")
def cluster() -> None:
    """Skips where there is none; to hear that takes sinfo some seconds."""
    if shutil.which("salloc") is None:
        pytest.skip("needs Slurm: cluster/slurm_box.sh makes a cluster of this host")
    asked = subprocess.run(["sinfo", "--noheader"], capture_output=True, text=True, timeout=60)
    if asked.returncode:
        pytest.skip(f"needs a cluster, which cluster/slurm_box.sh makes; sinfo says {asked.stderr!r}")


@pytest.fixture
def allocation(cluster, ddprun, mpiexec) -> list[str]:
    """What to put before a command that is to run in an allocation of three tasks."""
    ask = ["sinfo", "--noheader", "--format=%t"]
    until = time.monotonic() + 10
    while True:
        state = subprocess.run(ask, capture_output=True, text=True, timeout=60)
        if "idle" in state.stdout or "mix" in state.stdout:
            return ["salloc", "--quiet", "--ntasks=3"]
        if "comp" not in state.stdout or time.monotonic() > until:
            pytest.skip(f"needs a Slurm host that is free; sinfo says {state.stdout or state.stderr!r}")
        time.sleep(0.2)  # the job of another test is just being put away


@pytest.mark.slurm
def test_the_ranks_are_the_tasks_of_the_allocation(ddprun, allocation):
    script = ddprun.script(WORK)
    result = ddprun.run(command=[*allocation, *ddprun.command(script)])
    assert result.code == 0, result.err
    assert sorted(result.out.splitlines()) == [f"[rank {i}] total 6.0 of 3, local {i} of 3" for i in range(3)]
    result = ddprun.run(command=[*allocation, *ddprun.command("-n", "4", "--procs", "2", script)])
    assert result.code == 0, result.err
    assert result.out.count("total 10.0 of 4") == 4


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise ValueError('boom')", "exit code 1"),
        ("os._exit(0)", "exit code 0"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
    ],
)
def test_the_rank_at_fault_is_named_and_all_are_gone(ddprun, allocation, body, reason):
    script = ddprun.script(f"\nif rank == 1: {body}\nwait()\n")
    result = ddprun.run(command=[*allocation, *ddprun.command("--log-dir", "run", script)])
    assert result.code == 1
    assert f"ddprun: rank 1 failed ({reason}); all ranks were ended." in result.said
    assert json.loads((ddprun.folder / "run" / "failure.json").read_text())["first"]["ranks"] == [1]


@pytest.mark.slurm
def test_a_signal_reaches_the_ranks(ddprun, allocation):
    script = ddprun.script("\nopen(f'ready-{rank}', 'w').close()\ntime.sleep(60)\n")
    command = f"echo $$ > launcher; exec {sys.executable} -m ddpgrad.launcher {script}"
    popen = subprocess.Popen(
        [*allocation, "sh", "-c", command], cwd=ddprun.folder, env=ddprun.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    ddprun.wait_for("ready-*", 3)
    os.kill(int((ddprun.folder / "launcher").read_text()), signal.SIGINT)
    result = ddprun.end(popen)
    assert "ddprun: rank 1 was at" in result.err and "interrupted by SIGINT" in result.err


@pytest.mark.slurm
@pytest.mark.parametrize("how", WITHOUT_DDPRUN)
def test_plain_srun_reports_what_ddprun_does(ddprun, mpiexec, allocation, how):
    kind = {"mpich": "pmi2", "openmpi": "pmix"}[mpi.flavour(mpiexec)]
    ddprun.check_without([*allocation, "srun", f"--mpi={kind}", sys.executable, "script.py"], how)


def test_what_is_asked_of_srun(tmp_path, monkeypatch):
    """Needs no Slurm: only what the command line means in an allocation."""
    (tmp_path / "s.py").touch()
    monkeypatch.chdir(tmp_path)
    for name, value in {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "6", "SLURM_JOB_NUM_NODES": "2"}.items():
        monkeypatch.setenv(name, value)
    plan = parse(["s.py"])
    assert plan.slurm and (plan.world_size, plan.procs) == (6, 6)
    plan = parse(["--nnodes", "2", "--nproc-per-node", "4", "s.py"])
    assert plan.slurm and (plan.world_size, plan.nnodes) == (8, 2)
    assert not parse(["--standalone", "-n", "2", "s.py"]).mpi
    assert not parse(["--mpi", "s.py"]).slurm
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    assert environment.slurm_allocation() is None
    assert not parse(["s.py"]).slurm


def test_the_place_on_a_host_is_what_slurm_says(monkeypatch):
    for name, value in {
        "SLURM_LOCALID": "2",
        "SLURM_NODEID": "2",
        "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
    }.items():
        monkeypatch.setenv(name, value)
    assert environment.local_rank_and_size() == (2, 3)

"""ddprun in a Slurm allocation, which srun starts, and jobs that wait in the queue; `cluster/slurm_box.sh start` makes a cluster of this host."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from restarting import TRAIN, results
from running import WITHOUT_DDPRUN

from ddpgrad import environment
from ddpgrad.distributed.failure import exit_codes
from ddpgrad.launcher.cli.ddprun import parse
from ddpgrad.launcher.job import batch, mpi

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
    asked = subprocess.run(["sinfo", "--noheader"], capture_output=True, text=True, timeout=600)
    if asked.returncode:
        pytest.skip(f"needs a cluster, which cluster/slurm_box.sh makes; sinfo says {asked.stderr!r}")


@pytest.fixture
def allocation(cluster, ddprun, mpiexec) -> list[str]:
    """What to put before a command that is to run in an allocation of three tasks."""
    ask = ["sinfo", "--noheader", "--format=%t"]
    until = time.monotonic() + 10
    while True:
        state = subprocess.run(ask, capture_output=True, text=True, timeout=600)
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
    script = ddprun.script("\nopen(f'ready-{rank}', 'w').close()\ntime.sleep(600)\n")
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


def batch_file(ddprun, *arguments: str) -> str:
    """What `ddprun --slurm --dry-run` prints; needs no Slurm."""
    done = ddprun.run("--slurm", "--dry-run", *arguments)
    assert done.code == 0, done.err
    return done.out


def test_the_batch_file_says_what_ddprun_was_asked(ddprun):
    ddprun.script("")
    text = batch_file(
        ddprun, "--slurm", "--nnodes=2", "-n", "4", "--threads", "2", "--time", "1:00:00", "--partition", "gpu",
        "--gpus-per-node", "4", "--array=0-3%2", "--requeue", "--sbatch", "account=a b", "--sbatch", "exclusive",
        "--sbatch=signal=B:USR1@300", "--log-dir", "my runs/{seed}", "--watchdog", "60",
        "script.py", "--seed", "{seed}", "--out=it's/{seed}", "",
    )  # fmt: skip
    asked = set(re.findall("^#SBATCH --(.*)", text, re.MULTILINE))
    out = ddprun.folder / "my runs"
    assert asked == {
        "job-name=script", "nodes=2", "ntasks-per-node=4", "cpus-per-task=2", "gpus-per-node=4", "time=1:00:00",
        "partition=gpu", "array=0-3%2", f"output='{out}/slurm-%A_%a.out'", "requeue", "account='a b'", "exclusive",
        "open-mode=append", "signal=B:USR1@300",
    }  # fmt: skip
    (line,) = (line for line in text.splitlines() if line.endswith(" &"))
    said = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {line[:-2]}"],
        env={"SLURM_ARRAY_TASK_ID": "2"}, capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    assert said[4:] == [
        "--nnodes=2", "-n", "4", "--threads", "2", "--log-dir", "my runs/2", "--watchdog", "60",
        "script.py", "--seed", "2", "--out=it's/2", "", "",
    ]  # fmt: skip


def test_only_an_array_has_numbers_for_its_jobs(ddprun):
    ddprun.script("")
    text = batch_file(ddprun, "script.py", "--format", "{seed}.txt", "a b\n$(touch evil)")
    assert "script.py --format '{seed}.txt' 'a b\n$(touch evil)' &" in text


@pytest.mark.parametrize(
    ("signal_sent", "wanted", "code"), [("USR1", "requeued", 75), ("TERM", "", 75), ("", "", 3)]
)
def test_the_batch_file_puts_only_a_preempted_job_back(ddprun, signal_sent, wanted, code):
    """With a ddprun that ends as after saving when it is asked to, and a Slurm that consists of `scontrol`."""
    ddprun.script("")
    text = batch_file(ddprun, "--requeue", "script.py")
    heard = "" if signal_sent else "sys.exit(3)"
    program = f"""
import signal, sys, time
for name in ("SIGUSR1", "SIGTERM"): signal.signal(getattr(signal, name), lambda *_: sys.exit(75))
open("ready", "w").close()
{heard}
while True: time.sleep(0.05)
"""
    (ddprun.folder / "ddprun.py").write_text(program)
    (ddprun.folder / "scontrol").write_text('#!/bin/sh\necho "requeued $*" >> asked\n')
    (ddprun.folder / "scontrol").chmod(0o755)
    (ddprun.folder / "job").write_text(
        re.sub("^.* &$", f"{sys.executable} ddprun.py &", text, flags=re.MULTILINE)
    )
    environment = {"PATH": f"{ddprun.folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    job = subprocess.Popen(["bash", "job"], cwd=ddprun.folder, env=environment)
    ddprun.wait_for("ready", 1)
    if signal_sent:
        job.send_signal(getattr(signal, f"SIG{signal_sent}"))
    assert job.wait(600) == code
    asked = ddprun.folder / "asked"
    assert (asked.read_text() if asked.exists() else "") == (f"{wanted} requeue 7\n" if wanted else "")


def test_what_slurm_says_of_a_job():
    said = """JobId=12 ArrayJobId=12 ArrayTaskId=3-4 JobState=PENDING Reason=Resources ExitCode=0:0 NodeList=(null)
JobId=13 ArrayJobId=12 ArrayTaskId=1 JobName=a b JobState=RUNNING Reason=None ExitCode=0:0 NodeList=n[1-2]
JobId=14 ArrayJobId=12 ArrayTaskId=2 JobState=FAILED Reason=NonZeroExitCode ExitCode=75:0 NodeList=n1
JobId=15 ArrayJobId=12 ArrayTaskId=0 JobState=TIMEOUT Reason=TimeLimit ExitCode=0:15 NodeList=n1
JobId=16 ArrayJobId=12 ArrayTaskId=5 JobState=NODE_FAIL Reason=None ExitCode=0:0 NodeList=n1
"""
    tasks = batch.read_tasks(said)
    assert [str(task) for task in tasks] == [
        "pending (Resources)", "running on n[1-2]", "failed, exit code 75", "timeout, exit code 143",
        "node fail, exit code 1",
    ]  # fmt: skip
    assert [task.number for task in tasks] == ["3-4", "1", "2", "0", "5"]
    assert [task.ended for task in tasks] == [False, False, True, True, True]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--mpi", "script.py"], "leave out --mpi"),
        (["-n", "gpu", "script.py"], "the hosts are not known before"),
        (["--array", "0-3", "script.py"], "give the script its number"),
        (["--array", "0-3", "--log-dir", "run", "script.py", "{seed}"], "a folder each, as in run/{seed}"),
        (["--sbatch", "=3", "script.py"], "--sbatch takes NAME=VALUE"),
        (["--sbatch", "comment=a\ntouch evil", "script.py"], r"comment='a\ntouch evil': a name has"),
        (["--sbatch", "comment a\ntouch evil", "script.py"], "a name has letters"),
        (["--time", "5\r6", "script.py"], r"time='5\r6': a name has"),
        (["--sbatch", "output=here", "script.py"], "ddprun sets output itself, by --log-dir"),
        (["gone.py"], "gone.py does not exist"),
    ],
)
def test_what_cannot_be_submitted_is_refused(ddprun, arguments, says):
    ddprun.script("")
    done = ddprun.run("--slurm", "--dry-run", *(["-n", "2"] if "-n" not in arguments else []), *arguments)
    assert done.code == exit_codes.USER_ERROR
    assert says in done.err


def test_options_of_slurm_without_it_are_refused(ddprun):
    done = ddprun.run("--time", "5", ddprun.script(""))
    assert done.code == exit_codes.USER_ERROR
    assert "--time has a meaning only with --slurm" in done.err


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


@pytest.mark.slurm
def test_hosts_may_have_different_numbers_of_tasks(ddprun, allocation):
    asked = subprocess.run(
        ["sinfo", "--noheader", "--format=%D"], capture_output=True, text=True, timeout=600
    )
    if sum(map(int, asked.stdout.split())) < 2:
        pytest.skip("needs two nodes")
    on_two = [*allocation, "--nodes=2"]
    script = ddprun.script(WORK)
    result = ddprun.run(command=[*on_two, *ddprun.command(script)])
    assert result.code == 0, result.err
    places = [(0, 2), (1, 2), (0, 1)]
    assert sorted(result.out.splitlines()) == [
        f"[rank {rank}] total 6.0 of 3, local {i} of {n}" for rank, (i, n) in enumerate(places)
    ]
    # Of three processes the last, alone on its host, has one rank, and the others two.
    result = ddprun.run(command=[*on_two, *ddprun.command("-n", "5", "--procs", "3", script)])
    assert "[rank 4] total 15.0 of 5, local 0 of 1" in result.out and "local 3 of 4" in result.out, result.out


# Rank 0 asks as Slurm does before the end of the time limit, and the ranks wait until they have heard it.
PREEMPTED = TRAIN.replace(
    "        while True:\n            wait()\n",
    '        if rank == 0 and "SLURM_JOB_ID" in os.environ:\n'
    '            subprocess.run(["scancel", "--batch", "--signal=USR1", os.environ["SLURM_JOB_ID"]])\n'
    '        while "SLURM_JOB_ID" in os.environ and not preemption.requested():\n',
)


@pytest.mark.slurm
def test_a_job_that_slurm_preempts_waits_in_the_queue_and_goes_on(ddprun, allocation):
    script = ddprun.script("from ddpgrad.launcher import preemption\n" + PREEMPTED)
    undisturbed = ddprun.run("-n", "2", script, "undisturbed", "3")
    assert undisturbed.code == 0, undisturbed.err
    done = ddprun.run("--slurm", "--requeue", "-n", "2", "--time", "5", script, "checkpoints", "3")
    assert done.code == 0, done.err
    assert "ddprun: preempted after step 3, whose checkpoint is saved." in done.out
    assert results(done.out) == results(undisturbed.out) != []
    assert done.err.count(": pending") == 2, done.err
    (batch_file,) = ddprun.folder.glob("slurm-*.sbatch")
    assert "--requeue" in batch_file.read_text()


# A job of a partition of higher priority needs the hosts.
DISPLACED = TRAIN.replace(
    "        while True:\n            wait()\n",
    '        if rank == 0 and "SLURM_JOB_ID" in os.environ:\n'
    '            ask = ["sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--wrap=hostname"]\n'
    "            subprocess.run(ask, check=True)\n"
    '        while "SLURM_JOB_ID" in os.environ and not preemption.requested():\n',
)


@pytest.mark.slurm
def test_a_job_of_higher_priority_may_have_the_hosts_in_between(ddprun, allocation):
    """Slurm signals the ranks, what started them, and the batch file: one request to save and end."""
    asked = subprocess.run(
        ["sinfo", "--noheader", "--partition=urgent"], capture_output=True, text=True, timeout=600
    )
    if not asked.stdout:
        pytest.skip("needs the partition urgent of cluster/slurm_box.sh")
    script = ddprun.script("from ddpgrad.launcher import preemption\n" + DISPLACED)
    options = ["--slurm", "--requeue", "--nnodes", "2", "-n", "1", "--sbatch", "exclusive"]
    done = ddprun.run(*options, script, "checkpoints", "3")
    assert done.code == 0, done.err + done.out
    assert "ddprun: preempted after step 3, whose checkpoint is saved." in done.out
    assert len(results(done.out)) == 2 and done.err.count(": running") == 2, done.err


@pytest.mark.slurm
def test_without_requeue_a_preempted_job_has_ended(ddprun, allocation):
    script = ddprun.script("from ddpgrad.launcher import preemption\n" + PREEMPTED)
    done = ddprun.run("--slurm", "-n", "2", "--log-dir", "run", script, "checkpoints", "3")
    assert done.code == exit_codes.PREEMPTED, done.err
    assert "exit code 75" in done.err
    assert len(list((ddprun.folder / "run").glob("slurm-*"))) == 2


@pytest.mark.slurm
def test_an_array_is_a_job_for_each_seed(ddprun, allocation):
    script = ddprun.script("\nprint('seed', sys.argv[1])\nif sys.argv[1] == '7': sys.exit(1)\n")
    done = ddprun.run("--slurm", "-n", "2", "--array", "5,7", "--log-dir", "runs/{seed}", script, "{seed}")
    assert done.code == 1, done.err
    assert "[seed 5] [rank 0] seed 5" in done.out and "[seed 7] [rank 0] seed 7" in done.out
    assert "seed 5: completed\n" in done.err and "seed 7: failed, exit code 1" in done.err
    assert (ddprun.folder / "runs" / "5" / "rank_1.log").exists()


@pytest.mark.slurm
def test_ctrl_c_ends_the_job(ddprun, allocation):
    script = ddprun.script("\nopen(f'ready-{rank}', 'w').close()\ntime.sleep(300)\n")
    popen = subprocess.Popen(
        ddprun.command("--slurm", "-n", "2", script), cwd=ddprun.folder, env=ddprun.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    ddprun.wait_for("ready-*", 2)
    popen.send_signal(signal.SIGINT)
    result = ddprun.end(popen)
    assert result.code == 128 + signal.SIGTERM
    assert "the ranks have 30 s to save and end" in result.err and "terminated by SIGTERM" in result.out


@pytest.mark.slurm
def test_ctrl_c_takes_a_job_out_of_the_queue(ddprun, allocation):
    popen = subprocess.Popen(
        ddprun.command("--slurm", "-n", "2", "--sbatch", "hold", ddprun.script("")),
        cwd=ddprun.folder, env=ddprun.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert popen.stderr is not None
    while "pending (JobHeldUser)" not in (line := popen.stderr.readline()):
        assert line, "ddprun has ended"
    popen.send_signal(signal.SIGINT)
    result = ddprun.end(popen)
    assert result.code == 128 + signal.SIGINT and "cancelled" in result.err


@pytest.mark.slurm
def test_ranks_that_mpi_cannot_join_are_no_worlds_of_one(ddprun, allocation):
    """An srun that does not serve the installed MPI library gives each task a world of its own."""
    ddprun.environment["SLURM_MPI_TYPE"] = "none"
    script = ddprun.script("open(f'trained-{rank}', 'w').close()\n")
    result = ddprun.run(command=[*allocation, *ddprun.command(script)])
    assert result.code == 1 and not list(ddprun.folder.glob("trained-*"))
    assert "of 3, but MPI says process 0 of 1" in result.err, result.err

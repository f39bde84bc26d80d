"""Jobs that are started again, or end on request with their work saved."""

import signal
import subprocess
from itertools import product

import pytest
from matrices import thinned

from ddpgrad.distributed.failure.channel import Failure
from ddpgrad.errors import LaunchError
from ddpgrad.launcher.cli.ddprun import parse
from ddpgrad.launcher.job import hosts
from ddpgrad.launcher.job.restart import Restarts

# Trains one number that depends on every step, and notes each step, after each of which rank 1 does what it is told to.
TRAIN = """
import json
import ddpgrad
from ddpgrad import distributed
from ddpgrad.launcher import Checkpointer
distributed.init_process_group()
history = []
checkpoints = Checkpointer("checkpoints", every=2)
ddpgrad.manual_seed(3 + rank)
first = checkpoints.resume(history=history) or 0
weight = ddpgrad.nn.Parameter(ddpgrad.ones(2))
optimizer = ddpgrad.optim.SGD([weight], lr=0.1)
for step in range(first, STEPS):
    optimizer.step()
    drawn = ddpgrad.rand(1)
    distributed.all_reduce(drawn)
    history.append(drawn.item())
    if rank == 1: LATE
    checkpoints.step(step, history=history)
    open(f"ready-{rank}", "w").close()
if rank == 0: print("history", json.dumps(history))
"""


def train(ddprun, late: str, steps: int) -> str:
    return ddprun.script(TRAIN.replace("STEPS", str(steps)).replace("LATE", late))


def test_a_signal_before_a_restart_is_the_end_of_the_job(ddprun):
    script = ddprun.script("raise ValueError(os.environ['DDPRUN_RESTART_COUNT'])", prelude="import os\n")
    command = ddprun.command("--max-restarts", "9", script)
    said, options = [], {"cwd": ddprun.folder, "env": ddprun.environment, "text": True}
    with subprocess.Popen(command, stderr=subprocess.PIPE, **options) as running:
        assert running.stderr is not None
        for line in running.stderr:
            said.append(line)
            if "restarting in " in line:
                running.send_signal(signal.SIGTERM)
    assert running.returncode == 128 + signal.SIGTERM
    late = "ddprun: terminated by SIGTERM; all ranks were ended.\n"  # on a busy machine
    assert said[-1] in ("ddprun: SIGTERM came before the restart; the job has ended.\n", late)


def test_an_error_before_the_first_step_is_not_tried_for_ever(ddprun):
    script = ddprun.script("\nif rank == 1: raise ValueError('no such file')\nwait()\n")
    result = ddprun.run("-n", "2", "--max-restarts", "9", script)
    assert result.code == 1
    assert result.err.count("restarting in") == 1
    assert result.said[-1].startswith(
        "ddprun: no restart: the same error came before the first optimizer step"
    )


def test_signals_from_outside_are_no_errors_that_come_again(ddprun):
    body = "if rank == 1: os.kill(os.getpid(), [signal.SIGINT, signal.SIGUSR1][int(os.environ['DDPRUN_RESTART_COUNT']) // 2])"
    result = ddprun.run("-n", "2", "--max-restarts", "3", ddprun.script(f"\n{body}\nwait()\n"))
    assert result.code == 1
    assert "rank 1 failed (killed by SIGUSR1)" in result.err
    assert result.said[-1] == "ddprun: no restart: 3 were allowed and made."


def test_the_number_of_restarts_is_kept_and_processes_may_go(tmp_path):
    script = tmp_path / "s.py"
    script.touch()
    plan = parse(["-n", "4", "--max-restarts", "2", "--min-procs", "3", str(script)])
    restarts = Restarts(plan)
    killed = Failure((1,), 0.0, "killed by SIGKILL", "killed by SIGKILL", "")
    seen = [plan]
    # Before the first step, too: a signal from outside is no error of the program that comes again.
    while (following := restarts.after(seen[-1], killed, steps=0)) is not None:
        seen.append(following)
    assert [(p.procs, p.restart_count, p.world_size) for p in seen] == [(4, 0, 4), (3, 1, 4), (3, 2, 4)]
    assert len({p.job for p in seen}) == 3
    assert restarts.after(plan, None, 5) is None


def test_a_failure_that_tells_of_a_step_is_none_before_the_first(tmp_path):
    """The last heartbeat may be older than the step."""
    script = tmp_path / "s.py"
    script.touch()
    plan = parse(["-n", "2", "--max-restarts", "2", str(script)])
    restarts = Restarts(plan)
    early, late = (Failure((1,), 0.0, "exit code 1", "ValueError", "", step=step) for step in (0, 1))
    assert restarts.after(plan, early, steps=0) is not None
    assert restarts.after(plan, late, steps=0) is not None


@pytest.mark.parametrize(
    ("slots", "options", "lost", "left", "procs"),
    [
        ("a:2,b:2", ["--min-procs", "1"], ["b"], "a:2", 2),
        ("a:2,b:2", ["--min-procs", "2"], ["a"], "b:2", 2),
        ("a:2,b:2,c:2", [], ["a"], "b:2,c:2", 4),  # there are enough slots
        ("a:2,b:1,c:1", ["--min-procs", "2"], ["b", "c"], "a:2", 2),
        ("a:2,b:2", ["--min-procs", "3"], ["b"], None, 0),
        ("a:2,b:2", [], ["b"], None, 0),
    ],
)
def test_a_lost_host_is_left_out_if_the_others_have_slots(tmp_path, slots, options, lost, left, procs):
    script = tmp_path / "s.py"
    script.touch()
    plan = parse(["-n", "4", "--hosts", slots, "--max-restarts", "1", *options, str(script)])
    failure = Failure((3,), 0.0, "host b was lost", "host b was lost", "")
    following = Restarts(plan).after(plan, failure, 5, lost)
    assert (following is None) == (left is None)
    if following is not None:
        assert (hosts.spelt(following.hosts), following.procs, following.world_size) == (left, procs, 4)


def test_a_hostfile_is_read_in_the_formats_of_both_libraries(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# of MPICH\na:4\n\nb\n # of Open MPI\nc slots=2  # the small one\n")
    assert hosts.spelt(hosts.read(str(file))) == "a:4,b:1,c:2"
    file.write_text("a:4\nb slots=2 max_slots=4\n")
    with pytest.raises(LaunchError, match="line 2: give HOST, HOST:PROCESSES or HOST slots=PROCESSES"):
        hosts.read(str(file))


@pytest.mark.parametrize(
    ("procs", "number"),
    thinned(
        product(["2", "1"], [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]),
        ("2", signal.SIGTERM),
        ("1", signal.SIGUSR1),
    ),
)
def test_a_preempted_job_saves_and_goes_on_later(ddprun, number, procs):
    running = ddprun.start("-n", "2", "--procs", procs, train(ddprun, "time.sleep(0.05)", steps=10_000))
    running.send_signal(number)
    result = ddprun.end(running)
    assert result.code == 75, result.err
    assert result.said[-1].startswith("ddprun: preempted after step ")
    saved = int(result.said[-1].split()[4].rstrip(","))
    assert (ddprun.folder / "checkpoints" / f"step_{saved:08d}").is_dir()
    again = ddprun.run("-n", "2", train(ddprun, "None", steps=saved + 3))
    assert again.code == 0 and again.out.count(",") == saved + 2


def test_a_program_that_saves_nothing_ends_as_ever(ddprun):
    script = ddprun.script('\nopen(f"ready-{rank}", "w").close()\ntime.sleep(600)\n')
    running = ddprun.start("-n", "2", script)
    running.send_signal(signal.SIGUSR1)
    assert ddprun.end(running).code == 128 + signal.SIGUSR1

"""Signals to ddprun reach the ranks, and its death ends them."""

import contextlib
import signal

import pytest
from matrices import thinned

from ddpgrad.distributed.failure import exit_codes

SLEEP = """
open(f"ready-{rank}", "w").close()
time.sleep(600)
"""
STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try:
        open(f"ready-{rank}", "w").close()
        time.sleep(600)
    except KeyboardInterrupt:
        open(f"interrupted-{rank}", "w").close()
"""
SAVES = """
def save(number, frame):
    time.sleep(0.5)
    open(f"saved-{rank}", "w").close()
    sys.exit()
signal.signal(signal.SIGTERM, save)
open(f"ready-{rank}", "w").close()
time.sleep(600)
"""


def test_ctrl_c_says_where_each_rank_was(ddprun):
    running = ddprun.start("-n", "2", ddprun.script(SLEEP))
    running.send_signal(signal.SIGINT)
    result = ddprun.end(running)
    assert result.code == 130
    assert result.said[-3].endswith("script.py:14 (KeyboardInterrupt)")
    assert result.said[-1] == "ddprun: interrupted by SIGINT; all ranks were ended."
    assert "Traceback" not in result.err


def test_the_second_ctrl_c_ends_stubborn_ranks(ddprun):
    running = ddprun.start("-n", "2", ddprun.script(STUBBORN))
    running.send_signal(signal.SIGINT)
    ddprun.wait_for("interrupted-*", 2)
    assert running.poll() is None
    running.send_signal(signal.SIGINT)
    assert ddprun.end(running).code == 130


@contextlib.contextmanager
def inherited(number, answer):
    """What processes that start within answer to a signal at first."""
    before = signal.signal(number, answer)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize(
    ("number", "code"), thinned([(signal.SIGTERM, 143), (signal.SIGHUP, 129)], signal.SIGHUP)
)
def test_a_terminated_job_may_save_its_work(ddprun, number, code):
    with inherited(number, signal.SIG_DFL):  # which these tests may be without, under nohup
        running = ddprun.start("-n", "2", ddprun.script(SAVES))
    running.send_signal(number)
    assert ddprun.end(running).code == code
    ddprun.wait_for("saved-*", 2)


def test_nohup_lets_a_job_outlive_its_terminal(ddprun):
    script = ddprun.script("""
open(f"ready-{rank}", "w").close()
while not os.path.exists("go"): time.sleep(0.01)
wait()
""")
    with inherited(signal.SIGHUP, signal.SIG_IGN):
        running = ddprun.start("-n", "2", script)
    running.send_signal(signal.SIGHUP)
    (ddprun.folder / "go").touch()
    assert ddprun.end(running).code == 0


def test_a_job_that_finishes_although_it_is_asked_to_end_has_finished(ddprun):
    program = """
import ddpgrad as torch
from ddpgrad.launcher import Checkpointer, preemption
checkpoints = Checkpointer("checkpoints")
checkpoints.step(0, model=torch.nn.Linear(2, 2))
open(f"ready-{rank}", "w").close()
while not preemption.requested(): time.sleep(0.01)
"""
    running = ddprun.start("-n", "2", ddprun.script(program))
    running.send_signal(signal.SIGUSR1)
    assert ddprun.end(running).code == exit_codes.FINISHED


def test_several_signals_of_a_scheduler_are_one_request(ddprun):
    """Slurm preempts with several, which come within a moment; nothing is lost."""
    program = """
import os, signal
import ddpgrad as torch
from ddpgrad.launcher import Checkpointer
checkpoints = Checkpointer("checkpoints")
state = {"model": torch.nn.Linear(2, 2)}
checkpoints.step(0, **state)
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM): os.kill(os.getpid(), number)
checkpoints.step(1, **state)
"""
    script = ddprun.script(program, prelude="")
    result = ddprun.run("-n", "1", script)
    assert result.code == exit_codes.PREEMPTED, result.err
    assert "preempted after step 1, whose checkpoint is saved" in result.err

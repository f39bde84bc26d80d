"""A signal that asks the ranks to end, in any phase: they agree on a step, save, and continue later."""

from __future__ import annotations

from itertools import product

import pytest
from matrices import thinned
from training import TRAIN, result

STEPS = ["forward", "backward", "mid-bucket", "optimizer", "save", "step"]
SIGNALS = ["SIGTERM", "SIGINT", "SIGUSR1"]
# One rank alone makes the launcher hear it while it, and it only, is known to be in that phase.
SEND = "os.kill(os.getppid(), signal.{}); time.sleep(0.5)"


@pytest.mark.parametrize(
    ("phase", "number"), thinned(product(STEPS, SIGNALS), ("mid-bucket", "SIGTERM"), ("save", "SIGUSR1"))
)
def test_a_signal_in_any_phase_of_a_step_gives_an_agreed_checkpoint(ddprun, undisturbed, phase, number):
    rank = STEPS.index(phase) % 2
    run = ddprun.run("-n", "2", TRAIN, phase, str(rank), SEND.format(number))
    assert run.code == 75, run.err
    assert run.said[-1].startswith("ddprun: preempted after step ")
    saved = int(run.said[-1].split()[4].rstrip(","))
    assert saved in (3, 4)
    assert (ddprun.folder / "checkpoints" / f"step_{saved:08d}").is_dir()
    again = ddprun.run("-n", "2", TRAIN)
    assert again.code == 0, again.err
    assert result(again) == undisturbed


@pytest.mark.parametrize("phase", thinned(["import", "init"], "init"))
def test_a_signal_before_there_is_anything_to_save_ends_the_job(ddprun, undisturbed, phase):
    run = ddprun.run("-n", "2", TRAIN, phase, "1", SEND.format("SIGTERM"))
    assert run.code == 143, run.err
    again = ddprun.run("-n", "2", TRAIN)
    assert again.code == 0 and result(again) == undisturbed


def test_a_signal_after_the_work_is_done_spoils_nothing(ddprun, undisturbed):
    run = ddprun.run("-n", "2", TRAIN, "shutdown", "1", SEND.format("SIGTERM"))
    assert run.code in (0, 143), run.err
    assert result(run) == undisturbed

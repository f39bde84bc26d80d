"""A signal that comes when the work is done. Those that come before are drawn by the campaign (campaign_table.py)."""

from training import TRAIN, result

# One rank alone makes the launcher hear it while it, and it only, is known to be in that phase.
SEND = "os.kill(os.getppid(), signal.{}); time.sleep(0.5)"


def test_a_signal_after_the_work_is_done_spoils_nothing(ddprun, undisturbed):
    run = ddprun.run("-n", "2", TRAIN, "shutdown", "1", SEND.format("SIGTERM"))
    assert run.code in (0, 143), run.err
    assert result(run) == undisturbed

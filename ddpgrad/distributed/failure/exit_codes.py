"""The exit codes of ddprun. After a signal that ended the job it is 128 + the signal's number, as in a shell."""

from __future__ import annotations

FINISHED = 0
RANK_FAILED = 1
USER_ERROR = 2
STALLED = 3
MISMATCH = 4
BAD_CHECKPOINT = 5
# sysexits.h's EX_TEMPFAIL: the same command, started again, continues.
PREEMPTED = 75

OF_CAUSE = {"error": RANK_FAILED, "stall": STALLED, "mismatch": MISMATCH, "checkpoint": BAD_CHECKPOINT}
"""By the cause of the first failure (`channel.Failure.cause`)."""

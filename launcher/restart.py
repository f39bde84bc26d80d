"""Whether, when and how a job that failed is started again."""

from __future__ import annotations

import selectors
import sys
import time
from dataclasses import replace

from .channel import Failure
from .plan import Plan, new_job
from .signals import Signals

# Seconds before the first restart; twice as long before each one that follows, up to the last figure.
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0

# Another attempt would find the same: ranks that run different programs, a damaged checkpoint.
_HOPELESS = ("mismatch",)


class Restarts:
    """Grants up to `plan.max_restarts` restarts.

    Refused: after an error that was there in the attempt before, too, when neither attempt
    finished an optimizer step; it is in the program, and would only come again.
    """

    def __init__(self, plan: Plan) -> None:
        self._left = plan.max_restarts
        self._pause = _FIRST_PAUSE_S
        self._before_first_step: str | None = None

    def after(self, plan: Plan, failure: Failure | None, steps: int) -> Plan | None:
        """The plan for another attempt after `failure`, or None when the job has ended for good."""
        if failure is None or plan.max_restarts == 0:
            return None
        if failure.cause in _HOPELESS:
            _say(f"no restart: a {failure.cause} comes again")
            return None
        if steps == 0 and self._before_first_step == failure.error:
            _say("no restart: the same error came before the first optimizer step twice")
            return None
        self._before_first_step = failure.error if steps == 0 else None
        if steps:
            self._pause = _FIRST_PAUSE_S
        if self._left == 0:
            _say(f"no restart: {plan.max_restarts} were allowed and made")
            return None
        self._left -= 1
        procs = plan.procs
        if failure.reason == "killed by SIGKILL" and plan.min_procs is not None:
            # Most often memory has run out: fewer processes of the same ranks, and the same bits.
            procs = max(plan.min_procs, procs - 1)
        return replace(plan, **new_job(), procs=procs, restart_count=plan.restart_count + 1)

    def pause(self, selector: selectors.BaseSelector, signals: Signals) -> bool:
        """Wait before the next attempt; False when a signal came instead."""
        _say(f"restarting in {self._pause:g} s from the newest whole checkpoint")
        until = time.monotonic() + self._pause
        self._pause = min(_LONGEST_PAUSE_S, 2 * self._pause)
        while not signals.pending and (left := until - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                key.data(key.fd)
        return not signals.pending


def _say(text: str) -> None:
    print(f"ddprun: {text}.", file=sys.stderr, flush=True)

"""Decides whether, when and how a failed job is started again."""

from __future__ import annotations

import selectors
import signal
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import replace

from ddpgrad.distributed.failure.channel import Failure

from .hosts import slots, spelt
from .plan import Plan, new_job
from .signals import Signals, handle_events

# Seconds before the first restart; twice as long before each one that follows, up to the last figure.
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0

# Signals that a process brings on itself. All others come from outside, and are no errors of the program.
_CRASHES = tuple(f"killed by SIG{name}" for name in ("SEGV", "BUS", "ABRT", "FPE", "ILL", "TRAP", "SYS"))
# Another attempt would fail in the same way: the ranks run different programs.
_HOPELESS = ("mismatch",)


class Restarts:
    """Grants up to `plan.max_restarts` restarts.

    An error that came in two attempts, before the first optimizer step of each, ends the job: it is in the
    program, and would come again.
    """

    def __init__(self, plan: Plan, note: Callable[[str], None] = lambda text: None) -> None:
        """note: is told what is said, to keep it."""
        self._note = note
        self._left = plan.max_restarts
        self._pause = _FIRST_PAUSE_S
        self._before_first_step: str | None = None

    def after(
        self, plan: Plan, failure: Failure | None, steps: int, lost: Collection[str] = ()
    ) -> Plan | None:
        """The plan for another attempt after `failure`, or None when the job has ended for good.

        lost: names of hosts to leave out; processes in the slots of the other hosts take over their ranks.
        """
        if failure is None or plan.max_restarts == 0:
            return None
        steps = max(steps, failure.step or 0)  # the failure tells of steps since the last heartbeat
        if failure.cause in _HOPELESS:
            self._say(f"no restart: a {failure.cause} comes again")
            return None
        if steps == 0 and self._before_first_step == failure.error and not _from_outside(failure):
            self._say("no restart: the same error came before the first optimizer step twice")
            return None
        self._before_first_step = failure.error if steps == 0 else None
        if steps:
            self._pause = _FIRST_PAUSE_S
        if self._left == 0:
            self._say(f"no restart: {plan.max_restarts} were allowed and made")
            return None
        hosts = tuple(host for host in plan.hosts if host.name not in lost)
        procs = min(plan.procs, slots(hosts)) if lost else plan.procs
        least = plan.procs if plan.min_procs is None else plan.min_procs
        if procs < least:
            self._say(
                f"no restart: without {', '.join(lost)} there are slots for {procs} processes, on {spelt(hosts)}, and "
                f"the job needs {least}; --min-procs {procs} would let it go on"
            )
            return None
        self._left -= 1
        if lost:
            self._say(
                f"going on without {', '.join(lost)}: {plan.world_size} ranks in {procs} processes on {spelt(hosts)}"
            )
        elif failure.reason == "killed by SIGKILL" and plan.min_procs is not None:
            # Most often memory has run out: fewer processes of the same ranks, and the same bits.
            procs = max(plan.min_procs, procs - 1)
        return replace(plan, **new_job(), procs=procs, hosts=hosts, restart_count=plan.restart_count + 1)

    def pause(self, selector: selectors.BaseSelector, signals: Signals) -> signal.Signals | None:
        """Wait before the next attempt; the signal that came instead, if one did."""
        self._say(f"restarting in {self._pause:g} s from the newest whole checkpoint")
        until = time.monotonic() + self._pause
        self._pause = min(_LONGEST_PAUSE_S, 2 * self._pause)
        while not signals.pending and (left := until - time.monotonic()) > 0:
            handle_events(selector, left)
        if not signals.pending:
            return None
        self._say(f"{signals.pending[0].name} came before the restart; the job has ended")
        return signals.pending[0]

    def _say(self, text: str) -> None:
        said = f"ddprun: {text}."
        print(said, file=sys.stderr, flush=True)
        self._note(said)


def _from_outside(failure: Failure) -> bool:
    """Whether a signal from outside ended the rank; Python makes an exception of SIGINT."""
    killed = failure.reason.startswith("killed by ") and failure.reason not in _CRASHES
    return killed or failure.error.partition(":")[0] == "KeyboardInterrupt"

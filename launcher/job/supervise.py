"""Supervises a job: one attempt after another, until it has ended for good."""

from __future__ import annotations

import contextlib
import selectors
from dataclasses import replace

from . import run_config, snapshot_memory
from .attempt import Attempt
from .control import Control
from .host_changes import HostChanges
from .logs import Logs
from .plan import Plan, new_job
from .restart import Restarts
from .signals import Signals
from .spares import Spares


def run(plan: Plan) -> int:
    """Start `plan`'s processes, watch them until all have ended, and return ddprun's exit code.

    After a failure they are started again, as often as `plan` allows and it makes sense (see restart.py).
    """
    # On Linux this is epoll, which reports events in the order in which they happened: the process that died
    # first comes first, even when mpiexec has killed the others in the meantime.
    with (
        selectors.DefaultSelector() as selector,
        Signals(selector) as signals,
        Logs(plan.log_dir) as logs,
        snapshot_memory.made(plan, selector) as snapshots,
        contextlib.closing(Spares()) as spares,
        contextlib.closing(HostChanges(plan)) as changes,
        Control(selector) as control,
        control.status.served(selector, plan.metrics),
    ):
        plan = replace(run_config.described(plan), snapshots=snapshots)
        restarts = Restarts(plan, logs.note)
        if plan.nodes is not None:
            plan.nodes.watch(selector, signals.pending.append)
        while True:
            attempt = Attempt(plan, selector, signals, logs, spares, changes)
            control.resize = attempt.resize
            control.status.begin(plan, attempt.processes)
            outcome = attempt.run()
            following = outcome.following
            if following is not None:
                plan = replace(following, **new_job(), restart_count=plan.restart_count + 1)
                continue
            following = restarts.after(plan, outcome.failure, outcome.steps, outcome.lost)
            if following is None:
                logs.ended(outcome.code)
                return outcome.code
            if (number := restarts.pause(selector, signals)) is not None:
                logs.ended(128 + number)
                return 128 + number
            plan = following

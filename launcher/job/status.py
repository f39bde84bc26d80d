"""What the launcher knows of its job, as plain data: for `ddprun top` (control.py) and `ddprun --metrics` (metrics_port.py)."""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import time
from collections.abc import Iterator
from typing import Any

from ddpgrad.distributed.failure.watchdog import silence

from .plan import Plan
from .processes import JobProcess, JobProcesses

Status = dict[str, Any]


class JobStatus:
    """Puts a job's status together when it is asked for; until then it costs nothing."""

    def __init__(self) -> None:
        self._started = time.time()
        self._attempt: tuple[Plan, JobProcesses] | None = None

    def begin(self, plan: Plan, processes: JobProcesses) -> None:
        """An attempt of the job begins."""
        self._attempt = plan, processes

    def served(
        self, selector: selectors.BaseSelector, address: tuple[str, int] | None
    ) -> contextlib.AbstractContextManager[None]:
        """Within it, Prometheus gets it at `address` from the loop of `selector`; LaunchError where that cannot be."""
        if address is None:
            return contextlib.nullcontext()
        from .metrics_port import MetricsPort  # here, as most jobs need none

        return MetricsPort(selector, address, self.read)

    def read(self) -> Status:
        """The job, and under `ranks` each of its ranks; times are seconds since 1970, sizes are bytes, None is not known.

        A rank's `exit` is the exit code of its process, or minus a signal; `rate` is optimizer steps a second, `waited`
        seconds of its process, `at` what it waits for or began last, `logged` the latest numbers of its program.
        """
        assert self._attempt is not None
        plan, processes = self._attempt
        ranks = {row["rank"]: row for process in processes.all() for row in _rows(process, plan.world_size)}
        for proc in range(plan.procs):
            for rank in plan.ranks(proc):  # such as those that mpiexec has yet to start
                ranks.setdefault(rank, {**_UNKNOWN, "rank": rank})
                ranks[rank]["process"] = proc
        return {
            "pid": os.getpid(),
            "host": os.uname().nodename,
            "command": shlex.join(["ddprun", *plan.command_line]),
            "script": plan.target,
            "started": self._started,
            "now": time.time(),
            "world_size": plan.world_size,
            "processes": plan.procs,
            "restarts": plan.restart_count,
            "ranks": [ranks[rank] for rank in sorted(ranks)],
        }


_UNKNOWN: dict[str, Any] = {
    "host": "", "pid": None, "state": "starting", "alive": False, "exit": None, "steps": 0, "rate": None, "collectives": 0,
    "progress_at": None, "heartbeat_at": None, "waited": 0.0, "at": "", "memory": None, "gpu": None, "step": None, "logged": {},
}  # fmt: skip


def _rows(process: JobProcess, ranks: int) -> Iterator[dict[str, Any]]:
    now = time.monotonic()
    since = time.time() - now
    for rank in process.ranks:
        row = {
            **_UNKNOWN,
            "rank": rank,
            "exit": process.status,
            "state": _state(process),
            "alive": not process.ended,
        }
        if process.host:
            progress = process.progress_of(rank)
            if row["state"] == "running" and now - progress.heartbeat_at > silence(ranks):
                row["state"] = "silent"
            step, logged = progress.logged or (None, {})
            memory, gpu = progress.memory if row["alive"] else (None, None)
            row |= {
                "host": process.host,
                "pid": process.own_pid,
                "steps": progress.steps,
                "rate": progress.rate(now),
                "collectives": progress.counters[0],
                "progress_at": since + progress.changed_at,
                "heartbeat_at": since + progress.heartbeat_at,
                "waited": progress.waited,
                "at": progress.waits_for or (progress.last[-1] if progress.last else ""),
                "memory": memory,
                "gpu": gpu,
                "step": step,
                "logged": logged,
            }
        yield row


def _state(process: JobProcess) -> str:
    if process.preempted is not None:
        return "saved"
    if process.failed or (process.ended and not process.done):
        return "failed"
    if process.done:
        return "done"
    if not process.host:
        return "starting"
    return "waiting" if process.meeting else "running"

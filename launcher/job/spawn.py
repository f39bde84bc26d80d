"""Starts the children of the launcher: the processes of a job on this host, or mpiexec. None outlives the launcher."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from ddpgrad.core.errors import LaunchError

from . import child_process, typed_input
from .plan import Plan, label


@dataclass(eq=False)
class Child:
    """A child of the launcher, and the launcher's ends of its pipes."""

    popen: subprocess.Popen[bytes]
    ranks: range
    prefix: str
    """The launcher prints it before each line of the child; '' for mpiexec, whose processes mark their lines."""
    report: int | None = None
    """The pipe with the child's messages; None for mpiexec, whose processes connect by themselves."""

    def ended(self) -> int | None:
        """The exit status (negative: minus the signal), or None while the child runs.

        The child stays a zombie until `reap`: see child_process.py.
        """
        return child_process.exit_status(self.popen.pid)

    def send_group(self, number: signal.Signals) -> None:
        """Send a signal to the child and to its descendants in its process group."""
        child_process.send_group(self.popen.pid, number)

    def reap(self) -> None:
        self.popen.wait()

    def abandon(self) -> None:
        """End it, with all that it has started; nobody has listened to it yet."""
        self.send_group(signal.SIGKILL)
        self.reap()
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if stream is not None:
                stream.close()
        if self.report is not None:
            os.close(self.report)


def start(plan: Plan, spare: Callable[[Plan, int], Child | None]) -> list[Child]:
    """Start all processes of `plan` on this host. spare: gives one that waits to be the process of a number."""
    children: list[Child] = []
    try:
        for proc in range(plan.procs):
            children.append(spare(plan, proc) or start_process(plan, proc))
    except OSError as error:
        for child in children:
            child.abandon()
        raise LaunchError(
            f"only {len(children)} of {plan.procs} processes could be started: {error}. "
            "Use fewer with --procs, or raise the limit (ulimit -n, ulimit -u)."
        ) from error
    return children


def start_process(plan: Plan, proc: int, spare: int | None = None) -> Child:
    """Start the process `proc` of `plan`, or one that waits to become it: `spare` is its pipe (see preloading.py)."""
    ranks = plan.ranks(proc)
    # One rank alone has the launcher's own streams, since its lines need no mark. What is kept or selected comes here first.
    relayed = plan.log_dir is not None or plan.screen.only is not None
    own_streams = plan.world_size == 1 and not relayed
    # Rank 0 may draw a progress bar, which needs a terminal of its own.
    own_terminal = os.isatty(2) and not relayed
    receiving, sending = os.pipe()
    try:
        popen = popen_in_group(
            plan.command(f"fd:{sending}") if spare is None else plan.spare_command(f"fd:{sending}", spare),
            plan.environment(proc),
            stdin=typed_input.for_rank_0() if proc == 0 else subprocess.DEVNULL,
            stdout=None if own_streams else subprocess.PIPE,
            stderr=None if own_streams or (own_terminal and proc == 0) else subprocess.PIPE,
            pass_fds=(sending,) if spare is None else (sending, spare),
        )
    except OSError:
        os.close(receiving)
        raise
    finally:
        os.close(sending)
    return Child(popen, ranks, prefix(plan, ranks), receiving)


def prefix(plan: Plan, ranks: range) -> str:
    """What the launcher prints before each line of the process that hosts `ranks`."""
    return "" if plan.world_size == 1 else f"[{label(ranks)}] "


def popen_in_group(
    command: Sequence[str],
    environment: Mapping[str, str] | None,
    *,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | None,
    stderr: int | None,
    pass_fds: Sequence[int] = (),
    at_launcher_death: signal.Signals = signal.SIGKILL,
) -> subprocess.Popen[bytes]:
    """Start a process in a process group of its own. The kernel sends it a signal when the launcher dies.

    Because of the group, a Ctrl-C of the terminal reaches the launcher alone, which passes it on.
    environment: None for the launcher's own.
    """
    return subprocess.Popen(
        command,
        env=environment,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=pass_fds,
        process_group=0,
        preexec_fn=functools.partial(child_process.die_with_parent, os.getpid(), at_launcher_death),
    )


def replace_this_process(plan: Plan) -> NoReturn:
    """Become the one process of a debug run, so that a debugger has the terminal to itself."""
    sys.stdout.flush()
    sys.stderr.flush()
    command = plan.command("none")
    os.execve(command[0], command, plan.environment(0))

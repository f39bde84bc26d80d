"""See to it that the end of a process, good or bad, reaches the other ranks.

MPI has no notion of a rank that stops early: its peers would wait for ever in their collective. So an uncaught
exception is marked and, under MPI, ends the whole job. MPICH takes an `os._exit(0)` for a good end of all, of
ranks that it then kills as well; where ddprun is not there to see it, `os._exit` is made to end the job badly.
Where there is no ddprun, a reporter reports what happened.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ...core.errors import DdpgradError, DistributedError
from .. import transports
from ..failure import exit_codes
from ..transports.process_monitor import pid_namespace

if TYPE_CHECKING:
    from ..failure.reporter import Reporter
    from .world import World

T = TypeVar("T")

_ABORT_DELAY = 0.3


class ExitWatch:
    """Watches the end of this process, which hosts ranks of `world`, until `undo` is called."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._left = False
        self._hook_before = sys.excepthook
        self._thread_hook_before = threading.excepthook
        self._exit_before = os._exit
        sys.excepthook = self._on_exception
        threading.excepthook = self._on_thread_exception
        atexit.register(self._leave)
        self._child = _at_end_of_child(self._leave_child)
        self._reporter: Reporter | None = None
        if world.met is not None or (world.launch.mpi and world.launch.job is None):  # there is no ddprun
            os._exit = self._exit_at_once
            self._reporter = _reporter(world)

    def undo(self) -> None:
        """The ranks of this process have left their world."""
        self._left = True
        if self._reporter is not None:
            self._reporter.close()
        # Whoever came later calls these, and then they do nothing.
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._hook_before
        if threading.excepthook == self._on_thread_exception:
            threading.excepthook = self._thread_hook_before
        if os._exit == self._exit_at_once:
            os._exit = self._exit_before
        atexit.unregister(self._leave)
        if self._child is not None:
            self._child.cancel()

    @property
    def _concerned(self) -> bool:
        return not self._left and os.getpid() == self._world.pid

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        world = self._world
        if not self._concerned:
            self._hook_before(kind, error, trace)
            return
        world.fail(world.launch.ranks.start, error)
        if self._reporter is not None and isinstance(error, Exception):
            if self._hook_before is not sys.__excepthook__:  # whose traceback is part of the report
                self._hook_before(kind, error, trace)
            transports.abort(_reported(self._reporter.failed, error), _ABORT_DELAY)
            return
        self._hook_before(kind, error, trace)
        if world.launch.mpi:
            # A rank that fails because another did leaves that one time to say why.
            transports.abort(1, 1.0 if isinstance(error, DistributedError) else _ABORT_DELAY)

    def _on_thread_exception(self, args: threading.ExceptHookArgs) -> None:
        """A thread ends: a collective that failed there failed for its rank, whose other threads may never know."""
        error = args.exc_value
        if self._reporter is not None and isinstance(error, DistributedError) and self._concerned:
            self._on_exception(args.exc_type, error, args.exc_traceback)
        else:
            self._thread_hook_before(args)

    def _leave(self) -> None:
        world = self._world
        if self._reporter is not None and self._concerned:
            try:
                world.hosted[0].last_checks.raise_error()
            except DdpgradError as error:
                self._on_exception(type(error), error, error.__traceback__)
                _exit_badly(self._exit_before)
        self._left = True
        if self._reporter is not None:
            self._reporter.leave()
        if world.abort_at_exit and world.launch.mpi and os.getpid() == world.pid:
            transports.abort(1, _ABORT_DELAY)
        world.close()

    def _leave_child(self) -> None:
        """A process of `multiprocessing` ends: it calls neither `sys.excepthook` nor, if it was forked, `atexit`."""
        error = sys.exception()
        world = self._world
        if error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0)):
            world.fail(world.launch.ranks.start, error)
            code = 1
            if self._reporter is not None and isinstance(error, Exception):
                code = _reported(self._reporter.failed, error)
            transports.abort(code, _ABORT_DELAY)
        if self._concerned:
            self._leave()
            transports.finalize(world.launch)

    def _exit_at_once(self, status: int) -> NoReturn:
        if self._concerned:
            code = 1
            if self._reporter is not None:
                code = _reported(self._reporter.exits, status)
            else:
                rank = self._world.launch.ranks.start
                sys.stderr.write(f"rank {rank} called os._exit({status}) before its script was finished\n")
            status = status or code
            transports.abort(status, _ABORT_DELAY)
        self._exit_before(status)


class LastChecks:
    """What is looked at, without waiting for other ranks, when the program of a rank ends well.

    alone: no other rank shares its process. unwatched: nobody sees that program end who would call `raise_error`, so
    that the process does it itself. error: what was found.
    """

    def __init__(self, rank: int, alone: bool, unwatched: bool) -> None:
        self._rank, self._alone, self._unwatched = rank, alone, unwatched
        self._checks: list[weakref.finalize] = []
        self.error: DdpgradError | None = None

    def add(self, check: Callable[[], DdpgradError | None], owner: object) -> None:
        """Let `check` say what is wrong at the end, or before, when `owner` is freed."""

        def ended() -> None:
            self.error = self.error or check()

        if self._unwatched:
            self._unwatched = False
            atexit.register(self._end, os.getpid())
        self._checks = [known for known in self._checks if known.alive]
        self._checks.append(weakref.finalize(owner, ended))
        self._checks[-1].atexit = False

    def raise_error(self) -> None:
        """Check, and raise what is wrong. Where ranks share a process, only the one at fault raises, and others keep it."""
        for known in self._checks:
            # A call would do nothing once `atexit` has come to weakref's own function.
            if (last := known.detach()) is not None:
                last[1]()
        self._checks.clear()
        error = self.error
        if error is not None and (self._alone or self._rank in error.ranks):
            self.error = None
            raise error

    def _end(self, pid: int) -> None:
        if os.getpid() != pid:
            return
        try:
            self.raise_error()
        except DdpgradError:
            traceback.print_exc()
            _exit_badly(os._exit)


def _exit_badly(exit_at_once: Callable[[int], NoReturn]) -> NoReturn:
    """End this process from within `atexit`, whose functions have no say in the exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    exit_at_once(exit_codes.RANK_FAILED)


def _at_end_of_child(leave: Callable[[], None]) -> Any:
    """Let a process of `multiprocessing` call `leave` at its end; None in any other process."""
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return None
    from multiprocessing.util import Finalize

    return Finalize(None, leave, exitpriority=100)


def _reporter(world: World) -> Reporter | None:
    """Who reports failures where no ddprun does; None where processes cannot find each other by a name in the kernel."""
    if sys.platform != "linux":
        return None
    from ..failure.reporter import Reporter

    launch, met = world.launch, world.met
    if met is not None and not launch.mpi:
        return Reporter(launch, met.token, met.peers)
    from ..transports.mpi import library

    table = library.gathered(launch, (os.getpid(), pid_namespace()))
    here = next(procs for procs in library.hosts(launch) if launch.proc in procs)
    peers = {
        launch.block(proc).start: int(table[proc, 0])
        for proc in here
        # Containers may share a host, but not its process numbers.
        if proc != launch.proc and table[proc, 1] == table[launch.proc, 1]
    }
    return Reporter(launch, library.shared_token(launch), peers)


def _reported(report: Callable[[T], int], what: T) -> int:
    """The exit code that `report(what)` returns. The job must end even where no report can be made."""
    try:
        return report(what)
    except Exception:
        if isinstance(what, BaseException):
            traceback.print_exception(what)
        traceback.print_exc()
        return 1

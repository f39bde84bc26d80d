"""The world as this process sees it, and each rank that the process hosts. `current` is the rank that calls."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeVar

from threadpoolctl import threadpool_limits

from ...core import environment, rank_local, spans
from ...core.environment import Launch
from ...core.errors import DistributedError, LaunchError
from .. import transports
from ..communicator.communicator import Alone, Communicator, Port
from ..protocol import progress
from ..transports.base import Transport
from .baton import Baton, Meeting, Seat

if TYPE_CHECKING:
    from ..failure.reporter import Reporter

T = TypeVar("T")

_ABORT_DELAY = 0.3


class World:
    """This process's view of its world: its launch, its transports, its ranks."""

    def __init__(self, launch: Launch) -> None:
        if not 0 <= launch.proc < launch.procs or launch.procs > launch.world_size:
            raise LaunchError(
                f"process {launch.proc} of {launch.procs} has no rank: the world has {launch.world_size} "
                "ranks; start at most one process for each rank"
            )
        self.launch = launch
        self.hosted = [HostedRank(self, rank) for rank in launch.ranks]
        self.baton: Baton | None = None
        self.abort_at_exit = False
        # By the name of the transport, and for a group by its number.
        self._meetings: dict[str | int, Meeting] = {}
        self._transports: dict[str | int, Transport] = {}
        self._chosen: dict[str | None, str] = {}
        self._ranks_here: list[int] | None = None
        # One BLAS thread a process: ranks share the cores, and the bits must not depend on how many
        # there are. Set here, in the main thread: once one thread has set it, OpenBLAS heeds no other.
        self._one_thread: threadpool_limits | None = None
        if launch.world_size > 1 and not environment.blas_threads_chosen():
            self._one_thread = threadpool_limits(1, "blas")
        self.pid = os.getpid()
        if environment.trace_folder() is not None:
            from ..trace import recorder

            recorder.start_if_asked(launch)

    def transport(self, backend: str | None, timeout: float | None) -> Transport:
        """The transport of that name, connected on first use (collective between processes)."""
        name = self._chosen.get(backend)
        if name is None:  # once for all ranks of this process, since processes choose together
            name = self._chosen[backend] = transports.choose(self.launch, backend)
        transport = self._transports.get(name)
        if transport is None:
            transport = transports.connect(self.launch, name, timeout, f"{len(self._transports)}")
            self._transports[name] = transport
            if self.launch.procs > 1 and len(self._transports) == 1:
                _watch_exit(self)
        elif timeout is not None:
            transport.timeout = timeout
        return transport

    def group_transport(
        self, number: int, launch: Launch, backend: str | None, timeout: float | None
    ) -> Transport:
        """The transport of the group that every rank makes as its `number`th (collective in the group)."""
        transport = self._transports.get(number)
        if transport is None:
            name = transports.choose(launch, backend)
            transport = transports.connect(launch, name, timeout, f"group{number}")
            self._transports[number] = transport
        return transport

    def port(self, key: str | int, transport: Transport, rank: int) -> Port:
        """How `rank` uses the transport that is known as `key`."""
        if self.baton is None:
            return _watched(Alone(transport))
        first = self.launch.ranks.start
        meeting = self._meetings.get(key)
        if meeting is None:
            here = [transport.launch.world_rank(r) - first for r in transport.ranks]
            meeting = self._meetings[key] = Meeting(transport, self.baton, here)
        return _watched(Seat(meeting, rank - first))

    def ranks_on_this_host(self) -> list[int]:
        """All ranks of the world that run on this host (collective between processes at first)."""
        if self._ranks_here is None:
            self._ranks_here = transports.ranks_on_this_host(self.launch)
        return self._ranks_here

    def fail(self, rank: int, error: BaseException) -> None:
        """Tell the other processes that hosted `rank` ends with `error`."""
        for transport in self._transports.values():
            transport.fail(rank, _reason(error), secondary=isinstance(error, DistributedError))

    def free_threads(self) -> None:
        """Let BLAS use as many threads again as before. May be called again."""
        if self._one_thread is not None:
            self._one_thread.restore_original_limits()
            self._one_thread = None

    def close(self) -> None:
        """Tell the other processes that this one's ranks have ended. May be called again."""
        # A forked child (a loader's worker, say) must not speak for its parent.
        if os.getpid() == self.pid:
            for transport in self._transports.values():
                transport.close()
            self.free_threads()


class HostedRank:
    """One logical rank, as its own program sees it.

    rank         0 to world_size - 1
    world_size   the number of ranks
    launch       how this process was started
    progress     its last collectives and steps, for reports
    variables    the environment variables that say which rank it is, as torchrun names them
    """

    def __init__(self, world: World, rank: int) -> None:
        self.world = world
        self.rank = rank
        self.world_size = world.launch.world_size
        self.launch = world.launch
        self.progress = progress.begin(rank)
        self.variables = {"RANK": str(rank), "WORLD_SIZE": str(self.world_size)}
        self._groups = 0  # how many groups this rank has made, or seen others make

    def __repr__(self) -> str:
        return f"HostedRank(rank={self.rank}, world_size={self.world_size})"

    def locate(self) -> None:
        """Complete `variables` by this rank's place on its host (collective between processes)."""
        self.variables |= {"LOCAL_RANK": str(self.local_rank), "LOCAL_WORLD_SIZE": str(self.local_world_size)}

    @property
    def local_rank(self) -> int:
        """The index of this rank among those on its host."""
        return self.world.ranks_on_this_host().index(self.rank)

    @property
    def local_world_size(self) -> int:
        """The number of ranks on this rank's host."""
        return len(self.world.ranks_on_this_host())

    def communicator(self, backend: str | None = None, timeout: float | None = None) -> Communicator:
        """The collectives of this rank over all ranks of the world. All ranks call it.

        backend   'virtual', 'shm' or 'mpi'; None: the fastest that reaches all processes
        timeout   seconds that a collective may wait for other ranks; None: DDPGRAD_TIMEOUT
        Raises TransportError, which says what is missing.
        """
        transport = self.world.transport(backend, timeout)
        port = self.world.port(transport.name, transport, self.rank)
        communicator = Communicator(self.rank, self.world_size, transport.name, port, self.progress.note)
        if spans.recorders:
            from ..trace import recorder

            recorder.align(communicator)
        return communicator

    def group(
        self, ranks: Sequence[int], backend: str | None = None, timeout: float | None = None
    ) -> Communicator | None:
        """The collectives of this rank over `ranks`; None if it is none of them.

        All ranks of the world make the same groups in the same order, members or not.
        Ranks are numbered anew, in ascending order.
        """
        self._groups += 1
        ranks = sorted(ranks)
        if self.rank not in ranks:
            return None
        launch = self.launch.subset(ranks)
        assert launch is not None
        transport = self.world.group_transport(self._groups, launch, backend, timeout)
        port = self.world.port(self._groups, transport, self.rank)
        return Communicator(ranks.index(self.rank), len(ranks), transport.name, port, self.progress.note)


_process_world: World | None = None


def current() -> HostedRank:
    """The rank that is calling.

    Threads of `run_ranks` and `simulate` are ranks; every other thread belongs to the
    one rank of an ordinary process.
    """
    key = rank_local.bound()
    if isinstance(key, HostedRank):
        return key
    global _process_world
    if _process_world is None:
        _process_world = World(environment.launch())
    if len(_process_world.hosted) > 1:
        raise LaunchError(
            f"thread {threading.current_thread().name!r} belongs to none of the ranks "
            f"{list(_process_world.launch.ranks)} that this process hosts; call from a rank's own thread, "
            "and start programs with several ranks in a process through ddprun"
        )
    return _process_world.hosted[0]


def serve(world: World | None) -> World | None:
    """Make `world` the one of threads outside `simulate`; returns the one before."""
    global _process_world
    before, _process_world = _process_world, world
    return before


def _reason(error: BaseException) -> str:
    """`raised ValueError: message (train.py:31)`, for the messages of other ranks."""
    if isinstance(error, SystemExit):
        return f"ended with exit code {error.code}"
    lines = str(error).splitlines()
    where = traceback.extract_tb(error.__traceback__)
    place = f" ({where[-1].filename}:{where[-1].lineno})" if where else ""
    return f"raised {type(error).__name__}: {lines[0] if lines else ''}{place}"


def _watch_exit(world: World) -> None:
    """See to it that this process's end, good or bad, reaches the others.

    MPI has no notion of a rank that stops early: its peers would wait for ever in their
    collective. So an uncaught exception is marked and, under mpirun, ends the whole job. MPICH takes
    an `os._exit(0)` for a good end of all, of ranks that it then kills as well; where ddprun is not
    there to see it, `os._exit` is made to end the job badly, and a reporter reports what happened.
    """
    previous = sys.excepthook
    reporter: Reporter | None = None

    def hook(kind: type[BaseException], error: BaseException, trace) -> None:
        if os.getpid() != world.pid:
            previous(kind, error, trace)
            return
        world.fail(world.launch.ranks.start, error)
        if reporter is not None and isinstance(error, Exception):
            if previous is not sys.__excepthook__:  # whose traceback is part of the report
                previous(kind, error, trace)
            transports.abort(_reported(reporter.failed, error), _ABORT_DELAY)
            return
        previous(kind, error, trace)
        if world.launch.mpi:
            # A rank that fails because another did leaves that one time to say why.
            transports.abort(1, 1.0 if isinstance(error, DistributedError) else _ABORT_DELAY)

    def leave() -> None:
        nonlocal left
        left = True
        if reporter is not None:
            reporter.leave()
        if world.abort_at_exit and world.launch.mpi and os.getpid() == world.pid:
            transports.abort(1, _ABORT_DELAY)
        world.close()

    def exit_at_once(status: int) -> NoReturn:
        if os.getpid() == world.pid and not left:
            code = 1
            if reporter is not None:
                code = _reported(reporter.exits, status)
            else:
                rank = world.launch.ranks.start
                sys.stderr.write(f"rank {rank} called os._exit({status}) before its script was finished\n")
            transports.abort(status or code, _ABORT_DELAY)
        unchecked_exit(status)

    left = False
    unchecked_exit = os._exit
    sys.excepthook = hook
    atexit.register(leave)
    if world.launch.mpi and world.launch.job is None:
        os._exit = exit_at_once
        reporter = _reporter(world.launch)


def _watched(port: Port) -> Port:
    """`port`, or one that also records how long its collectives take, if somebody records."""
    if not spans.recorders:
        return port
    from ..trace import recorder

    return recorder.watched(port)


def _reporter(launch: Launch) -> Reporter | None:
    """Who reports failures where no ddprun does; None where processes cannot find each other by a name in the kernel."""
    if sys.platform != "linux":
        return None
    from ..failure.reporter import Reporter

    return Reporter(launch)


def _reported(report: Callable[[T], int], what: T) -> int:
    """The exit code that `report(what)` returns. The job must end even where no report can be made."""
    try:
        return report(what)
    except Exception:
        if isinstance(what, BaseException):
            traceback.print_exception(what)
        traceback.print_exc()
        return 1

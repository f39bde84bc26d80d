"""The world as this process sees it, and each rank that the process hosts. `current` is the rank that calls."""

from __future__ import annotations

import hashlib
import os
import threading
import traceback
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...backend.cpu import threads
from ...core import environment, rank_local, spans
from ...core.environment import Launch
from ...core.errors import DistributedError, LaunchError
from .. import transports
from ..communicator.communicator import Alone, Communicator, Port
from ..protocol import guard, progress
from ..transports.base import COMPLETED, Transport, forked, limit
from .baton import Baton, Outside, Slot
from .exits import ExitWatch, LastChecks

if TYPE_CHECKING:
    from ..rendezvous.meeting import Asked, Met
    from .meeting import Meeting


class World:
    """This process's view of its world: its launch, its transports, its ranks.

    assigned: whoever runs the program in this process has said which ranks it is; met: the ranks found each other.
    """

    def __init__(self, launch: Launch, met: Met | None = None, assigned: bool = True) -> None:
        if not 0 <= launch.proc < launch.procs or launch.procs > launch.world_size:
            raise LaunchError(
                f"process {launch.proc} of {launch.procs} has no rank: the world has {launch.world_size} "
                "ranks; start at most one process for each rank"
            )
        self.launch = launch
        self.met = met
        self.assigned = assigned
        self.left = False
        self.hosted = [HostedRank(self, rank) for rank in launch.ranks]
        self.baton: Baton | None = None
        self.abort_at_exit = False
        # By the name of the transport, and for a group by the group's name.
        self._meetings: dict[str, Meeting] = {}
        self._transports: dict[str, Transport] = {}
        self._connecting: dict[str, Slot] = {}
        self._left: dict[str, int] = {}  # how many ranks of this process have left a group
        self._chosen: dict[str | None, str] = {}
        self._ranks_here: list[int] | None = None
        self._lock = threading.Lock()  # of groups, which threads of several ranks may make at once
        # One thread a process: ranks share the cores, and BLAS's bits must not depend on how many there are.
        self._threads_before: int | None = None
        if launch.world_size > 1 and not environment.blas_threads_chosen():
            self._threads_before = threads.blas_threads()
            threads.set_threads(1)
        self.pid = os.getpid()
        self._exits: ExitWatch | None = None
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
            self._refuse_in_fork()
            with progress.meeting(name, limit(timeout)):
                transport = transports.connect(self.launch, name, timeout, meeting=name)
            self._transports[name] = transport
            if self.launch.procs > 1 and len(self._transports) == 1:
                self._exits = ExitWatch(self)
                if self.met is not None:
                    self.met.all_joined()
        else:
            transport.timeout = limit(timeout)
        return transport

    def _refuse_in_fork(self) -> None:
        if self.launch.world_size > 1 and os.getpid() != self.pid:
            raise forked(self.launch)

    def group_transport(
        self, local: int, group: str, launch: Launch, backend: str | None, timeout: float | None
    ) -> Transport:
        """The transport of the group of that name, which its ranks alone have (collective in the group).

        local: the rank that calls, by index within the process; the first of several connects.
        """

        def connect() -> None:
            self._refuse_in_fork()
            self._transports[group] = transports.connect_group(launch, backend, timeout, group)

        if group not in self._transports:
            if self.baton is None:
                connect()
            else:
                with self._lock:
                    slot = self._connecting.get(group)
                    first = slot is None and group not in self._transports
                    if first:
                        slot = self._connecting[group] = Slot(threading.Lock(), float("inf"))
                        slot.pending = Outside()
                if first and slot is not None:
                    try:
                        self.baton.outside(local, connect)
                    except Exception as error:
                        slot.error = error
                        raise
                    finally:
                        slot.pending = COMPLETED
                        del self._connecting[group]
                elif slot is not None:
                    self.baton.wait(local, slot)
        return self._transports[group]

    def release(self, group: str) -> None:
        """A rank of this process has left the group of that name: the last of them gives back what the group took.

        What others still used then is given back when a rank leaves another group, or at the end.
        """
        with self._lock:
            self._left[group] = self._left.get(group, 0) + 1
            for name, left in list(self._left.items()):
                transport = self._transports[name]
                if left == len(transport.ranks) and transport.release():
                    del self._transports[name], self._left[name]
                    self._meetings.pop(name, None)

    def port(self, key: str, transport: Transport, rank: int) -> Port:
        """How `rank` uses the transport that is known as `key`."""
        if self.baton is None:
            return _watched(Alone(transport))
        from .meeting import Meeting, Seat  # here, as most processes host one rank

        first = self.launch.ranks.start
        meeting = self._meetings.get(key)
        if meeting is None:
            here = [transport.launch.world_rank(r) - first for r in transport.ranks]
            meeting = self._meetings.setdefault(key, Meeting(transport, self.baton, here))
        return _watched(Seat(meeting, rank - first))

    def ranks_on_this_host(self) -> list[int]:
        """All ranks of the world that run on this host (collective between processes at first)."""
        if self._ranks_here is None:
            self._ranks_here = transports.ranks_on_this_host(self.launch)
        return self._ranks_here

    def fail(self, rank: int, error: BaseException) -> None:
        """Tell the other processes that hosted `rank` ends with `error`."""
        # A forked child (a loader's worker, say) must not speak for its parent.
        for transport in list(self._transports.values()) if os.getpid() == self.pid else ():
            transport.fail(rank, _reason(error), secondary=isinstance(error, DistributedError))

    def free_threads(self) -> None:
        """Let BLAS use as many threads again as before. May be called again."""
        if self._threads_before is not None:
            threads.set_threads(self._threads_before)
            self._threads_before = None

    def leave(self) -> None:
        """The rank leaves the world that it has met, if it has met one: `join` may meet another."""
        if self.met is None or self.left:
            return
        self.left = True
        if self._exits is not None:
            self._exits.undo()
        self.close()
        self.met.leave()
        for hosted in self.hosted:
            progress.end(hosted.rank)

    def close(self) -> None:
        """Tell the other processes that this one's ranks have ended. May be called again."""
        if os.getpid() == self.pid:  # as in `fail`
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
    last_checks  what is looked at when its program ends
    """

    def __init__(self, world: World, rank: int) -> None:
        self.world = world
        self.rank = rank
        self.world_size = world.launch.world_size
        self.launch = world.launch
        self.progress = progress.begin(rank)
        self.variables = {"RANK": str(rank), "WORLD_SIZE": str(self.world_size)}
        unwatched = not world.assigned and self.launch.procs == 1 and environment.launched() is None
        self.last_checks = LastChecks(rank, alone=len(self.launch.ranks) == 1, unwatched=unwatched)
        # How many groups this rank has made, or seen others make; and of those that only members make, by their ranks.
        self._groups: Counter[tuple[int, ...] | None] = Counter()

    def __repr__(self) -> str:
        return f"HostedRank(rank={self.rank}, world_size={self.world_size})"

    def fail(self, error: BaseException) -> None:
        """This rank, one of several of its process, has failed."""
        baton = self.world.baton
        assert baton is not None
        if not baton.failures:
            # At once: ranks that are outside wait for other processes, which may wait for this one.
            self.world.fail(self.rank, error)
        baton.fail(self.rank - self.launch.ranks.start, error)

    def locate(self) -> None:
        """Complete `variables` by this rank's place on its host (collective between processes)."""
        self.variables |= {"LOCAL_RANK": str(self.local_rank), "LOCAL_WORLD_SIZE": str(self.local_world_size)}

    @property
    def local_rank(self) -> int:
        """The index of this rank among those on its host, or what LOCAL_RANK says where nobody else knows."""
        if self.world.met is not None and self.world.met.local_rank is not None:
            return self.world.met.local_rank
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
        self,
        ranks: Sequence[int],
        backend: str | None = None,
        timeout: float | None = None,
        members_only: bool = False,
    ) -> Communicator | None:
        """The collectives of this rank over `ranks`; None if it is none of them.

        All ranks of the world make groups in the same order, members or not; those of one call are the same or have no
        rank in common. members_only: only `ranks` call, as one.
        Ranks are numbered anew, in ascending order.
        """
        ranks = sorted(ranks)
        kind = tuple(ranks) if members_only else None
        if members_only and self.rank not in ranks:
            return None
        self._groups[kind] += 1
        if self.rank not in ranks:
            return None
        launch = self.launch.subset(ranks)
        assert launch is not None
        named = str(ranks[0]) if kind is None else hashlib.blake2b(repr(kind).encode(), digest_size=6).hexdigest()  # fmt: skip
        name = f"group{self._groups[kind]}-{named}"
        local = self.rank - self.world.launch.ranks.start
        transport = self.world.group_transport(local, name, launch, backend, timeout)
        port = self.world.port(name, transport, self.rank)
        note = self.progress.noting(f"group {self._groups[kind]} of {guard.in_short(ranks)}")
        leave = partial(self.world.release, name)
        made = Communicator(ranks.index(self.rank), len(ranks), transport.name, port, note, leave)
        made.name = name
        return made


_process_world: World | None = None


def current() -> HostedRank:
    """The rank that is calling.

    Threads of `run_ranks` and `simulate` are ranks; every other thread belongs to the
    one rank of an ordinary process. The first call meets the other ranks, if nobody has said who they are and the
    environment names a place (see `rendezvous`).
    """
    key = rank_local.bound()
    if isinstance(key, HostedRank):
        return key
    global _process_world
    if _process_world is None:
        met = None if environment.launched() is not None else _meet(None)
        _process_world = World(met.launch if met is not None else environment.launch(), met, assigned=False)
    if len(_process_world.hosted) > 1:
        raise LaunchError(
            f"thread {threading.current_thread().name!r} belongs to none of the ranks "
            f"{list(_process_world.launch.ranks)} that this process hosts; call from a rank's own thread, "
            "and start programs with several ranks in a process through ddprun"
        )
    return _process_world.hosted[0]


def join(asked: Asked | None) -> HostedRank:
    """The rank that is calling, in the world that `asked`, or the environment, names; for None as in `current`.

    Who was started as a rank of a job, by ddprun, MPI or `spawn`, is one, unless another world is named and a place to
    meet it: a process of `spawn` may, and the only rank of a job. What a rank of ddprun's has started is none.
    After `World.leave` ranks meet anew.
    """
    global _process_world
    if rank_local.bound() is not None:
        return current()
    before = _process_world
    if before is not None and (before.left or before.pid != os.getpid()):
        before = None
    if before is not None and before.met is not None:
        return current()
    started = None if environment.started_by_rank() else environment.launched()
    job = before.launch if before is not None and before.assigned else started
    if job is not None:
        free = started is None or job.world_size == 1
        if asked is None or not free or not _elsewhere(asked, job):
            return current()
    met = _meet(asked)
    if before is None or met is not None:
        for hosted in before.hosted if before is not None else ():
            progress.end(hosted.rank)
        # What `launched` says to a process that a rank has started is that rank's.
        alone = Launch() if environment.started_by_rank() else environment.launch()
        _process_world = World(met.launch if met is not None else alone, met, assigned=False)
    return current()


def settled() -> bool:
    """Whether a launcher has started this process as the ranks that it is, and no program has said otherwise since."""
    if rank_local.bound() is not None:
        return True
    launch = None if environment.started_by_rank() else environment.launched()
    # A program that makes itself one of several sets WORLD_SIZE, of which `launched` reads.
    return launch is not None and launch.procs == launch.world_size


def _elsewhere(asked: Asked, job: Launch) -> bool:
    """Whether `asked` names another world than `job`, and where to meet it."""
    numbers = (asked.rank, asked.world_size)
    if numbers == (-1, -1) and job.world_size == 1:
        # They are what the launcher has said, unless the program has set others.
        numbers = environment.rank_and_size()
    same = numbers[0] in (-1, job.ranks.start) and numbers[1] in (-1, job.world_size)
    return not same and asked.names_a_place


def _meet(asked: Asked | None) -> Met | None:
    """Meet the other ranks, if `asked` or the environment names a place."""
    if asked is None and not environment.rendezvous():
        return None
    from ..rendezvous import meeting

    return meeting.meet(asked or meeting.Asked())


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


def _watched(port: Port) -> Port:
    """`port`, or one that also records how long its collectives take, if somebody records."""
    if not spans.recorders:
        return port
    from ..trace import recorder

    return recorder.watched(port)

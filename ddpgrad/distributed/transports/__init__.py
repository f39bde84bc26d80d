"""Transports carry collectives between processes. `choose` takes the fastest that reaches all of them.

virtual   all ranks live in this process
shm       processes of one host meet in shared memory; needs no MPI library
mpi       processes anywhere, through an MPI library
hierarchical   several hosts: shared memory within each, MPI between them
nccl      GPUs, one for each rank; beside one of the others, which carries the rest

All add ranks in the order of `tree` and so give the same bits.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from ...core import environment
from ...core.environment import Launch
from ...core.errors import TransportError
from .base import Transport, limit

NAMES = ("virtual", "shm", "mpi", "hierarchical", "nccl")
SHM_OR_MPI = "shm,mpi"
"""Asks for 'shm' where the host has room for it, and for 'mpi' where not."""


def choose(launch: Launch, backend: str | None = None) -> str:
    """The name of the transport for `launch`: the one asked for, or the fastest that reaches everyone.

    A name in `backend` goes before DDPGRAD_TRANSPORT. Under an MPI launcher this starts MPI
    and is collective. Raises TransportError if the transport cannot join these processes.
    """
    wanted = backend or environment.transport()
    if wanted is not None and wanted not in (*NAMES, SHM_OR_MPI):
        where = "" if backend else " in the environment variable DDPGRAD_TRANSPORT"
        raise TransportError(
            f"unknown transport {wanted!r}{where}; expected one of {', '.join(NAMES)}, or {SHM_OR_MPI!r}"
        )
    if wanted == "nccl":
        return "nccl"
    if launch.procs == 1:
        return "virtual"
    if wanted == "virtual":
        raise TransportError(
            f"transport 'virtual' joins the ranks of one process, and this job has {launch.procs} processes; "
            "start it with `ddprun --procs 1`, or ask for 'shm' or 'mpi'"
        )
    if wanted == "mpi":
        return "mpi"
    if launch.mpi:
        from . import hierarchical
        from .mpi import library as mpi_world
        from .shm import segments
        from .shm import transport as shm

        hosts = mpi_world.hosts(launch)
        several = hierarchical.suits(launch, hosts)
        if wanted == "hierarchical" and not several and launch.group is None:
            raise TransportError(
                "transport 'hierarchical' joins several hosts that have as many processes each, numbered host "
                f"by host, and more ranks than hosts; here the hosts have the processes {hosts}. Ask for 'mpi' or for none"
            )
        if wanted != "shm" and len(hosts) > 1 and not several:
            return "mpi"
        if wanted == "shm" and len(hosts) > 1:
            raise TransportError(
                f"transport 'shm' joins processes of one host, and this job runs on {len(hosts)} hosts; "
                "ask for 'mpi' or for none"
            )
        # Known to all before any waits for another in memory that is not there.
        needed, room = shm.bytes_needed(launch), segments.available()
        spare = mpi_world.least(launch, room - needed)
        if spare < 0:
            if wanted == SHM_OR_MPI:
                return "mpi"
            raise TransportError(segments.out_of_room(needed, needed + spare))
        return "hierarchical" if several else "shm"
    if wanted == "hierarchical":
        raise TransportError(
            "transport 'hierarchical' needs an MPI job: start it with `ddprun --mpi` or mpirun"
        )
    return "shm"


def connect(launch: Launch, name: str, timeout: float | None = None, meeting: str = "0") -> Transport:
    """Join the processes of `launch` by the transport `name` (collective between processes).

    timeout   seconds that a collective may wait for others; None: DDPGRAD_TIMEOUT
    meeting   a name that these processes have given no other transport
    """
    if name == "virtual":
        from .local import LocalTransport

        return LocalTransport(launch, timeout)
    if name == "nccl":
        from .nccl import NcclTransport

        # The environment asks for this transport, and not for the one under it.
        below = choose(launch, None if environment.transport() != "nccl" else SHM_OR_MPI)
        return NcclTransport(launch, connect(launch, below, timeout, meeting))
    if name == "mpi":
        from .mpi.transport import MpiTransport

        return MpiTransport(launch, timeout)
    if name == "hierarchical":
        from .hierarchical import HierarchicalTransport

        return HierarchicalTransport(launch, timeout, job=f"{_job(launch)}-{meeting}")
    from .shm.transport import ShmTransport

    return ShmTransport(launch, timeout, job=f"{_job(launch)}-{meeting}")


def connect_group(launch: Launch, backend: str | None, timeout: float | None, meeting: str) -> Transport:
    """Join the processes of the group `launch` by the transport that `choose` gives; else as `connect`."""
    making: AbstractContextManager[None] = nullcontext()
    if launch.mpi and launch.procs > 1:
        from .mpi import turns

        making = turns.turn(launch, limit(timeout))
    with making:
        return connect(launch, choose(launch, backend), timeout, meeting)


def ranks_on_this_host(launch: Launch) -> list[int]:
    """All ranks that run on this host. Under an MPI launcher this is collective."""
    if not launch.mpi or launch.procs == 1:
        return list(range(launch.world_size))
    from .mpi import library as mpi_world

    here = next(procs for procs in mpi_world.hosts(launch) if launch.proc in procs)
    return [rank for proc in here for rank in launch.block(proc)]


def why_no_nccl() -> str | None:
    """The reason why the transport 'nccl' cannot be used in this process; None if it can."""
    from . import nccl

    return nccl.missing()


def mpi_available() -> bool:
    """True when an MPI library can be loaded."""
    from .mpi import library as mpi_world

    return mpi_world.available()


def abort(code: int, delay: float) -> None:
    """End all processes of an MPI job after `delay` seconds, in which output reaches the screen."""
    from .mpi import library as mpi_world

    mpi_world.abort(code, delay)


def finalize(launch: Launch) -> None:
    """End MPI in a process that ends without the interpreter's help, if `launch` is of an MPI job."""
    if launch.mpi:
        from .mpi import library as mpi_world

        mpi_world.finalize()


def _job(launch: Launch) -> str:
    if launch.job is not None:
        return launch.job
    if launch.mpi:
        from .mpi import library as mpi_world

        return mpi_world.shared_token(launch)
    raise TransportError(
        "DDPGRAD_JOB is not set: processes of one host meet in shared memory under the name of their job. "
        "Start them with ddprun, or set the same random DDPGRAD_JOB for all."
    )

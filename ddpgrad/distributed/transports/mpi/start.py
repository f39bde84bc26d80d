"""Starts MPI, in which this process waits for all others of its job, and ends it where that wait has no end.

MPI itself waits for ever for a process that has ended without it, in native code and holding the interpreter lock.
Here the lock is released, so that a thread can watch: the time, and the processes that mpiexec or srun started on
this host. Under ddprun the launcher sees the end of other processes before (`progress.meeting_observer`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ....core import environment
from ... import mpi_shared_memory
from ...protocol import guard, progress
from .. import process_monitor
from ..base import limit

# Between two looks at the others, and between the end of one of them and the end of this process.
_LOOK_S = 0.25
_GRACE_S = 5.0


def start(MPI: Any) -> None:
    """Start the library behind `MPI`, the module `mpi4py.MPI`, for calls from any thread."""
    launch = environment.launch()
    begin = ctypes.CDLL(MPI.__file__).MPI_Init_thread
    seconds = limit(None)
    with progress.meeting("start of MPI", seconds):
        # Where a launcher is told of the meeting, it knows who has not come, and ends the job first.
        watch = (
            _Watch(seconds + _GRACE_S * (progress.meeting_observer is not None))
            if launch.procs > 1
            else contextlib.nullcontext()
        )
        with watch:
            code = begin(None, None, int(MPI.THREAD_MULTIPLE), ctypes.byref(ctypes.c_int()))
            if code == MPI.SUCCESS and "MPICH" in MPI.Get_library_version():
                MPI.COMM_WORLD.Barrier()  # all have mapped its memory now, and a name would outlive a killed process
                mpi_shared_memory.remove_mapped()
    if code != MPI.SUCCESS:
        raise RuntimeError(f"MPI_Init_thread failed with code {code}: {MPI.Get_error_string(code)}")


class _Watch:
    """While it is entered, a thread ends this process when its wait for the others has no end."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._met = threading.Event()
        self._main = threading.get_ident()
        self._thread = threading.Thread(target=self._run, name="ddpgrad start of MPI", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._met.set()
        self._thread.join()

    def _run(self) -> None:
        deadline = time.monotonic() + self._limit
        neighbours = _Neighbours()
        missed_at, gone = None, None
        while not self._met.wait(_LOOK_S):
            now = time.monotonic()
            if missed_at is None:
                gone = neighbours.gone()  # those that end after the first do so because of it
                missed_at = None if gone is None else now
            elif now > missed_at + _GRACE_S:
                self._end(f"{guard.named(gone) if gone else 'one'} of this host has ended", gone or ())
            if now > deadline:
                self._end(f"not all of them have come within {self._limit:g} s (DDPGRAD_TIMEOUT)")

    def _end(self, why: str, gone: Sequence[str] = ()) -> None:
        rank = environment.launch().ranks.start
        stack = "".join(traceback.format_stack(sys._current_frames()[self._main]))
        sys.stderr.write(
            f"Stack (most recent call last):\n{stack}rank {rank} waits for all ranks to start MPI, and {why}. "
            "Every rank calls init_process_group, or none does.\n"
        )
        if gone:
            what = f"ddpgrad: {guard.named(gone)} failed (ended while others wait to meet it); all ranks were ended.\n"
            sys.stderr.write(what)
        sys.stderr.flush()
        mpi_shared_memory.remove_mapped()
        os._exit(1)


class _Neighbours:
    """The processes that mpiexec or srun has started on this host: the children of the one that started this one."""

    def __init__(self) -> None:
        self._pids: dict[str, int] = {}
        self._size = 0
        placed, mine = environment.local_rank_and_size(), _rank_of(pid := os.getpid())
        if placed is None or mine is None:
            return
        # Between mpiexec's process and this one there may be a shell, or a tool such as a profiler.
        while _rank_of(parent := int(process_monitor.status(pid)[1])) == mine:
            pid = parent
        with contextlib.suppress(OSError):  # another user's
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
            found = {_rank_of(int(child)): int(child) for child in children}
            self._pids = {rank: child for rank, child in found.items() if rank is not None}
            self._size = placed[1] if mine in self._pids else 0

    def gone(self) -> list[str] | None:
        """The ranks that have ended, as far as their numbers are known; None if none has, or that cannot be told."""
        alive = {rank for rank, pid in self._pids.items() if not process_monitor.has_ended(pid)}
        if len(alive) >= self._size:
            return None
        known = {*self._pids}  # of some that ended before, only where all ranks are here
        if self._size == environment.launch().world_size:
            known.update(map(str, range(self._size)))
        return sorted(known - alive, key=int)


def _rank_of(pid: int) -> str | None:
    """The rank that MPI's launcher gave to the process `pid`; None for a process of no rank, or of another user."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    pairs = (word.decode(errors="replace").partition("=") for word in words)
    given = {name: value for name, _, value in pairs}
    return next((given[rank] for rank, _ in environment.MPI_VARIABLES if rank in given), None)

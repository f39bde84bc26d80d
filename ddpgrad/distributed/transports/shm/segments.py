"""Segments of shared memory. Their names live only until all processes have mapped them.

The segments are what the standard library's `shared_memory` makes, opened without its
resource tracker: a tracker is one more process per rank, and it reports segments as leaked
that another rank has removed rightly. A segment's name is removed as soon as every process
has mapped it, so that nothing stays behind even if all of them are killed.
"""

from __future__ import annotations

import errno
import mmap
import os
import platform
import re
import stat
import tempfile
import time

from ....core.errors import TransportError

_FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
_OPEN_FLAGS = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


def path_of(job: str, name: str) -> str:
    """Where the segment `name` of `job` lies. Raises TransportError for a job that is no plain word."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,80}", job):
        raise TransportError(f"DDPGRAD_JOB must be a word of letters, digits, '-' and '_', got {job!r}")
    return os.path.join(_FOLDER, f"ddpgrad-{job}-{name}")


def identity() -> str:
    """The same word in all processes that can meet in shared memory: of one kernel, with one folder for it."""
    boot = ""
    if os.path.exists("/proc/sys/kernel/random/boot_id"):
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    return f"{boot or platform.node()}-{os.stat(_FOLDER).st_dev}"


def available() -> int:
    """Bytes that new segments may take on this host."""
    usage = os.statvfs(_FOLDER)
    return usage.f_bavail * usage.f_frsize


def create(path: str, size: int, sparse: int = 0) -> mmap.mmap:
    """A new segment of `size` zero bytes. Raises TransportError if there is not enough room.

    sparse: bytes behind those, for which no room is needed yet (see `take`).
    """
    room = available()
    if size > room:
        raise TransportError(out_of_room(size, room))
    try:
        handle = os.open(path, _OPEN_FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise TransportError(
            f"shared memory {path} exists already: another job has the same DDPGRAD_JOB, or one was killed "
            "while it started. Take a new DDPGRAD_JOB, or remove the file."
        ) from None
    except OSError as error:
        raise TransportError(f"cannot create shared memory {path}: {error.strerror}") from None
    try:
        os.ftruncate(handle, size + sparse)
        return mmap.mmap(handle, size + sparse)
    finally:
        os.close(handle)


class NothingThere(TransportError):
    """Nobody has made the segment."""


def attach(path: str, size: int, patience: float = 0.0) -> mmap.mmap:
    """The segment that another process made at `path`; waits up to `patience` seconds for it."""
    deadline = time.monotonic() + patience
    while True:
        try:
            handle = os.open(path, _OPEN_FLAGS)
        except FileNotFoundError:
            found = None
        except OSError as error:
            raise TransportError(f"cannot open shared memory {path}: {error.strerror}") from None
        else:
            try:
                status = os.fstat(handle)
                found = status.st_size
                if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                    raise TransportError(f"shared memory {path} belongs to another user")
                if found == size:
                    return mmap.mmap(handle, size)
            finally:
                os.close(handle)
        # Its maker opens it first and sizes it then: an empty one is not ready yet.
        if found or time.monotonic() >= deadline:
            raise (NothingThere if found is None else TransportError)(
                f"shared memory {path}: expected {size} bytes, found {'none' if found is None else found}. "
                "The processes of this job do not share a host, or differ in WORLD_SIZE or DDPGRAD_PROCS."
            )
        time.sleep(0.001)


def open_again(path: str) -> int:
    """A descriptor of a segment, for `take` after its name is gone."""
    return os.open(path, _OPEN_FLAGS)


def is_touched(handle: int, start: int, size: int) -> bool:
    """Whether a part of a segment may have been written to. Reading it would take memory for it."""
    try:
        return os.lseek(handle, start, os.SEEK_DATA) < start + size
    except OSError:  # from there on there is nothing
        return False


def reserve(path: str, start: int, size: int) -> None:
    """Take memory for a part of a segment now, instead of a bus error at the first write.

    Raises TransportError if there is not enough.
    """
    handle = open_again(path)
    try:
        take(handle, start, size)
    finally:
        os.close(handle)


def take(handle: int, start: int, size: int) -> None:
    """As `reserve`, for a segment that is open."""
    if size == 0 or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(handle, start, size)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise TransportError(out_of_room(size, available())) from None


def remove(path: str) -> None:
    """Remove the name; mapped memory stays until its last user goes."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def out_of_room(wanted: int, room: int) -> str:
    """The error text where shared memory does not suffice."""
    return (
        f"not enough shared memory in {_FOLDER}: {wanted} bytes wanted, {room} available. Enlarge it "
        "(Docker: `--shm-size`; Kubernetes: an emptyDir of medium Memory), free it, or start with "
        "`ddprun --mpi` and DDPGRAD_TRANSPORT=mpi (or 'shm,mpi': mpi where there is too little of it)."
    )

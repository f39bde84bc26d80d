"""Locks a folder for one job: of checkpoints, or of a run. A second job is refused, since it would delete the first one's work."""

from __future__ import annotations

import fcntl
import os
import warnings
from pathlib import Path
from weakref import WeakValueDictionary

from ddpgrad.core.errors import CheckpointError


class FolderLock:
    """The right of this process to write into a folder, until this object is gone or the process has ended."""

    _descriptor = -1

    def __init__(self, folder: Path) -> None:
        # The folder itself is locked, so that no lock file stays behind.
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(
                f"{folder}: another job writes there; choose another folder, or wait for its end"
            ) from None
        except OSError as error:  # some network file systems cannot
            warnings.warn(f"{folder} cannot be locked ({error}): let no other job write there", stacklevel=2)

    def release(self) -> None:
        """Give up the right; without effect after the first time."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()


_held: WeakValueDictionary[tuple[int, int], FolderLock] = WeakValueDictionary()


def of(folder: Path) -> FolderLock:
    """The lock of `folder`, the same for all in this process. CheckpointError if another process has it."""
    status = os.stat(folder)
    key = (status.st_dev, status.st_ino)
    found = _held.get(key)
    if found is None:
        found = _held[key] = FolderLock(folder)
    return found


def _leave() -> None:
    """A child of this process, such as a loader's worker, may outlive it, and would keep the folder from who comes next."""
    for lock in list(_held.values()):
        lock.release()


os.register_at_fork(after_in_child=_leave)

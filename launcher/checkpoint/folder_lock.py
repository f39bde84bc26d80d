"""Locks a folder of checkpoints for one job. A second job is refused, since it would delete the first one's work."""

from __future__ import annotations

import fcntl
import os
import warnings
from pathlib import Path
from weakref import WeakValueDictionary

from ddpgrad.core.errors import CheckpointError


class FolderLock:
    """The right of this process to write into a folder, until this object is gone or the process has ended."""

    def __init__(self, folder: Path) -> None:
        # The folder itself is locked, so that no lock file stays behind.
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(
                f"{folder}: another job saves its checkpoints there; choose another folder, or wait for its end"
            ) from None
        except OSError as error:  # some network file systems cannot
            warnings.warn(
                f"{folder} cannot be locked ({error}): let no other job save its checkpoints there",
                stacklevel=2,
            )

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


_held: WeakValueDictionary[tuple[int, int], FolderLock] = WeakValueDictionary()


def of(folder: Path) -> FolderLock:
    """The lock of `folder`, the same for all in this process. CheckpointError if another process has it."""
    status = os.stat(folder)
    key = (status.st_dev, status.st_ino)
    found = _held.get(key)
    if found is None:
        found = _held[key] = FolderLock(folder)
    return found

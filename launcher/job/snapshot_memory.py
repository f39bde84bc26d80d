"""Memory of the launcher in which the ranks of a job keep snapshots of their state for the next attempt.

It is a file without a name (Linux's memfd), which the ranks open through the launcher's entry in /proc. So it takes
nothing of /dev/shm, whose size it does not share, and is gone with the launcher and the ranks, however they end.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from typing import IO

from ddpgrad.core.errors import CheckpointError


@contextlib.contextmanager
def made(wanted: bool) -> Iterator[str]:
    """Memory as long as the job lasts; yields its address, for `opened`. '' where it is not wanted or there is none."""
    if not wanted or sys.platform != "linux":
        yield ""
        return
    name = f"ddpgrad-{secrets.token_hex(6)}"
    memory = os.memfd_create(name)
    try:
        yield f"{os.getpid()}:{memory}:{name}"
    finally:
        os.close(memory)


def opened(address: str) -> IO[bytes]:
    """The memory at `address`, as a file with a position of its own; CheckpointError where it cannot be reached."""
    pid, descriptor, name = address.split(":")
    path = f"/proc/{pid}/fd/{descriptor}"
    try:
        # On another host, or in another container, the number may belong to another process.
        if os.readlink(path) == f"/memfd:{name} (deleted)":
            return open(path, "r+b", buffering=0)
    except OSError as error:
        raise CheckpointError(f"the launcher's memory cannot be opened: {error}") from None
    raise CheckpointError("the launcher's memory cannot be opened: this process runs on another host")

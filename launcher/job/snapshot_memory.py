"""Memory in which the ranks of a job keep snapshots of their state for the next attempt.

It is a file without a name (Linux's memfd), which ranks open through its owner's entry in /proc. So it takes nothing of
/dev/shm, whose size it does not share, and is gone with its owner and the ranks, however they end. Its owner is the
launcher or, in a job over several hosts, the keeper of each host (keeper.py).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from ddpgrad.core.errors import CheckpointError

from .listener import Listener
from .plan import Plan


@dataclass(frozen=True)
class Memory:
    """The memory of this host."""

    file: IO[bytes]
    """With a position of its own."""
    place: str = ""
    """Where ranks of other hosts reach it, for `keeper.Remote`; '' where the job has one host."""


@contextlib.contextmanager
def made(plan: Plan, selector: selectors.BaseSelector) -> Iterator[str]:
    """Memory as long as the job of `plan` lasts; yields its address, for `opened`. '' where nothing would read it."""
    if plan.max_restarts == 0 or sys.platform != "linux":
        yield ""
        return
    with contextlib.ExitStack() as stack:
        if plan.hosts or plan.nnodes > 1:  # in Slurm on one host, what a step starts may end with it
            # Keepers connect, and end when the launcher does.
            held = stack.enter_context(contextlib.ExitStack())
            listener = Listener(plan, selector, lambda fd, pid: held.callback(os.close, fd))
            stack.callback(listener.close)
            yield listener.address
        else:
            address, descriptor = new()
            stack.callback(os.close, descriptor)
            yield address


def new() -> tuple[str, int]:
    """Memory of this process: its address, as others of this host need it, and its descriptor."""
    name = f"ddpgrad-{secrets.token_hex(6)}"
    descriptor = os.memfd_create(name)
    return f"{os.getpid()}:{descriptor}:{name}", descriptor


def opened(address: str) -> Memory:
    """This host's memory of the job with `address`; CheckpointError where it cannot be reached."""
    try:
        if not address.startswith("tcp:"):
            return Memory(_opened(address))
        from . import keeper  # which this module's other users, launchers, do without

        found, place = keeper.on_this_host(address)
        return Memory(_opened(found), place)
    except OSError as error:
        raise CheckpointError(f"the memory for snapshots cannot be reached: {error}") from None


def _opened(address: str) -> IO[bytes]:
    pid, descriptor, name = address.split(":")
    path = f"/proc/{pid}/fd/{descriptor}"
    # In another container the number may belong to another process.
    if os.readlink(path) != f"/memfd:{name} (deleted)":
        raise OSError(f"process {pid} does not hold it: it may be one of another container")
    return open(path, "r+b", buffering=0)

"""`meet`: the ranks that nobody started together become a world."""

from __future__ import annotations

import contextlib
import time

from ...core.environment import Launch
from ..store import DistStoreError, Store
from ..transports.process_monitor import pid_namespace
from . import gathering
from .gathering import Roster
from .place import Asked, Place, place

__all__ = ["Asked", "Met", "meet"]


class Met:
    """A world whose ranks have met: `launch` is what ddprun would have said of this process."""

    def __init__(self, place: Place, roster: Roster, store: Store, several_hosts: bool) -> None:
        self.launch = Launch(
            place.world_size,
            place.world_size,
            place.rank,
            None if several_hosts else roster.token,
            several_hosts,
        )
        self.token = roster.token
        self.local_rank = place.local_rank
        self._place, self._roster, self.store = place, roster, store

    @property
    def peers(self) -> dict[int, int]:
        """The process numbers of the other ranks of this host, as far as they mean something here."""
        me = next(entry for entry in self._roster.here if entry.rank == self._place.rank)
        return {
            entry.rank: entry.pid
            for entry in self._roster.here
            if entry != me and entry.namespace == pid_namespace()
        }

    def all_joined(self) -> None:
        """All ranks have read who is there: tidy up."""
        if self._place.rank == 0:
            gathering.clean(self._place, self.store, self._roster)
            self._place.remove()

    def leave(self) -> None:
        """This rank leaves the world, and may meet others anew."""
        if self._place.rank == 0 and self._place.served:
            with contextlib.suppress(DistStoreError):
                gathering.forget(self.store)


def meet(asked: Asked) -> Met | None:
    """Meet the other ranks where `asked`, or the environment, says; None if nothing names a world of several.

    Raises ValueError for a place that is named in part, LaunchError where ranks contradict each other, and
    TransportError if some do not come in time.
    """
    where = place(asked)
    if where is None or where.world_size == 1:
        return None
    until = time.monotonic() + asked.seconds
    try:
        roster, store = gathering.gather(where, until)
        several = roster.hosts > 1
        if several:
            from . import mpi_world

            mpi_world.begin(where, roster, store, until)
    except BaseException:
        where.close()
        raise
    return Met(where, roster, store, several)

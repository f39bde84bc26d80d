"""The transport for several hosts: shared memory within each, MPI between them.

Only large sums go this way; everything else is the MPI transport's. Each process adds its
share of the elements over the ranks of its host, in shared memory. Then the processes that
have the same share, one on each host, exchange what their hosts have: each adds a part of the
share in the order of `tree` and gives it to the others. So between hosts go the bytes of a
ring over hosts, all processes use the network at once, and the bits are those of every other
transport. Work that nobody waits for yet is done by the MPI transport's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.environment import Launch
from ...core.errors import TransportError
from ..protocol import tree
from .base import rests
from .calls import Allocate, Reduce
from .mpi import library
from .mpi.exchange import MESSAGE, Exchange
from .mpi.transport import SMALL, MpiTransport
from .shm.transport import ShmTransport


def suits(launch: Launch, hosts: Sequence[Sequence[int]]) -> bool:
    """True for several hosts with as many processes each, numbered one host after the other, and several ranks."""
    in_order = [proc for host in hosts for proc in host] == list(range(launch.procs))
    alike = len(hosts) > 1 and len({len(host) for host in hosts}) == 1
    return launch.group is None and in_order and alike and launch.world_size > len(hosts)


class HierarchicalTransport(MpiTransport):
    """Joins processes of several hosts; see `suits`."""

    name = "hierarchical"

    def __init__(self, launch: Launch, timeout: float | None, job: str) -> None:
        super().__init__(launch, timeout)
        hosts = library.hosts(launch)
        index, place = next(
            (h, host.index(launch.proc)) for h, host in enumerate(hosts) if launch.proc in host
        )
        ranks = [[rank for proc in host for rank in launch.block(proc)] for host in hosts]
        here = launch.subset(ranks[index])
        peers = launch.subset([rank for host in hosts for rank in launch.block(host[place])])
        assert here is not None and peers is not None
        self._host = ShmTransport(here, timeout, f"{job}-{index}", max(map(len, ranks)))
        rests(self._host)  # the thread that carries its sums calls MPI: no other is to move them on
        world = launch.world_size
        frontiers = [tree.frontier(members[0], members[-1] + 1, world) for members in ranks]
        self._peers = Exchange(library.communicator(peers))
        self._bridge = _Bridge(self._mpi, self._peers, self._comm, frontiers, index, world)

    def fail(self, rank: int, reason: str, secondary: bool) -> None:
        self._host.fail(rank, reason, secondary)
        super().fail(rank, reason, secondary)

    def close(self) -> None:
        super().close()
        self._host.close()

    def _allocate(self, calls: Sequence[Allocate]) -> None:
        refused = None
        try:
            self._host.allocate(calls)
        except TransportError as error:
            refused = error
        if not self._bridge.all_direct(refused is None):
            raise refused or TransportError(
                "another host has not enough shared memory; see the message there"
            )

    def _reduce(self, calls: Sequence[Reduce]) -> None:
        if calls[0].array.nbytes <= SMALL:
            super()._reduce(calls)
            return
        self._host.timeout = self.timeout
        self._peers.gently = self._exchange.gently
        self._host.bridged(calls, self._bridge)


class _Bridge:
    """Joins the sum of one share with those of the processes that have the same share on other hosts.

    frontiers: for each host, the parts of the tree that its ranks make.
    """

    def __init__(
        self,
        library: Any,
        peers: Exchange,
        everyone: Any,
        frontiers: list[list[range]],
        host: int,
        world: int,
    ) -> None:
        self._mpi, self._peers, self._everyone = library, peers, everyone
        self._frontiers, self._host, self._world = frontiers, host, world

    def all_direct(self, here: bool) -> bool:
        agreed = np.array([here], np.uint8)
        self._everyone.Allreduce(self._mpi.IN_PLACE, agreed, op=self._mpi.MIN)
        return bool(agreed[0])

    def reduce(self, pieces: Sequence[np.ndarray], op: str) -> None:
        length = len(self._frontiers) * MESSAGE // tree.wide_dtype(pieces[0].dtype).itemsize
        for start in range(0, pieces[0].size, length):
            self._reduce([piece[start : start + length] for piece in pieces], op)

    def _reduce(self, pieces: Sequence[np.ndarray], op: str) -> None:
        dtype, wide = pieces[0].dtype, tree.wide_dtype(pieces[0].dtype)
        hosts = len(self._frontiers)
        shares = [tree.share(pieces[0].size, hosts, host) for host in range(hosts)]
        mine = self._frontiers[self._host]
        first = mine[0].start
        # One after the other for each host: its share of each part that this host makes.
        out = np.empty(len(mine) * pieces[0].size, wide)
        for low, high in shares:
            for i, part in enumerate(mine):
                at = len(mine) * low + i * (high - low)
                arrays = [pieces[rank - first][low:high] for rank in part]
                tree.partial_into(out[at : at + high - low], arrays, op)
        low, high = shares[self._host]
        length = high - low
        counts = [len(parts) * length for parts in self._frontiers]
        received = np.empty(sum(counts), wide)
        self._peers.all_to_all(
            self._bytes(out, [len(mine) * (stop - start) for start, stop in shares]),
            self._bytes(received, counts),
        )
        parts = [part for frontier in self._frontiers for part in frontier]
        rows = {part: received[i * length : (i + 1) * length] for i, part in enumerate(parts)}
        result = np.empty(pieces[0].size, dtype)
        tree.join_into(result[low:high], rows, self._world, op)
        self._peers.all_gather(self._bytes(result, [stop - start for start, stop in shares]))
        for piece in pieces:
            piece[...] = result

    def _bytes(self, array: np.ndarray, counts: Sequence[int]) -> list[object]:
        """An array as MPI takes it: bytes, since MPI has no name for every dtype."""
        sizes = [count * array.itemsize for count in counts]
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        return [array.view(np.uint8), sizes, starts, self._mpi.BYTE]

"""The store of rank 0 over a simulated network, and the meeting of ranks in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from simulation import Simulation, replaced

from ddpgrad.distributed import store as stores
from ddpgrad.distributed.protocol import plain_data
from ddpgrad.distributed.rendezvous import gathering
from ddpgrad.distributed.rendezvous.place import Place

_LENGTH = 4


class Server:
    """Keeps the table in process 0, which answers one request after the other."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self._table = stores.Table()
        self.depths: dict[int, int] = {}

    def ask(self, command: str, *arguments: Any) -> Any:
        """Carry out a command for the process that calls."""
        simulation, me, answers = self.simulation, self.simulation.me, []
        request = plain_data.encode([command, *arguments])

        def serve(depth: int) -> None:
            answer = plain_data.encode(self._table.run(*plain_data.decode(request)))
            simulation.send(0, me, len(answer) + _LENGTH, lambda _: take(answer, depth + 1))

        def take(answer: bytes, depth: int) -> None:
            self.depths[me] = depth
            answers.append(plain_data.decode(answer))
            simulation.wake(me)

        simulation.send(me, 0, len(request) + _LENGTH, serve)
        while not answers:
            simulation.sleep(60.0)
        simulation.learned(
            self.depths[me]
        )  # of the asking rank's own questions, which come one after the other
        return answers[0]


class SimulatedStore(stores.Store):
    """A client of it: what a TCPStore does but for the socket."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server

    def _do(self, command: str, *arguments: Any) -> Any:
        return self._server.ask(command, *arguments)


class _SimulatedPlace(Place):
    server: Server

    @property
    def served(self) -> bool:
        return True

    def _open(self, until: float) -> stores.Store:
        return SimulatedStore(self.server)


@contextmanager
def meeting(simulation: Simulation, ranks: int, ranks_per_host: int) -> Iterator[Any]:
    """`meet(rank)`: the ranks of a world find each other, as those under torchrun or Kubeflow do; its roster."""
    server = Server(simulation)

    def entry(place: Place) -> gathering.Entry:
        host, nonce = f"host{place.rank // ranks_per_host}", f"{place.rank:016x}"
        return gathering.Entry(place.rank, place.world_size, nonce, nonce, host, host, place.rank, 1)

    def meet(rank: int) -> gathering.Roster:
        place = _SimulatedPlace(rank, ranks, "the simulated store")
        object.__setattr__(place, "server", server)
        return gathering.gather(place, simulation.now + 3600)[0]

    with replaced(
        (gathering, {"time": simulation.clock, "_entry": entry}), (stores, {"time": simulation.clock})
    ):
        yield meet

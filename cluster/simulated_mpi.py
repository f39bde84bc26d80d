"""MPI as `ddpgrad` uses it, over a simulated network: messages of processes, and collectives made of them.

The collectives are those that MPI libraries use: Bruck's gather, a binomial tree for a broadcast, and messages to all for
all-to-all exchanges.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from simulation import Simulation, replaced

from ddpgrad.core.environment import Launch
from ddpgrad.distributed.protocol.progress import Waits
from ddpgrad.distributed.transports import mail as letters
from ddpgrad.distributed.transports.mpi import exchange, mail, roll_call, transport

_LOOK_S = 0.02
_COLLECTIVE_TAG = 1000


class Request:
    """One end of a message, once or, with `begin`, as often as it is started."""

    def __init__(self, world: World, begin: Callable[[Request], None]) -> None:
        self._world, self._begin = world, begin
        self.done = False
        self.depth = 0
        self.watch: _Watch | None = None

    def Start(self) -> None:
        self.done = False
        self._begin(self)

    def complete(self, depth: int = 0) -> None:
        self.done, self.depth = True, depth
        if self.watch is not None:
            self.watch.one_done()
            self.watch = None

    def Test(self) -> bool:
        return self._world.test([self])

    def Wait(self) -> None:
        while not self.Test():
            self._world.pause()

    def Cancel(self) -> None:
        self.complete()

    def Free(self) -> None:
        pass


class _Watch:
    """Wakes a process when so many of its requests are done."""

    def __init__(self, world: World, left: int) -> None:
        self._world, self._process, self.left = world, world.simulation.me, left

    def one_done(self) -> None:
        self.left -= 1
        if self.left == 0:
            self._world.simulation.wake(self._process)


class World:
    """What stands for the module `mpi4py.MPI`."""

    ANY_SOURCE = -1
    BYTE, IN_PLACE, THREAD_SERIALIZED = "BYTE", "IN_PLACE", 2
    Exception = type("MpiError", (Exception,), {})

    def __init__(self, simulation: Simulation, procs: int) -> None:
        self.simulation, self.procs = simulation, procs
        self._boxes: dict[tuple[int, int], _Box] = {}
        self.Request = self.Prequest = self

    def Query_thread(self) -> int:
        return self.THREAD_SERIALIZED

    @staticmethod
    def Status() -> Status:
        return Status()

    @staticmethod
    def Startall(requests: Sequence[Request]) -> None:
        for request in requests:
            request.Start()

    def Testall(self, requests: Sequence[Request]) -> bool:
        return self.test(requests)

    def test(self, requests: Sequence[Request]) -> bool:
        open_ones = [request for request in requests if not request.done]
        if open_ones:
            watch = _Watch(self, len(open_ones))
            for request in open_ones:
                request.watch = watch
            return False
        for request in requests:
            self.simulation.learned(request.depth)
        return True

    def pause(self) -> None:
        """Return when what was tested last is done, or after the time between two looks at the others."""
        self.simulation.sleep(_LOOK_S)

    def box(self, context: int, proc: int) -> _Box:
        found = self._boxes.get((context, proc))
        if found is None:
            found = self._boxes[context, proc] = _Box()
        return found

    def comm(self, context: int = 0) -> Comm:
        """The communicator of the process that asks."""
        return Comm(self, context, self.simulation.me)


class _Box:
    """What has come to a process in one communicator, and what it waits for, by (source, tag)."""

    def __init__(self) -> None:
        self.come: dict[tuple[int, int], deque[tuple[bytes, int]]] = defaultdict(deque)
        self.wanted: dict[tuple[int, int], deque[tuple[np.ndarray, Request]]] = defaultdict(deque)


class Status:
    source = -1

    def Get_source(self) -> int:
        return self.source


class Comm:
    """A communicator as one process has it."""

    def __init__(self, world: World, context: int, me: int) -> None:
        self._world, self._context, self.rank = world, context, me
        self.size = world.procs
        self._duplicates = 0
        self._collectives = 0

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Dup(self) -> Comm:
        self._duplicates += 1
        return Comm(self._world, 10 * self._context + self._duplicates, self.rank)

    def Free(self) -> None:
        pass

    # -- messages ------------------------------------------------------------------------

    def Send_init(self, data: np.ndarray, dest: int, tag: int = 0) -> Request:
        def begin(request: Request) -> None:
            content = np.ascontiguousarray(data).view(np.uint8).tobytes()

            def deliver(depth: int) -> None:
                box, key = self._world.box(self._context, dest), (self.rank, tag)
                if box.wanted.get(key):
                    buffer, receiving = box.wanted[key].popleft()
                    _fill(buffer, content)
                    receiving.complete(depth)
                else:
                    box.come[key].append((content, depth))

            self._world.simulation.send(self.rank, dest, len(content), deliver)
            request.complete()

        return Request(self._world, begin)

    def Recv_init(self, data: np.ndarray, source: int, tag: int = 0) -> Request:
        def begin(request: Request) -> None:
            box, key = self._world.box(self._context, self.rank), (source, tag)
            if box.come.get(key):
                content, depth = box.come[key].popleft()
                _fill(data, content)
                request.complete(depth)
            else:
                box.wanted[key].append((data, request))

        return Request(self._world, begin)

    def Isend(self, data: np.ndarray, dest: int, tag: int = 0) -> Request:
        request = self.Send_init(data, dest, tag)
        request.Start()
        return request

    def Irecv(self, data: np.ndarray, source: int, tag: int = 0) -> Request:
        request = self.Recv_init(data, source, tag)
        request.Start()
        return request

    def Improbe(self, tag: int, status: Status) -> Any:
        come = self._world.box(self._context, self.rank).come
        for (source, of), messages in come.items():
            if of == tag and messages:
                status.source = source
                return _Probed(self._world, *messages.popleft())
        return None

    # -- collectives ---------------------------------------------------------------------

    def _tag(self) -> int:
        self._collectives += 1
        return _COLLECTIVE_TAG + self._collectives

    def Ibcast(self, data: np.ndarray, root: int = 0) -> _Later:
        tag = self._tag()
        return _Later(lambda: self._bcast(data, root, tag))

    def Bcast(self, data: np.ndarray, root: int = 0) -> None:
        self.Ibcast(data, root).Wait()

    def _bcast(self, data: np.ndarray, root: int, tag: int) -> None:
        place, far = (self.rank - root) % self.size, 1
        while far < self.size and not place & far:
            far <<= 1
        if place:
            self.Irecv(data, (self.rank - far) % self.size, tag).Wait()
        while far := far >> 1:
            if place + far < self.size:
                self.Isend(data, (self.rank + far) % self.size, tag)

    def Allgather(self, mine: np.ndarray, rows: np.ndarray) -> None:
        width = mine.nbytes
        starts = [proc * width for proc in range(self.size)]
        self.Allgatherv([mine.view(np.uint8), ""], [rows.view(np.uint8), [width] * self.size, starts, ""])

    def Allgatherv(self, send: Sequence[Any], receive: Sequence[Any]) -> None:
        tag = self._tag()
        data, sizes, starts, _ = receive
        data = data.reshape(-1)

        def part(proc: int) -> np.ndarray:
            proc %= self.size
            return data[starts[proc] : starts[proc] + sizes[proc]]

        part(self.rank)[...] = send[0].reshape(-1)
        far = 1
        while far < self.size:
            count = min(far, self.size - far)
            self.Isend(
                np.concatenate([part(self.rank + i) for i in range(count)]),
                (self.rank - far) % self.size,
                tag,
            )
            sources = [self.rank + far + i for i in range(count)]
            rows = np.empty(sum(part(proc).size for proc in sources), np.uint8)
            self.Irecv(rows, (self.rank + far) % self.size, tag).Wait()
            for proc in sources:
                part(proc)[...], rows = rows[: part(proc).size], rows[part(proc).size :]
            far <<= 1

    def Ialltoallv(self, send: Sequence[Any], receive: Sequence[Any]) -> _Later:
        tag = self._tag()
        return _Later(lambda: self._alltoallv(send, receive, tag))

    def Alltoallv(self, send: Sequence[Any], receive: Sequence[Any]) -> None:
        self.Ialltoallv(send, receive).Wait()

    def _alltoallv(self, send: Sequence[Any], receive: Sequence[Any], tag: int) -> None:
        (out, sent, out_at, _), (into, received, into_at, _) = send, receive
        requests = []
        for far in range(self.size):
            to, source = (self.rank + far) % self.size, (self.rank - far) % self.size
            if received[source]:
                part = into[into_at[source] : into_at[source] + received[source]]
                requests.append(self.Irecv(part, source, tag))
            if sent[to]:
                requests.append(self.Isend(out[out_at[to] : out_at[to] + sent[to]], to, tag))
        while not self._world.test(requests):
            self._world.pause()


def _fill(buffer: np.ndarray, content: bytes) -> None:
    buffer.reshape(-1).view(np.uint8)[: len(content)] = np.frombuffer(content, np.uint8)


class _Probed:
    """A message that has come, for `Recv`."""

    def __init__(self, world: World, content: bytes, depth: int) -> None:
        self._world, self._content, self._depth = world, content, depth

    def Recv(self, data: np.ndarray) -> None:
        _fill(data, self._content)
        self._world.simulation.learned(self._depth)


class _Later:
    """A nonblocking collective, which moves when it is waited for."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run

    def Wait(self) -> None:
        self._run()

    def Test(self) -> bool:
        self._run()
        return True


@contextmanager
def joined(world: World) -> Iterator[Callable[[int], transport.MpiTransport]]:
    """Real MPI transports over `world`: the function makes that of the process that calls, which hosts one rank."""
    simulation = world.simulation

    class Patience:
        def __init__(self, spins: int = 0) -> None:
            pass

        def pause(self) -> None:
            world.pause()

    def make(proc: int) -> transport.MpiTransport:
        return transport.MpiTransport(Launch(world.procs, world.procs, proc, mpi=True))

    with replaced(
        (transport, {"library": lambda: world, "communicator": lambda launch: world.comm(), "time": simulation.clock,
                     "Patience": Patience, "waits": Waits()}),
        (roll_call, {"time": simulation.clock, "Patience": Patience}),
        (exchange, {"time": simulation.clock}),
        (mail, {"time": simulation.clock}),
        (letters, {"Patience": Patience}),
    ):  # fmt: skip
        yield make

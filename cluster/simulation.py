"""Many processes in virtual time: each runs real code in a thread, one at a time, and messages cost what a `Network` says.

    simulation = Simulation(Network())
    results = simulation.run(program, 10_000)     # program(i) as process i; what each returned
    simulation.seconds, simulation.busiest(), simulation.rounds()

Nothing here depends on the machine's speed: two runs give the same figures. What a process computes takes no time.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

_STACK_BYTES = 256 << 10


@dataclass(frozen=True)
class Network:
    """What a message costs: `latency` seconds under way, a byte at `rate`, and `handling` seconds at each of its ends.

    Sending, and receiving, one endpoint does one message after another: many messages to one make a queue.
    """

    latency: float = 10e-6
    rate: float = 12.5e9
    handling: float = 1e-6


@dataclass(eq=False)
class Endpoint:
    """A process's place in the network. depth: of the longest chain of messages that led to what it knows."""

    number: int
    sends_from: float = 0.0
    receives_from: float = 0.0
    messages: int = 0
    nbytes: int = 0
    depth: int = 0


@dataclass(eq=False)
class _Process:
    endpoint: Endpoint
    turn: threading.Lock = field(default_factory=threading.Lock)
    waits: int = 0
    """The number of its present wait; events of earlier ones are stale."""
    asleep: bool = False
    ended: float | None = None


class Simulation:
    """A network, its processes and its clock."""

    def __init__(self, network: Network | None = None) -> None:
        self.network = network or Network()
        self.now = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], _Process | None]]] = []
        self._processes: list[_Process] = []
        self._finished = threading.Lock()
        self._left = 0
        self._error: BaseException | None = None
        self._here = threading.local()
        self._began = 0.0
        self.clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)

    # -- what benchmarks ask -------------------------------------------------------------

    def run(self, program: Callable[[int], Any], procs: int) -> list[Any]:
        """Run `program(i)` as each process; their results. Raises what the first of them raised."""
        while len(self._processes) < procs:
            self._processes.append(_Process(Endpoint(len(self._processes))))
        results: list[Any] = [None] * procs
        self._left, self._began = procs, self.now
        before = threading.stack_size(_STACK_BYTES)
        try:
            for number, process in enumerate(self._processes[:procs]):
                process.turn.acquire()
                process.ended = None
                self._later(self.now, lambda process=process: process)
                threading.Thread(target=self._live, args=(program, number, results), daemon=True).start()
        finally:
            threading.stack_size(before)
        self._finished.acquire()
        self._give_turn(None)
        self._finished.acquire()
        self._finished.release()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return results

    @property
    def seconds(self) -> float:
        """Virtual seconds of the last `run`, until its last process ended."""
        return max(process.ended or 0.0 for process in self._processes) - self._began

    def busiest(self) -> Endpoint:
        """The endpoint that has sent and received the most messages since `forget`."""
        return max((process.endpoint for process in self._processes), key=lambda one: one.messages)

    def rounds(self) -> int:
        """The longest chain of messages, each sent when the one before had come, since `forget`."""
        return max(process.endpoint.depth for process in self._processes)

    def forget(self) -> None:
        """Count messages, bytes and rounds from here."""
        for process in self._processes:
            process.endpoint.messages = process.endpoint.nbytes = process.endpoint.depth = 0

    # -- what simulated transports ask ---------------------------------------------------

    @property
    def me(self) -> int:
        """The number of the process that asks."""
        return self._here.number

    def endpoint(self, number: int) -> Endpoint:
        return self._processes[number].endpoint

    def send(self, source: int, target: int, nbytes: int, deliver: Callable[[int], None]) -> None:
        """Send a message between two processes; `deliver(depth)` is called when it has been received."""
        self._send(self.endpoint(source), self.endpoint(target), nbytes, deliver)

    def _send(self, source: Endpoint, to: Endpoint, nbytes: int, deliver: Callable[[int], None]) -> None:
        network = self.network
        source.messages += 1
        source.nbytes += nbytes
        depth = source.depth + 1
        takes = network.handling + nbytes / network.rate
        source.sends_from = max(self.now, source.sends_from) + takes

        def arrive() -> None:
            to.receives_from = max(self.now, to.receives_from) + takes
            self._later(to.receives_from, received)

        def received() -> None:
            to.messages += 1
            to.nbytes += nbytes
            deliver(depth)

        self._later(source.sends_from + network.latency, arrive)

    def learned(self, depth: int) -> None:
        """The process that calls acts on a message of this depth."""
        mine = self.endpoint(self.me)
        mine.depth = max(mine.depth, depth)

    def sleep(self, seconds: float) -> None:
        """Return after so many virtual seconds, or when another has called `wake` for this process."""
        process = self._processes[self.me]
        process.waits += 1
        process.asleep = True
        number = process.waits
        self._later(
            self.now + seconds, lambda: process if process.asleep and process.waits == number else None
        )
        self._give_turn(process)

    def wake(self, number: int) -> None:
        """Let process `number` go on, if it sleeps."""
        process = self._processes[number]
        wait = process.waits
        if process.asleep:
            self._later(self.now, lambda: process if process.asleep and process.waits == wait else None)

    # -- turns ---------------------------------------------------------------------------

    def _later(self, when: float, event: Callable[[], _Process | None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), event))

    def _live(self, program: Callable[[int], Any], number: int, results: list[Any]) -> None:
        process = self._processes[number]
        process.turn.acquire()
        self._here.number = number
        try:
            results[number] = program(number)
        except BaseException as error:
            self._error = self._error or error
        process.turn.release()
        process.ended = self.now
        self._left -= 1
        if self._left == 0 or self._error is not None:
            self._finished.release()
        else:
            self._give_turn(None)

    def _give_turn(self, process: _Process | None) -> None:
        """Let time pass to the next process's turn; return when it is the turn of `process` again."""
        while True:
            if not self._events:
                self._error = self._error or RuntimeError("all processes wait for each other")
                self._finished.release()
                following = None
                break
            self.now, _, event = heapq.heappop(self._events)
            following = event()
            if following is not None:
                break
        if following is not None:
            following.asleep = False
            if following is process:
                return
            following.turn.release()
        if process is not None:
            process.turn.acquire()


@contextmanager
def replaced(*places: tuple[ModuleType, dict[str, Any]]) -> Iterator[None]:
    """The names of modules that stand for other things meanwhile."""
    with ExitStack() as stack:
        for module, names in places:
            stack.enter_context(mock.patch.multiple(module, **names))
        yield

"""Messages between processes of one host: a ring of bytes for each sending and receiving rank.

Only the sender writes a ring's bytes and its head, only the receiver its tail. A message is a
header and its bytes, as many at a time as there is room for; when it has come whole, it is
handed to `Letters`. The rings lie in one sparse segment, of which only what is used takes
memory.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from ....core.environment import Launch
from ....core.errors import DistributedError
from ...protocol import guard
from ..mail import ANY, EAGER, Delivery, Letters, Message
from .control import Control, order

# Head and tail are words two cache lines apart; then come the bytes.
_HEAD, _TAIL, _DATA = 0, 128, 256
_CAPACITY = EAGER + 4096
_RING = _DATA + _CAPACITY

# Tag, bytes, elements, the length of the text that tells of the call, and the text.
_HEADER = struct.Struct("<qqqq480s")


def room_for(world_size: int) -> int:
    """Bytes that the rings of a world take at most."""
    return world_size**2 * _RING


class Mailbox:
    """The rings of one job on one host, in the sparse bytes of its control page.

    Whoever waits moves all messages on, one thread at a time.
    """

    def __init__(
        self, launch: Launch, control: Control, letters: Letters, meanwhile: Callable[[], None]
    ) -> None:
        """meanwhile: what is done while a message is waited for."""
        self._launch, self._control, self._letters = launch, control, letters
        self._bytes = memoryview(control.map)
        self._words = self._bytes.cast("Q")
        self.timeout = float("inf")
        self._meanwhile = meanwhile
        self._outgoing: dict[int, tuple[deque[Delivery], Iterator[None]]] = {}
        self._incoming: dict[int, Iterator[None]] = {}
        self._begun: dict[int, deque[int]] = {}  # by the ring, where messages begin that may not be read yet
        self.moving = threading.Lock()

    def send(self, message: Message) -> Delivery:
        """Begin to write `message` into its ring."""
        sending = Delivery(message, message.source, self.progress)
        start = self._start(message.source, message.target)
        with self.moving:
            if start not in self._outgoing:
                self._control.take(start, _RING)
                queue: deque[Delivery] = deque()
                self._begun[start] = deque()
                self._outgoing[start] = queue, self._writing(start, queue)
            queue, writing = self._outgoing[start]
            queue.append(sending)
            next(writing)
        return sending

    def receive(self, message: Message) -> Delivery:
        """Take the first message that answers, or wait for it."""
        with self.moving:
            receiving = self._letters.receive(message, self.progress)
            if not receiving.done:
                for source in range(self._launch.world_size) if message.source == ANY else (message.source,):
                    start = self._start(source, message.target)
                    if source not in self._launch.ranks and start not in self._incoming:
                        self._control.take(start, _RING)  # looking at it takes memory too
                        self._incoming[start] = self._reading(start, source, message.target)
                self._move()
        return receiving

    def progress(self, waiting: Delivery) -> None:
        """Move all messages on, since others may wait for one of them; raise if `waiting` cannot come."""
        with self.moving:
            self._move()
        if waiting.done or waiting.error is not None:
            return
        self._meanwhile()
        message, launch = waiting.message, self._launch
        other = message.target if waiting.owner == message.source else message.source
        procs = [
            p for p in range(launch.procs) if p != launch.proc and (other == ANY or other in launch.block(p))
        ]
        waiting.began = waiting.began or time.monotonic()
        waits = {launch.world_rank(waiting.owner): message.fields}
        try:
            self._control.check_alive(procs, waits, all_needed=other != ANY)
            if time.monotonic() - waiting.began > self.timeout:
                ranks = [launch.world_rank(r) for p in procs for r in launch.block(p) if other in (ANY, r)]
                raise guard.stalled(dict.fromkeys(ranks, ()), waits, self.timeout)
        except DistributedError:
            with self.moving:
                self._move()  # what it wrote before it ended may have become visible just now
            if not waiting.done:
                raise

    def advance(self) -> None:
        """Move all messages on, unless another thread does."""
        if (self._outgoing or self._incoming) and self.moving.acquire(False):
            try:
                self._move()
            finally:
                self.moving.release()

    def take_what_is_left(self) -> None:
        """At the end: hand over what nobody has asked for, sent from here too, where its target has ended already."""
        launch = self._launch
        others = [rank for rank in range(launch.world_size) if rank not in launch.ranks]
        with self.moving:
            self._move()
            for target, source in ((target, source) for target in launch.ranks for source in others):
                start = self._start(source, target)
                if start not in self._incoming and self._control.is_touched(start, _RING):
                    next(self._reading(start, source, target))
            for start, (queue, _) in self._outgoing.items():
                source, target = divmod((start - self._control.sparse) // _RING, launch.world_size)
                owner = next(proc for proc in range(launch.procs) if target in launch.block(proc))
                read = self._words[(start + _TAIL) // 8]
                unread = [begun for begun in self._begun[start] if begun >= read]
                if unread and self._control.has_finished(owner):
                    next(self._reading(start, source, target, unread[0]))
                for sending in queue:  # the rest of it will never be written
                    self._letters.send(sending.message, owned=True)

    def _move(self) -> None:
        for _, writing in self._outgoing.values():
            next(writing)
        for reading in self._incoming.values():
            next(reading)

    def _start(self, source: int, target: int) -> int:
        return self._control.sparse + (source * self._launch.world_size + target) * _RING

    def _writing(self, start: int, queue: deque[Delivery]) -> Iterator[None]:
        """Write the messages in `queue` one after the other; yields when there is no more to write, or no room."""
        head = 0
        while True:
            while not queue:
                yield
            sending, begun = queue[0], self._begun[start]
            begun.append(head)
            while begun[0] < self._words[(start + _TAIL) // 8]:
                begun.popleft()
            for part in (_header(sending.message), sending.message.array.view(np.uint8).data):
                at = 0
                while at < len(part):
                    room = _CAPACITY - (head - self._words[(start + _TAIL) // 8])
                    if not room:
                        yield
                        continue
                    place = head % _CAPACITY
                    n = min(room, len(part) - at, _CAPACITY - place)
                    begin = start + _DATA + place
                    self._bytes[begin : begin + n] = part[at : at + n]
                    at += n
                    head += n
                    order()
                    self._words[(start + _HEAD) // 8] = head
            queue.popleft()
            sending.done = True

    def _reading(self, start: int, source: int, target: int, tail: int = 0) -> Iterator[None]:
        """Hand over the messages of one ring as they come; yields when there is nothing to read."""
        header = bytearray(_HEADER.size)
        while True:
            data = np.empty(0, np.uint8)
            tag = size = length = 0
            text = b""
            for stage in range(2):
                if stage:
                    tag, nbytes, size, length, text = _HEADER.unpack(header)
                    data = np.empty(nbytes, np.uint8)
                part = data.data if stage else memoryview(header)
                at = 0
                while at < len(part):
                    there = self._words[(start + _HEAD) // 8] - tail
                    if not there:
                        yield
                        continue
                    order()
                    place = tail % _CAPACITY
                    n = min(there, len(part) - at, _CAPACITY - place)
                    begin = start + _DATA + place
                    part[at : at + n] = self._bytes[begin : begin + n]
                    at += n
                    tail += n
                    self._words[(start + _TAIL) // 8] = tail
            fields = guard.decode(text[:length])
            message = Message(data, source, target, tag, fields, (fields[1], size))
            self._letters.send(message, owned=True)


def _header(message: Message) -> bytes:
    text = guard.encode(message.fields)[:480]
    return _HEADER.pack(message.tag, message.array.nbytes, message.array.size, len(text), text)

"""Messages between processes through MPI: a header, then the bytes; see `mail`.

All messages of one process to another follow one another, whatever ranks they belong to;
when one has come whole, it is handed to `Letters`.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ....core.environment import Launch
from ....core.errors import DistributedError
from ...protocol import guard
from ..mail import ANY, Delivery, Letters, Message
from .roll_call import RollCall

_HEADER_TAG, _DATA_TAG = 11, 12
# MPI counts are 32-bit.
_PIECE = 1 << 30

_HEADER = np.dtype(
    [("source", "<i8"), ("target", "<i8"), ("tag", "<i8"), ("nbytes", "<i8"), ("size", "<i8"), ("length", "<i8"),
     ("text", "u1", 480)]
)  # fmt: skip


class MpiMail:
    """Sends and receives of one process's ranks. Whoever waits moves all messages on."""

    def __init__(
        self,
        mpi: Any,
        comm: Any,
        launch: Launch,
        blocks: Sequence[range],
        letters: Letters,
        roll_call: RollCall,
    ) -> None:
        self._mpi = mpi
        # A communicator of our own, so that messages are never taken for anything else.
        self._comm = comm.Dup()
        self._launch, self._blocks, self._letters, self._roll_call = launch, blocks, letters, roll_call
        self._incoming: dict[int, Iterator[None]] = {}
        self._requests: dict[int, Any] = {}
        self.timeout = float("inf")

    def send(self, message: Message) -> Delivery:
        """Begin to send `message` to the process that hosts its target."""
        header = np.zeros((), _HEADER)
        text = guard.encode(message.fields)[: _HEADER["text"].shape[0]]
        for name, value in (("source", message.source), ("target", message.target), ("tag", message.tag),
                            ("nbytes", message.array.nbytes), ("size", message.array.size), ("length", len(text))):  # fmt: skip
            header[name] = value
        header["text"][: len(text)] = np.frombuffer(text, np.uint8)
        proc = self._host(message.target)
        data = message.array.view(np.uint8)
        requests = [self._comm.Isend(header.reshape(1).view(np.uint8), dest=proc, tag=_HEADER_TAG)]
        for start in range(0, data.size, _PIECE):
            requests.append(self._comm.Isend(data[start : start + _PIECE], dest=proc, tag=_DATA_TAG))

        def progress(sending: Delivery) -> None:
            requests[:] = [r for r in requests if not r.Test()]
            sending.done = not requests
            self._move()
            if not sending.done:
                self._look(sending, [proc])

        return Delivery(message, message.source, progress)

    def receive(self, message: Message) -> Delivery:
        """Take the first message that answers, or wait for it."""
        receiving = self._letters.receive(message, self._progress)
        if not receiving.done:
            for proc in self._procs(message.source):
                if proc not in self._incoming:
                    self._incoming[proc] = self._reading(proc)
            self._move()
        return receiving

    def close(self) -> None:
        """Take back what was posted to receive. May be called again."""
        for request in self._requests.values():
            request.Cancel()
            request.Wait()
        self._requests.clear()
        self._incoming.clear()

    def take_what_is_left(self) -> None:
        """Hand over what was sent here and nobody has asked for, without the data. All others have ended, this has closed."""
        while (message := self._comm.Improbe(tag=_HEADER_TAG)) is not None:
            header = np.zeros((), _HEADER)
            message.Recv(header.reshape(1).view(np.uint8))
            self._letters.send(_announced(header, np.empty(0, np.uint8)), owned=True)

    def free(self) -> None:
        """Drop what was sent here and not received, and give the communicator back. All others have left."""
        status = self._mpi.Status()
        while (message := self._comm.Improbe(status=status)) is not None:
            message.Recv(np.empty(status.Get_count(self._mpi.BYTE), np.uint8))
        self._comm.Free()

    def _host(self, rank: int) -> int:
        return bisect.bisect_right(self._blocks, rank, key=lambda block: block.start) - 1

    def _procs(self, rank: int) -> list[int]:
        others = [p for p in range(self._launch.procs) if p != self._launch.proc]
        return others if rank == ANY else [self._host(rank)]

    def _progress(self, waiting: Delivery) -> None:
        self._move()
        if not waiting.done and waiting.error is None:
            self._look(waiting, self._procs(waiting.message.source))

    def _move(self) -> None:
        for reading in self._incoming.values():
            next(reading)

    def _look(self, waiting: Delivery, procs: list[int]) -> None:
        """Raise if none of `procs` can complete `waiting` any more, or it took too long."""
        launch = self._launch
        waits = {launch.world_rank(waiting.owner): waiting.message.fields}
        waiting.began = waiting.began or time.monotonic()
        try:
            gone = self._roll_call.last_words()
            if all(proc in gone for proc in procs):
                first = procs[0]
                raise guard.rank_failed(
                    [launch.world_rank(r) for r in launch.block(first)], gone[first], waits
                )
            if time.monotonic() - waiting.began > self.timeout:
                missing = [launch.world_rank(r) for p in procs for r in launch.block(p)]
                raise guard.stalled(dict.fromkeys(missing, ()), waits, self.timeout)
        except DistributedError:
            self._move()
            if not waiting.done:
                raise

    def _reading(self, proc: int) -> Iterator[None]:
        """Hand over the messages of one process as they come; yields when there is nothing to read."""
        while True:
            header = np.zeros((), _HEADER)
            yield from self._arrive(proc, header.reshape(1).view(np.uint8), _HEADER_TAG)
            data = np.empty(int(header["nbytes"]), np.uint8)
            for start in range(0, data.size, _PIECE):
                yield from self._arrive(proc, data[start : start + _PIECE], _DATA_TAG)
            self._letters.send(_announced(header, data), owned=True)

    def _arrive(self, proc: int, part: np.ndarray, tag: int) -> Iterator[None]:
        request = self._requests[proc] = self._comm.Irecv(part, source=proc, tag=tag)
        while not request.Test():
            yield
        self._requests.pop(proc, None)


def _announced(header: np.ndarray, data: np.ndarray) -> Message:
    """The message that `header` tells of."""
    fields = guard.decode(header["text"][: int(header["length"])].tobytes())
    source, target, tag = (int(header[name]) for name in ("source", "target", "tag"))
    return Message(data, source, target, tag, fields, (fields[1], int(header["size"])))

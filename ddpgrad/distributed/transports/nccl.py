"""The transport between GPUs, by NVIDIA's NCCL.

Another transport, the host's, is under it: it carries what lies in host memory, and lets the
ranks agree before data moves. NCCL then moves bytes only. The sums are made here, since NCCL's
own have an order that depends on the number of hosts: each rank gets its share of all arrays,
adds in the order of `tree`, and gives the result to the others, which moves the bytes of a ring.

Data moves on a stream of its own; `wait` makes the caller's stream wait for it, not the caller. A collective waits for
the ranks to agree before it moves data, unless it is one that they have agreed on before and whose caller goes on, as
with the buckets of every step but the first: then `wait` looks whether they did, and gives NCCL up if not.

Run over a stand-in for NCCL on CPUs; not run on GPUs. What NCCL does where ranks disagree, and what `abort` does beside
another thread, is by its documentation.
"""

from __future__ import annotations

import socket
import threading
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ...backend.cuda import library
from ...backend.device import capturing, current_cuda
from ...core.environment import Launch
from ...core.errors import DistributedError, TransportError
from ..protocol import guard, tree
from .base import COMPLETED, Pending, Transport
from .calls import AllToAll, Barrier, Broadcast, Call, Gather, Reduce, ReduceScatter
from .mail import Delivery, Message

_PLACE_BYTES = 256
_TO_LEAVE = 1.0  # seconds that another thread has to leave NCCL before it is aborted


def missing() -> str | None:
    """The reason why this transport cannot be used here; None if it can."""
    if reason := library.missing():
        return reason
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of what is said here
            found = import_module("cupy.cuda.nccl").available
    except ImportError:
        found = False
    return None if found else "CuPy finds no NCCL; install nvidia-nccl-cu12 (or -cu13)"


class NcclTransport(Transport):
    """Joins processes that have one rank and one GPU each. host: what joins them already."""

    name = "nccl"

    def __init__(self, launch: Launch, host: Transport) -> None:
        self._host = host
        super().__init__(launch, host.timeout)
        reason = missing()
        if reason is None and len(launch.ranks) != 1:
            reason = "several ranks share a process; start as many processes as ranks"
        place = _place(current_cuda()) if reason is None else ""
        places = self._tell(reason or "", place)
        same = [rank for rank, other in enumerate(places) if places.count(other) > 1]
        if same:
            raise TransportError(
                f"transport 'nccl' needs a GPU for each rank, and ranks {same} share {places[same[0]]}. "
                "Start fewer ranks, or leave the backend out: then gradients go through host memory."
            )
        cupy, nccl = library.cupy_and_count()[0], import_module("cupy.cuda.nccl")
        self._cupy, self._nccl = cupy, nccl
        self._gpu = cupy.cuda.Device(current_cuda())
        self._gpu.use()
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._known: set[int] = set()  # digests of what all ranks have agreed on before
        self._inside, self._aborted = threading.Lock(), False
        made = nccl.get_unique_id()
        # Which of the two an id is depends on the version of CuPy.
        numbers = self._from_first(np.array(list(made), np.int64)).tolist()
        unique = bytes(n % 256 for n in numbers) if isinstance(made, bytes) else tuple(numbers)
        self._comm = nccl.NcclCommunicator(launch.world_size, unique, launch.ranks.start)

    @property
    def timeout(self) -> float:  # what is waited for is waited for there
        return self._host.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._host.timeout = seconds

    def post(self, calls: Sequence[Call]) -> Pending:
        call = calls[0]
        if isinstance(call.array, np.ndarray):  # also what lies nowhere: barriers, allocations
            return self._host.post(calls)
        # Connections that a collective needs exist once it was carried out: NCCL takes it without waiting for others.
        at_once = call.background and call.signature.digest in self._known
        agreed = self._host.post([Barrier(call.signature, at_once)])
        if not at_once:
            agreed.wait()
            if not isinstance(call, AllToAll):  # whose signature does not say how much goes to whom
                self._known.add(call.signature.digest)
        with self._inside, self._gpu:  # which knows one device to go back to, for all threads
            if self._aborted:
                raise TransportError("NCCL was given up on this rank, after an error that was reported")
            self._stream.wait_event(self._cupy.cuda.get_current_stream().record())
            with library.on_stream(self._stream):
                self._carry(call)
            done = self._stream.record()
        pending = _OnStream(self, call, agreed, done)
        if call.background:
            return pending
        pending.wait()
        return COMPLETED

    def follow(self, event: Any) -> None:
        """Let the caller's stream on this rank's GPU wait for an event."""
        with self._cupy.cuda.Device(self._gpu.id):  # a default stream is that of the current GPU
            self._cupy.cuda.get_current_stream().wait_event(event)

    def now(self, signature: guard.Signature, array: np.ndarray, result: np.ndarray) -> bool:
        return isinstance(array, np.ndarray) and self._host.now(signature, array, result)

    def send(self, message: Message) -> Delivery:
        return self._host.send(message)

    def receive(self, message: Message) -> Delivery:
        return self._host.receive(message)

    def fail(self, rank: int, reason: str, secondary: bool) -> None:
        self._host.fail(rank, reason, secondary)
        self.give_up()

    def give_up(self) -> None:
        """End what NCCL has under way on this rank, and take no more: nobody may wait for another rank inside NCCL."""
        if self._aborted:
            return
        self._aborted = True
        # One thread at a time may be inside NCCL. It leaves as soon as its work is on the stream, unless it waits there
        # for a rank that is gone; then nothing but `abort` ends it.
        alone = self._inside.acquire(timeout=_TO_LEAVE)
        try:
            self._comm.abort()
        finally:
            if alone:
                self._inside.release()

    def close(self) -> None:
        self._host.close()

    def release(self) -> bool:
        return self._host.release()

    def _carry(self, call: Call) -> None:
        """Let the stream carry out one collective of arrays on GPUs."""
        me, world, array = self.ranks.start, self.launch.world_size, call.array
        everyone = range(world)
        if isinstance(call, Reduce):
            shares = [slice(*tree.share(array.size, world, rank)) for rank in everyone]
            rows = np.empty_like(array, shape=(world, shares[me].stop - shares[me].start))
            self._swap([array[share] for share in shares], list(rows))
            self._add(array[shares[me]], rows, call.op)
            self._swap([array[shares[me]]] * world, [array[share] for share in shares])
        elif isinstance(call, ReduceScatter):
            rows = np.empty_like(array, shape=(world, call.result.size))
            self._swap(list(array.reshape(world, -1)), list(rows))
            self._add(call.result, rows, call.op)
        elif isinstance(call, Gather):
            self._swap([array] * world, list(call.result))
        elif isinstance(call, AllToAll):
            self._swap(
                [array[call.counts.block(me, rank)[0]] for rank in everyone],
                [call.result[call.counts.block(rank, me)[1]] for rank in everyone],
            )
        elif isinstance(call, Broadcast):
            nothing = array[:0]
            self._swap(
                [array if me == call.src else nothing] * world,
                [array if rank == call.src != me else nothing for rank in everyone],
            )

    def _add(self, out: Any, rows: Any, op: str) -> None:
        wide = tree.wide_dtype(rows.dtype)
        parts = {range(rank, rank + 1): row.astype(wide, copy=False) for rank, row in enumerate(rows)}
        tree.join_into(out, parts, len(rows), op)

    def _swap(self, sent: Sequence[Any], received: Sequence[Any]) -> None:
        """Send to, and receive from, each rank its entry: bytes, since NCCL has no name for every dtype."""
        me, byte, stream = self.ranks.start, self._nccl.NCCL_UINT8, self._stream.ptr
        self._nccl.groupStart()
        for rank, (out, into) in enumerate(zip(sent, received, strict=True)):
            if rank != me:
                if out.nbytes:
                    self._comm.send(out.data.ptr, out.nbytes, byte, rank, stream)
                if into.nbytes:
                    self._comm.recv(into.data.ptr, into.nbytes, byte, rank, stream)
        self._nccl.groupEnd()
        if received[me].nbytes and received[me].data.ptr != sent[me].data.ptr:
            received[me][...] = sent[me]

    def _tell(self, reason: str, place: str) -> list[str]:
        """Where the GPUs of all ranks are. Raises TransportError on all if one has no use for NCCL."""
        mine = np.zeros(_PLACE_BYTES, np.uint8)
        text = (reason or place).encode()[: _PLACE_BYTES - 1]
        mine[0], mine[1 : 1 + len(text)] = bool(reason), np.frombuffer(text, np.uint8)
        rows = np.empty((self.launch.world_size, mine.size), np.uint8)
        signature = guard.signature("nccl", mine.dtype, mine.shape)
        self._host.post([Gather(signature, mine, rows) for _ in self.ranks]).wait()
        texts = [row[1:].tobytes().rstrip(b"\0").decode("utf-8", "replace") for row in rows]
        for rank, row in enumerate(rows):
            if row[0]:
                raise TransportError(
                    f"transport 'nccl' cannot start on rank {self.launch.world_rank(rank)}: {texts[rank]}. "
                    "Leave the backend out, or ask for 'gloo': then tensors go through host memory."
                )
        return texts

    def _from_first(self, array: np.ndarray) -> np.ndarray:
        signature = guard.signature("nccl id", array.dtype, array.shape)
        self._host.post([Broadcast(signature, array, src=0)]).wait()
        return array


class _OnStream(Pending):
    """A collective that a stream carries out; keeps its arrays until then. agreed: whether the ranks all have it."""

    __slots__ = ("_agreed", "_call", "_done", "_transport")

    def __init__(self, transport: NcclTransport, call: Call, agreed: Pending, done: Any) -> None:
        self._transport, self._call, self._agreed, self._done = transport, call, agreed, done

    def poll(self) -> bool:
        agreed = self._ask(self._agreed.poll) is not False
        return (
            agreed and capturing.now is None and bool(self._done.done)
        )  # nothing runs while a graph is captured

    def wait(self) -> None:
        self._ask(self._agreed.wait)
        self._transport.follow(self._done)

    def _ask(self, question: Callable[[], bool | None]) -> bool | None:
        try:
            return question()
        except DistributedError:
            self._transport.give_up()
            raise


def _place(device: int) -> str:
    """Which GPU of which host `device` is."""
    cupy = library.cupy_and_count()[0]
    return f"GPU {cupy.cuda.Device(device).pci_bus_id} of {socket.gethostname()}"

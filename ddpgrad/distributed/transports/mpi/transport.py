"""The transport through an MPI library, between any processes, on one host or many.

Before data moves, all processes tell one another what they are about to do (`roll_call`): so
ranks that differ, fail or finish are named, where MPI alone would hang or mix the data up.
Reductions exchange slices (all-to-all), combine their own slice in tree order, and gather
the slices: the bytes of a ring, in the order of `tree`, so that the bits are those of
every other transport.

A collective that its caller does not wait for runs in one thread per process, in order:
MPI's own nonblocking collectives move nothing while Python computes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from ....core.environment import Launch, ranks_of
from ....core.errors import DistributedError
from ...protocol import guard, tree
from ...protocol.progress import waits
from ..base import COMPLETED, Patience, Pending, Transport, ended
from ..calls import Allocate, AllToAll, Broadcast, Call, Gather, Reduce, ReduceScatter
from ..mail import Delivery, Letters, Message
from . import small_sum
from .background import Background
from .exchange import MESSAGE, Exchange, Naps
from .library import communicator, library
from .mail import MpiMail
from .pairwise import pieces, starts
from .roll_call import FAILED, FINISHED, LEFT, SECONDARY, RollCall

# Up to this size one gather of everything is faster than two exchanges.
SMALL = 16 << 10
# Ranks up to which that is so.
_FEW = 32
# MPI counts are 32-bit, and what is exchanged at once needs memory of its own.
_PIECE = 32 << 20

# Bytes that describe one rank's collective to the ranks that differ.
_RECORD = 512


@lru_cache(maxsize=64)
def _blocks(
    world_size: int, procs: int, group: tuple[tuple[int, tuple[int, ...]], ...] | None
) -> tuple[range, ...]:
    """The ranks that each process hosts, found in one pass."""
    if group is None:
        return tuple(ranks_of(proc, procs, world_size) for proc in range(procs))
    stops = accumulate(len(ranks) for _, ranks in group)
    return tuple(range(stop - len(ranks), stop) for stop, (_, ranks) in zip(stops, group, strict=True))


class MpiTransport(Transport):
    """Joins the processes of an MPI job."""

    name = "mpi"

    def __init__(self, launch: Launch, timeout: float | None = None) -> None:
        super().__init__(launch, timeout)
        self._mpi = library()
        # A communicator of our own: the program may use MPI as well.
        self._comm = communicator(launch).Dup()
        self._left = False
        self._exchange = Exchange(self._comm)
        self._memory = np.empty(0, np.uint8)
        self._blocks = _blocks(launch.world_size, launch.procs, launch.group)
        self._most_ranks = max(len(block) for block in self._blocks)
        numbers = range(launch.procs) if launch.group is None else [proc for proc, _ in launch.group]
        self._roll_call = RollCall(self._mpi, self._comm, numbers)
        self._letters = Letters(launch.world_rank)
        self._mail = MpiMail(self._mpi, self._comm, launch, self._blocks, self._letters, self._roll_call)
        self._number = 0
        self._last_fields: Sequence[str] = ()
        self._threaded = self._mpi.Query_thread() >= self._mpi.THREAD_SERIALIZED
        self._background = Background(self._run_in_thread)
        self._farewell: tuple[int, int, str] | None = None
        # A barrier is not among them: all have arrived when they agree.
        self._carry: dict[type[Call], Callable[[Any], None]] = {
            Allocate: self._allocate,
            Reduce: self._reduce,
            ReduceScatter: self._reduce_scatter,
            Broadcast: self._broadcast,
            Gather: self._gather,
            AllToAll: self._pairwise,
        }

    def post(self, calls: Sequence[Call]) -> Pending:
        self.refuse_after_failure()
        later = self._threaded and any(call.background for call in calls)
        if later or self._background.busy():
            return self._background.post(calls)
        self._run(calls, in_thread=False)
        return COMPLETED

    def send(self, message: Message) -> Delivery:
        self.refuse_after_failure()
        self._mail.timeout = self.timeout
        return (self._letters if message.target in self.ranks else self._mail).send(message)

    def receive(self, message: Message) -> Delivery:
        self.refuse_after_failure()
        self._mail.timeout = self.timeout
        return (self._letters if message.source in self.ranks else self._mail).receive(message)

    def fail(self, rank: int, reason: str, secondary: bool) -> None:
        self._say_farewell(SECONDARY if secondary else FAILED, rank, reason)

    def failed(self, error: DistributedError) -> DistributedError:
        first = super().failed(error)
        # At once: the program may go on without this, and those that have finished wait for a word.
        self._say_end_after(first)
        return first

    def close(self) -> None:
        if self._left:
            self._roll_call.receive_farewells(self.timeout)
        if self._farewell is not None:
            return
        if self.failure is not None:
            self._say_end_after(self.failure)
            return
        self._background.finish()
        self._mail.close()
        self._say_farewell(FINISHED, self.launch.world_rank(self.ranks.start), "has finished its program")
        # MPI ends when all processes have ended; what is sent meanwhile must be received.
        self._roll_call.receive_farewells(self.timeout)
        self._mail.take_what_is_left()
        self._letters.warn_of_lost()
        self.failure = ended("MPI")

    def release(self) -> bool:
        if not self._left:
            self._background.finish()
            if self.failure is not None or self._farewell is not None:
                return False
            self._left = True
            left = "has left the group (destroy_process_group)"
            self.failure = DistributedError(f"this process {left}")
            self._mail.close()
            self._say_farewell(LEFT, self.launch.world_rank(self.ranks.start), left)
        # MPI may give the communicators' identity to others: nothing that was sent in them may be on its way.
        if not self._roll_call.all_have_left():
            return False
        self._mail.free()
        self._roll_call.free()
        self._comm.Free()
        return True

    def _say_end_after(self, error: DistributedError) -> None:
        rank = self.launch.world_rank(self.ranks.start)
        self._say_farewell(SECONDARY, rank, f"has ended after an error: {error}")

    def _say_farewell(self, state: int, rank: int, reason: str) -> None:
        if self._farewell is not None:
            return
        self._farewell = (state, rank, reason)
        # The thread may be inside MPI, which need not allow two at once: it leaves by itself.
        if self._background.end(2.0):
            self._roll_call.send_farewell(state, rank, reason)

    def _run_in_thread(self, calls: Sequence[Call]) -> None:
        self.refuse_after_failure()
        self._run(calls, in_thread=True)

    def _run(self, calls: Sequence[Call], in_thread: bool) -> None:
        """Carry out one collective; returns when it is complete in this process."""
        self._number += 1
        self._exchange.gently = in_thread
        try:
            self._agree(calls, in_thread)
            carry = self._carry.get(type(calls[0]))
            if carry is not None and (calls[0].extent or isinstance(calls[0], Allocate)):
                carry(calls)
        except DistributedError as error:
            raise self.failed(error) from None
        except self._mpi.Exception as error:
            raise self.failed(DistributedError(f"MPI failed in {calls[0].signature}: {error}")) from None

    def _agree(self, calls: Sequence[Call], in_thread: bool) -> None:
        """Raise MismatchError unless all ranks are about to do the same."""
        digest = calls[0].signature.digest
        if any(call.signature.digest != digest for call in calls):
            digest = 0
        roll_call = self._roll_call
        roll_call.start(digest)
        patience, naps = Patience(), Naps()
        began = time.monotonic()
        waits.begin(began)
        next_look = began + 0.02
        while not roll_call.all_arrived():
            if in_thread:
                # Spinning here would take the interpreter, and the core, from the program's own thread.
                naps.nap()
            else:
                patience.pause()
            now = time.monotonic()
            if now >= next_look:
                next_look = now + 0.02
                self._look(calls, now - began)
        waits.end()
        if not roll_call.agreed():
            raise self._mismatch(calls)
        self._last_fields = calls[0].signature.fields

    def _look(self, calls: Sequence[Call], waited: float) -> None:
        """Raise if a process that has not arrived will not come, or all took too long."""
        name = self.launch.world_rank
        waiting = {name(rank): call.signature.fields for rank, call in zip(self.ranks, calls, strict=True)}
        farewell = self._roll_call.farewell()
        if farewell is not None:
            state, proc, rank, reason = farewell
            ranks = [name(r) for r in self._blocks[proc]] if state == FINISHED else [rank]
            raise guard.rank_failed(ranks, reason, waiting)
        if self._farewell is not None:
            raise DistributedError("the ranks of this process have failed")
        if waited > self.timeout:
            missing = [name(rank) for proc in self._roll_call.missing() for rank in self._blocks[proc]]
            raise guard.stalled(dict.fromkeys(missing, self._last_fields), waiting, self.timeout)

    def _mismatch(self, calls: Sequence[Call]) -> DistributedError:
        mine = np.zeros((self._most_ranks, _RECORD), np.uint8)
        for row, call in zip(mine, calls, strict=False):
            record = call.signature.digest.to_bytes(8, "little") + call.signature.encoded
            record = record[:_RECORD]
            row[: len(record)] = np.frombuffer(record, np.uint8)
        everyone = np.empty((len(self._blocks), *mine.shape), np.uint8)
        self._comm.Allgather(mine, everyone)
        records = {}
        for block, rows in zip(self._blocks, everyone, strict=True):
            for rank, row in zip(block, rows, strict=False):
                text = row[8:].tobytes().rstrip(b"\0")
                records[self.launch.world_rank(rank)] = (
                    int.from_bytes(row[:8].tobytes(), "little"),
                    guard.decode(text),
                )
        return guard.mismatch(records, self._number)

    def _allocate(self, calls: Sequence[Allocate]) -> None:
        for call in calls:
            call.result = np.zeros(call.array.shape, call.array.dtype)

    def _reduce(self, calls: Sequence[Reduce]) -> None:
        arrays, op = [call.array for call in calls], calls[0].op
        first = arrays[0]
        if first.nbytes <= SMALL:
            if self.launch.world_size <= _FEW:
                tree.reduce_into(arrays, self._all_rows(arrays), op)
            else:
                small_sum.add(arrays, op, self._exchange, self._blocks, self.launch.proc)
            return
        piece = min(_PIECE, MESSAGE * len(self._blocks))
        length = piece // self._most_ranks // first.itemsize // 64 * 64
        for start in range(0, first.size, length):
            self._reduce_piece([array[start : start + length] for array in arrays], op)

    def _reduce_piece(self, arrays: list[np.ndarray], op: str) -> None:
        first, itemsize, me = arrays[0], arrays[0].itemsize, self.launch.proc
        shares = [tree.share(first.size, len(self._blocks), proc) for proc in range(len(self._blocks))]
        low, high = shares[me]
        # A share that stays here is read where it lies.
        sizes = [(stop - start) * itemsize * (proc != me) for proc, (start, stop) in enumerate(shares)]
        if len(arrays) == 1:
            out, sent, starts = first, sizes, [start * itemsize for start, _ in shares]
        else:
            others = [share for proc, share in enumerate(shares) if proc != me]
            out = np.concatenate([array[start:stop] for start, stop in others for array in arrays])
            sent = [size * len(arrays) for size in sizes]
            starts = [sum(sent[:proc]) for proc in range(len(sent))]
        world = self.launch.world_size
        rows = self._received(world * (high - low), first.dtype).reshape(world, high - low)
        width = (high - low) * itemsize
        self._exchange.all_to_all(
            self._bytes(out, sent, starts),
            self._bytes(
                rows.reshape(-1),
                [len(block) * width * (proc != me) for proc, block in enumerate(self._blocks)],
                [block.start * width for block in self._blocks],
            ),
        )
        contributions = list(rows)
        for rank, array in zip(self.ranks, arrays, strict=True):
            contributions[rank] = array[low:high]
        tree.reduce_into([first[low:high]], contributions, op)
        ends = [[(stop - start) * itemsize for start, stop in shares], [s * itemsize for s, _ in shares]]
        self._exchange.all_gather(self._bytes(first, *ends))
        for array in arrays[1:]:
            array[...] = first

    def _received(self, size: int, dtype: np.dtype) -> np.ndarray:
        """Memory for received data, kept from earlier times: new pages cost as much as a sum."""
        if self._memory.nbytes < size * dtype.itemsize:
            self._memory = np.empty(size * dtype.itemsize, np.uint8)
        return self._memory[: size * dtype.itemsize].view(dtype)

    def _reduce_scatter(self, calls: Sequence[ReduceScatter]) -> None:
        """Every process gets, of all ranks' arrays, the parts of the ranks that it hosts."""
        first, world = calls[0].array, self.launch.world_size
        if first.nbytes <= SMALL:
            rows = self._all_rows([call.array for call in calls])
            for rank, call in zip(self.ranks, calls, strict=True):
                tree.reduce_part(call.result, rows, rank, call.op)
            return
        arrays = [call.array.reshape(world, -1) for call in calls]
        columns = arrays[0].shape[1]
        length = max(1, _PIECE // world // self._most_ranks // first.itemsize)
        for start in range(0, columns, length):
            stop = min(start + length, columns)
            parts = [
                array[block.start : block.stop, start:stop] for block in self._blocks for array in arrays
            ]
            out = np.concatenate([part.reshape(-1) for part in parts])
            rows = np.empty((world, len(calls), stop - start), first.dtype)
            sizes = [len(block) * rows[0].nbytes for block in self._blocks]
            starts = [block.start * rows[0].nbytes for block in self._blocks]
            self._comm.Alltoallv(
                self._bytes(out, sizes, starts), self._bytes(rows.reshape(-1), sizes, starts)
            )
            for i, call in enumerate(calls):
                tree.reduce_into([call.result[start:stop]], list(rows[:, i]), call.op)

    def _broadcast(self, calls: Sequence[Broadcast]) -> None:
        arrays, src = [call.array for call in calls], calls[0].src
        root = next(proc for proc, block in enumerate(self._blocks) if src in block)
        source = arrays[src - self.ranks.start] if src in self.ranks else arrays[0]
        if not source.flags.writeable:
            source = source.copy()
        data = source.view(np.uint8)
        for start in range(0, data.size, _PIECE):
            self._comm.Bcast(data[start : start + _PIECE], root=root)
        for rank, array in zip(self.ranks, arrays, strict=True):
            if array is not source and rank != src:
                array[...] = source

    def _gather(self, calls: Sequence[Gather]) -> None:
        first = calls[0].array
        length = max(1, _PIECE // self.launch.world_size // first.itemsize)
        for start in range(0, first.size, length):
            stop = start + length
            rows = self._all_rows([call.array[start:stop] for call in calls])
            for call in calls:
                for target, row in zip(call.result, rows, strict=True):
                    target[start:stop] = row

    def _pairwise(self, calls: Sequence[AllToAll]) -> None:
        """Elements go from process to process directly."""
        for piece in pieces(calls, self.ranks, self._blocks, _PIECE):
            self._exchange.all_to_all(
                self._bytes(piece.send, piece.sent, starts(piece.sent)),
                self._bytes(piece.receive, piece.received, starts(piece.received)),
            )

    def _all_rows(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """The arrays of all ranks, by rank."""
        out = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        rows = np.empty((self.launch.world_size, arrays[0].size), out.dtype)
        size = arrays[0].nbytes
        self._comm.Allgatherv(
            self._bytes(out),
            self._bytes(
                rows.reshape(-1),
                [len(block) * size for block in self._blocks],
                [block.start * size for block in self._blocks],
            ),
        )
        return list(rows)

    def _bytes(
        self, array: np.ndarray, sizes: list[int] | None = None, starts: list[int] | None = None
    ) -> list:
        """An array as MPI takes it: bytes, since MPI has no name for every dtype (bfloat16)."""
        data = array.view(np.uint8)
        if sizes is None:
            return [data, self._mpi.BYTE]
        return [data, sizes, starts, self._mpi.BYTE]

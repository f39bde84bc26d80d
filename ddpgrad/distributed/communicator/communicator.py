"""Collectives as one logical rank calls them: NumPy arrays in, `ArrayWork` out.

Every rank must call the same collectives in the same order. An array may have any shape,
memory layout and dtype that the operation is defined for; results are written into it.
The transport knows how many processes there are and how data moves between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ...backend.device import capturing
from ...core.taping import untaped
from ..protocol import guard, plain_data, tree
from ..transports.base import limit
from ..transports.calls import (
    NOTHING,
    Allocate,
    AllToAll,
    Barrier,
    Broadcast,
    Call,
    Counts,
    Gather,
    Reduce,
    ReduceScatter,
    counts_between,
)
from .arrays import check_array, filled, in_order, new, refuse_objects, write_back
from .port import COLLECTIVE, DONE, Alone, ArrayWork, Mail, Port, Turn, ignore, never, refuse

__all__ = ["Alone", "ArrayWork", "Communicator", "Port"]


class Communicator(Mail):
    """The collectives and messages of one logical rank.

    rank    this rank's number, 0 to size - 1
    size    the number of ranks
    note    called with the signature of each collective, and the text of each message, as it begins
    leave   called once, when this rank closes it
    models  how many models have had their gradients averaged here
    """

    __slots__ = ("_checked", "_leave", "_note", "_now", "_port", "_submit", "_turn", "models", "name", "rank", "size", "transport", "unlabelled")  # fmt: skip

    def __init__(
        self,
        rank: int,
        size: int,
        transport: str,
        port: Port,
        note: Callable[[Any], None] | None = None,
        leave: Callable[[], None] | None = None,
    ) -> None:
        self.rank = rank
        self.size = size
        self.transport = transport
        self._port = port
        self._note = note or ignore
        self._submit = port.submit
        self._now: Callable[..., bool] = getattr(port, "now", never)
        self._leave = leave
        self._turn = Turn()
        self.models = 0
        self.unlabelled = ""
        """The label of sums that are given none: while it is set, those of different lines may meet."""
        self._checked: set[guard.Signature] = set()  # sums that are defined for their dtype

    def __repr__(self) -> str:
        return f"Communicator(rank={self.rank}, size={self.size}, transport={self.transport!r})"

    def allocate(self, n: int, dtype: Any) -> np.ndarray:
        """A zeroed array of `n` elements, where the transport can reach it without copying. Collective.

        Reductions of it, or of slices of it, are the fastest there are. Raises TransportError if
        the host has not enough shared memory, on all ranks alike.
        """
        dtype = np.dtype(dtype)
        refuse_objects(dtype)
        if n < 0:
            raise ValueError(f"allocate: the number of elements must not be negative, got {n}")
        template = np.broadcast_to(np.empty((), dtype), (n,))
        call = Allocate(guard.signature("sharing memory for gradients", dtype, (n,)), template)
        self._begin(call.signature, template, template, False, lambda _: call, known=False).wait()
        assert call.result is not None
        return call.result

    def all_reduce(
        self, array: np.ndarray, op: str = "sum", label: str = "", async_op: bool = False
    ) -> ArrayWork:
        """Combine `array` over all ranks, in place, in the order that `tree` defines.

        op      one of sum, avg, product, min, max, band, bor, bxor; ValueError if it has no
                meaning for the dtype
        label   a name of the array (its parameters); compared between ranks, shown in errors
        """
        untaped(COLLECTIVE)
        # The shortest way for plain memory, which is what buckets are; `_in_place` says the same for any array.
        if async_op or type(array) is not np.ndarray or not array.flags.carray or capturing.now is not None:
            check_array(f"all_reduce({op})", array, writes=True)
            tree.check(op, array.dtype)
            signature = guard.signature(
                f"all_reduce({op})", array.dtype, array.shape, label or self.unlabelled, sums=True
            )
            return self._in_place(
                signature, array, async_op, lambda flat: Reduce(signature, flat, op, async_op)
            )
        signature = guard.signature(
            f"all_reduce({op})", array.dtype, array.shape, label or self.unlabelled, sums=True
        )
        if signature not in self._checked:
            refuse_objects(array.dtype)
            tree.check(op, array.dtype)
            if len(self._checked) > 4096:
                self._checked.clear()
            self._checked.add(signature)
        self._note(signature)
        if array.ndim != 1:
            array = array.reshape(-1)
        turn = self._turn
        if not turn.take(False):
            turn.refuse(self._port, self.rank, signature)
        try:
            if not self._now(signature, array, array):
                self._submit(Reduce(signature, array, op)).wait()
        finally:
            turn.free()
        return DONE

    def broadcast(
        self, array: np.ndarray, src: int = 0, label: str = "", async_op: bool = False
    ) -> ArrayWork:
        """Overwrite `array` on all ranks with that of rank `src`."""
        self._check_rank("broadcast: src", src)
        return self._broadcast(f"broadcast(src={src})", array, src, label, async_op)

    def _broadcast(
        self, name: str, array: np.ndarray, src: int, label: str = "", async_op: bool = False
    ) -> ArrayWork:
        writes = self.rank != src
        check_array(name, array, writes)
        signature = guard.signature(name, array.dtype, array.shape, label)
        return self._in_place(
            signature, array, async_op, lambda flat: Broadcast(signature, flat, src, async_op), writes
        )

    def all_gather(self, array: np.ndarray, label: str = "") -> list[np.ndarray]:
        """The arrays of all ranks, by rank; all must have one shape and dtype."""
        return list(self._gather(array, "all_gather", label))

    def start_all_gather(
        self, array: np.ndarray, label: str = "", background: bool = True, out: np.ndarray | None = None
    ) -> tuple[np.ndarray, ArrayWork]:
        """As `all_gather` without waiting: the array (size, *shape) that fills, and the work. out: see `arrays.filled`."""
        return self._start_gather(array, "all_gather", label, background, out)

    def all_to_all(self, array: np.ndarray, splits: Sequence[int] | None = None) -> list[np.ndarray]:
        """Send rows of `array` to every rank: rank r gets `splits[r]` of them. Returns the rows received, by rank.

        splits: rows for each rank, as many as `array` has; None for equal parts. Shapes must
        agree but for the number of rows.
        """
        parts, work = self.start_all_to_all(array, splits, background=False)
        work.wait()
        return parts

    def start_all_to_all(
        self, array: np.ndarray, splits: Sequence[int] | None = None, background: bool = True, out: np.ndarray | None = None,
    ) -> tuple[list[np.ndarray], ArrayWork]:  # fmt: skip
        """As `all_to_all` without waiting for the rows: the parts, which fill, and the work. out: see `arrays.filled`.

        With `splits` it waits until all ranks have said theirs; `out` is left alone then.
        """
        check_array("all_to_all", array)
        if array.ndim == 0 or (splits is None and array.shape[0] % self.size):
            raise ValueError(
                f"all_to_all: the first dimension must be a multiple of {self.size} (the number of ranks) or be "
                f"split by input_split_sizes, got shape {array.shape}"
            )
        if splits is None:
            signature = guard.signature("all_to_all", array.dtype, array.shape)
            counts = counts_between(self.size, array.size // self.size)
            result, work = self._all_to_all(signature, array, counts, background, out)
            return list(result.reshape(self.size, array.shape[0] // self.size, *array.shape[1:])), work
        if len(splits) != self.size or sum(splits) != array.shape[0] or min(splits) < 0:
            raise ValueError(
                f"all_to_all: split sizes {list(splits)} must be {self.size} numbers that sum to the "
                f"{array.shape[0]} rows of the input"
            )
        table = self._gather(np.array(splits, np.int64), "all_to_all splits", "")
        counts = Counts(table * prod(array.shape[1:]))
        signature = guard.signature("all_to_all(split sizes)", array.dtype, array.shape[1:])
        result, work = self._all_to_all(signature, array, counts, background)
        received = table[:, self.rank]
        rows = result.reshape(int(received.sum()), *array.shape[1:])
        return np.split(rows, np.cumsum(received)[:-1]), work

    def _all_to_all(
        self, signature: guard.Signature, array: np.ndarray, counts: Counts, background: bool, out: np.ndarray | None = None,
    ) -> tuple[np.ndarray, ArrayWork]:  # fmt: skip
        """The elements that the ranks have for this one, one after the other, and the work."""
        result = filled(out, array, (counts.received[self.rank],))
        return result, self._begin(
            signature, in_order(array), result, background,
            lambda flat: AllToAll(signature, flat, result, counts, background), counts.fixed,
        )  # fmt: skip

    def gather(self, array: np.ndarray, dst: int = 0, label: str = "") -> list[np.ndarray] | None:
        """The arrays of all ranks, by rank, on rank `dst`; None on the others."""
        rows, work = self.start_gather(array, dst, label, background=False)
        work.wait()
        return list(rows) if self.rank == dst else None

    def start_gather(
        self, array: np.ndarray, dst: int = 0, label: str = "", background: bool = True
    ) -> tuple[np.ndarray, ArrayWork]:
        """As `gather` without waiting: an array (size, *shape) that fills on `dst`, and the work."""
        self._check_rank("gather: dst", dst)
        check_array("gather", array)
        signature = guard.signature(f"gather(dst={dst})", array.dtype, array.shape, label)
        counts = counts_between(self.size, array.size, target=dst)
        rows, work = self._all_to_all(signature, array, counts, background)
        return rows.reshape(self.size if self.rank == dst else 0, *array.shape), work

    def scatter(
        self, array: np.ndarray, chunks: Sequence[np.ndarray] | None = None, src: int = 0, label: str = ""
    ) -> None:
        """Overwrite `array` with `chunks[rank]` of rank `src`; the others pass no chunks."""
        self.start_scatter(array, chunks, src, label, background=False).wait()

    def start_scatter(
        self, array: np.ndarray, chunks: Sequence[np.ndarray] | None = None, src: int = 0, label: str = "", background: bool = True,
    ) -> ArrayWork:  # fmt: skip
        """As `scatter` without waiting."""
        self._check_rank("scatter: src", src)
        check_array("scatter", array, writes=True)
        rows = new(array, (0, *array.shape))
        if self.rank == src:
            shapes = [np.shape(chunk) for chunk in chunks or ()]
            if shapes != [array.shape] * self.size:
                raise ValueError(
                    f"scatter: rank {src} must pass {self.size} chunks of shape {array.shape}, got {shapes}"
                )
            rows = np.stack(chunks or ())
            if rows.dtype != array.dtype:
                raise ValueError(
                    f"scatter: the chunks are of dtype {rows.dtype}, and rank {src} receives {array.dtype}"
                )
        signature = guard.signature(f"scatter(src={src})", array.dtype, array.shape, label)
        counts = counts_between(self.size, array.size, source=src)
        result, work = self._all_to_all(signature, rows, counts, background)
        return ArrayWork(work._pending, partial(write_back, array, result))

    def reduce_scatter(self, array: np.ndarray, op: str = "sum", label: str = "") -> np.ndarray:
        """This rank's part, along the first dimension, of `array` combined over all ranks.

        The first dimension must be a multiple of `size`; `array` itself is left as it is.
        """
        part, work = self.start_reduce_scatter(array, op, label, background=False)
        work.wait()
        return part

    def start_reduce_scatter(
        self, array: np.ndarray, op: str = "sum", label: str = "", background: bool = True, out: np.ndarray | None = None,
    ) -> tuple[np.ndarray, ArrayWork]:  # fmt: skip
        """As `reduce_scatter` without waiting: this rank's part, which fills, and the work. out: see `arrays.filled`."""
        check_array("reduce_scatter", array)
        if array.ndim == 0 or array.shape[0] % self.size:
            raise ValueError(
                f"reduce_scatter: the first dimension must be a multiple of {self.size} (the number of "
                f"ranks), got shape {array.shape}"
            )
        tree.check(op, array.dtype, "reduce_scatter")
        part = filled(out, array, (array.shape[0] // self.size, *array.shape[1:]))
        signature = guard.signature(
            f"reduce_scatter({op})", array.dtype, array.shape, label or self.unlabelled, sums=True
        )
        result = part.reshape(-1)
        return part, self._begin(
            signature, in_order(array), result, background,
            lambda flat: ReduceScatter(signature, flat, result, op, background),
        )  # fmt: skip

    def barrier(self, label: str = "") -> None:
        """Return when all ranks have called."""
        self.start_barrier(label, background=False).wait()

    def start_barrier(self, label: str = "", background: bool = True) -> ArrayWork:
        """As `barrier` without waiting."""
        signature = guard.signature("barrier", None, (), label)
        return self._begin(signature, NOTHING, NOTHING, background, lambda _: Barrier(signature, background))

    def all_gather_object(self, obj: object) -> list[Any]:
        """The objects of all ranks, by rank: plain data (see `plain_data`), sizes may differ."""
        data = np.frombuffer(plain_data.encode(obj), np.uint8)
        sizes = self._gather(np.array(data.size, np.int64), "all_gather_object", "size")
        padded = np.zeros(int(sizes.max()), np.uint8)
        padded[: data.size] = data
        rows = self._gather(padded, "all_gather_object", "")
        return [plain_data.decode(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]

    def broadcast_object(self, obj: object = None, src: int = 0, label: str = "size") -> Any:
        """The object that rank `src` passed: plain data (see `plain_data`). label: compared between ranks."""
        self._check_rank("broadcast_object: src", src)
        name = f"broadcast_object(src={src})"
        mine = self.rank == src
        data = np.frombuffer(plain_data.encode(obj), np.uint8).copy() if mine else np.empty(0, np.uint8)
        size = np.array(data.size, np.int64)
        self._broadcast(name, size, src, label)
        if not mine:
            data = np.empty(int(size), np.uint8)
        self._broadcast(name, data, src)
        return plain_data.decode(data.tobytes())

    def wait_at_most(self, timeout: float) -> None:
        """How many seconds collectives that begin from now on may wait for other ranks."""
        self._port.transport.timeout = limit(timeout)

    def close(self) -> None:
        """Refuse further use on this rank. The world's transport lives on until the process's ranks end."""
        leave, self._leave = self._leave, None
        if leave is not None:
            del self._port, self._submit, self._now  # with them goes the transport
            leave()
        self._note = refuse  # the first that each call does

    def _begin(
        self, signature: guard.Signature, array: np.ndarray, result: np.ndarray, background: bool,
        call: Callable[[np.ndarray], Call], known: bool = True,
    ) -> ArrayWork:  # fmt: skip
        """Begin what `call` makes of `array`; the elements of both are in order. known: the signature says all else."""
        untaped(COLLECTIVE)
        if capturing.now is not None:
            from . import captured  # here, as few programs capture

            captured.check(signature, array, self.transport, self.size, self.all_reduce)
        self._note(signature)
        turn = self._turn
        if not turn.take(False):
            turn.refuse(self._port, self.rank, signature)
        try:
            plain = type(array) is np.ndarray and array.flags.carray and result.flags.carray
            if known and plain and not background and self._now(signature, array, result):
                return DONE
            pending = self._submit(call(array))
            if not background:
                pending.wait()
        finally:
            turn.free()
        return ArrayWork(pending)

    def _in_place(
        self, signature: guard.Signature, array: np.ndarray, background: bool,
        call: Callable[[np.ndarray], Call], writes: bool = True,
    ) -> ArrayWork:  # fmt: skip
        """Begin what `call` makes of the elements of `array` in order. writes: they go back into it."""
        flat = in_order(array)
        work = self._begin(signature, flat, flat, background, call)
        if writes and not array.flags.c_contiguous:
            work = ArrayWork(work._pending, partial(write_back, array, flat))
        if not background:
            work.wait()
        return work

    def _gather(self, array: np.ndarray, name: str, label: str) -> np.ndarray:
        """An array of shape (size, *array.shape) with the arrays of all ranks."""
        rows, work = self._start_gather(array, name, label)
        work.wait()
        return rows

    def _start_gather(
        self, array: np.ndarray, name: str, label: str, background: bool = False, out: np.ndarray | None = None,
    ) -> tuple[np.ndarray, ArrayWork]:  # fmt: skip
        check_array(name, array)
        flat = in_order(array)
        rows = filled(out, array, (self.size, flat.size))
        signature = guard.signature(name, array.dtype, array.shape, label)
        work = self._begin(
            signature, flat, rows, background, lambda flat: Gather(signature, flat, rows, background)
        )
        return rows.reshape(self.size, *array.shape), work

"""The worker processes of a DataLoader, seen from the program: start, feed, read, stop.

Start method: a fork server by default, or spawn where there is none. A fork of the program itself
copies a process in which MPI, CUDA or other threads may be at work, and their locks and connections do
not survive that; the fork server is a fresh process without any of them. It has imported ddpgrad, so that
a worker starts in the time that the program's own imports take. Each worker has a connection of its own;
one that dies can spoil no lock or queue that the others use.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing import connection as connections
from multiprocessing import reduction
from typing import Any, NamedTuple

import numpy as np

from ... import cuda
from .fetch import Recipe
from .packing import pack, unpack
from .shared_memory import Lease, Segment, fill, spans
from .worker import NOTHING, SAMPLE, STARTING, Epoch, Result, Start, Task, main

_SLICE = 0.5  # seconds of one wait, between which an interrupt is seen in any thread
_ENDING = 5.0  # seconds that workers have to end by themselves
_STARTING = 120.0  # seconds that a worker may take to import the program, where a timeout is given
_SOCKET_NAME = 108  # bytes of a Unix socket's name with the zero at its end


class WorkerEnded:
    """An answer: the iterable dataset of this worker has no more samples."""


class ReadFailed(NamedTuple):
    """An answer: what the dataset, or a function of the program's, raised in the worker."""

    error: BaseException


class Pool:
    """`num_workers` processes that read by `recipe`.

    prefetch: the batches that a worker prepares ahead; three times as many may be lent to living tensors
    before batches are copied into memory of their own.
    """

    def __init__(
        self,
        num_workers: int,
        recipe: Recipe,
        init: Callable[[int], None] | None,
        base_seed: int,
        prefetch: int,
        context: Any,
    ) -> None:
        context = start_context(context)
        cargo, buffers = _pack_cargo(recipe, init, num_workers)
        places = spans(buffers)
        arrays = Segment.create(places[-1][1] if places else 0)
        fill(arrays, buffers, places)
        self.workers: list[Worker] = []
        # Also at exit, and when the iteration is dropped before its end.
        self._ending = weakref.finalize(self, _end, self.workers)
        for number in range(num_workers):
            progress = Segment.create(2 * np.dtype(np.int64).itemsize)
            start = Start(number, num_workers, base_seed, cargo, arrays, places, progress)
            self.workers.append(Worker(context, start, lendable=3 * max(prefetch, 1)))

    def begin(self, base_seed: int, seeded: bool) -> None:
        """Begin an epoch; what was asked for before is no longer wanted."""
        for worker in self.workers:
            worker.send(Epoch(base_seed, seeded))

    def close(self) -> None:
        """End the workers. Tensors that they made stay."""
        self._ending()

    def kill(self) -> None:
        """End the workers without waiting for what they do."""
        for worker in self.workers:
            worker.process.kill()
        self._ending()


class Worker:
    """One worker process, and the memory that its batches arrive in."""

    def __init__(self, context: Any, start: Start, lendable: int) -> None:
        self.id = start.id
        self._progress = start.progress.array[:16].view(np.int64)
        self._lendable = lendable
        self._segments: dict[int, Segment] = {}
        self._free: deque[int] = deque()  # slots to return; appended to whenever a tensor dies
        self._out = 0  # slots that the worker may not use, those in `_free` included
        self._asked: dict[int, Any] = {}  # number of a task -> what it reads
        self._last = 0
        self._connection, theirs = context.Pipe()
        self.process = context.Process(
            target=main, args=(theirs, start), daemon=True, name=f"DataLoader worker {start.id}"
        )
        try:
            self.process.start()
        finally:
            theirs.close()

    def send(self, message: Any) -> None:
        """Send `message`, or None to end the worker."""
        # If it has died, the next `receive` says so, and knows more.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(message)

    def ask(self, work: Any) -> int:
        """Send a task; its number."""
        self._last += 1
        self._asked[self._last] = work
        free = [self._free.popleft() for _ in range(len(self._free))]
        self._out -= len(free)
        self.send(Task(self._last, work, free))
        return self._last

    def receive(self, number: int, timeout: float) -> Any:
        """The answer to task `number`, the oldest that is wanted: a batch, `WorkerEnded` or `ReadFailed`.

        RuntimeError when the worker dies, or gives no answer for `timeout` seconds (0: wait on). The time that it
        takes to start does not count.
        """
        while True:
            result = self._next_result(timeout)
            work = self._asked.pop(result.number)
            batch = self._open(result)
            if result.number == number:
                break
        if result.ended:
            return WorkerEnded()
        if result.failed:
            return ReadFailed(self._failure(unpack(result.data, ()), work))
        return batch

    def _next_result(self, timeout: float) -> Result:
        began = waiting_since = time.monotonic()
        try:
            while not self._connection.poll(0):
                ready = connections.wait([self._connection, self.process.sentinel], _SLICE)
                if self.process.sentinel in ready and not self._connection.poll(0):
                    raise EOFError
                now = time.monotonic()
                if self._progress[0] == STARTING and now - began < _STARTING:
                    waiting_since = now
                elif timeout and not ready and now - waiting_since > timeout:
                    raise RuntimeError(
                        f"DataLoader timed out after {timeout} seconds: worker {self.id} (pid {self.process.pid}) "
                        f"{self._doing()}. Give a larger timeout if reading may take so long"
                    )
            result = self._connection.recv()
            if result.new_slot is not None:
                fd = reduction.recv_handle(self._connection)
                self._segments[result.slot] = segment = Segment(fd, result.new_slot)
                segment.forget_file()
            return result
        except (EOFError, ConnectionResetError):
            raise self._death() from None

    def _open(self, result: Result) -> Any:
        """The batch, in place where memory may be lent, else copied."""
        for slot in result.dropped:
            del self._segments[slot]
        if result.ended or result.failed:
            return None
        slot = result.slot
        if slot is None:
            return unpack(result.data, ())
        segment, free = self._segments[slot], self._free
        self._out += 1
        if self._out - len(free) > self._lendable:
            memory = segment.array[: result.places[-1][1]].copy()
            free.append(slot)
        else:
            memory = np.asarray(Lease(segment, lambda: free.append(slot)))
        arrays = [memory[begin:end] for begin, end in result.places]
        data = result.data or arrays.pop().tobytes()
        return unpack(data, arrays)

    # -- what went wrong ---------------------------------------------------------------

    def _doing(self) -> str:
        """What the worker does, as it last said, and what it was asked for."""
        state, index = self._progress.tolist()
        current = next(iter(self._asked.values()), None)
        batch = f" of the batch {_shortened(current)}" if isinstance(current, (list, tuple)) else ""
        if state == SAMPLE:
            return f"is reading sample {index}{batch}"
        if state == STARTING:
            return "is starting"
        if state == NOTHING:
            return f"is between two samples{batch}" if batch else "is between two samples"
        return f"is reading a sample{batch}"

    def _death(self) -> RuntimeError:
        self.process.join(_SLICE)
        code = self.process.exitcode
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = signal.Signals(-code).name
        if self._progress[0] == STARTING:
            advice = (
                "If it printed a traceback, that is the reason. A worker imports the "
                "program, so what a program does must stand under `if __name__ == '__main__':`"
            )
        elif how == "SIGKILL":
            advice = "If the system ran out of memory, use fewer workers or smaller batches"
        else:
            advice = "With num_workers=0 the same sample is read in the program itself"
        return RuntimeError(
            f"DataLoader worker (pid(s) {self.process.pid}) exited unexpectedly: worker {self.id} ended with "
            f"{how}; it {self._doing().replace('is ', 'was ', 1)}. {advice}"
        )

    def _failure(self, told: tuple[type[BaseException] | None, Any, str], work: Any) -> BaseException:
        """The exception for what a worker told of one: its type, the sample, its traceback."""
        kind, sample, trace = told
        where = "" if sample is None else f" at sample {sample!r}"
        batch = f" of the batch {_shortened(work)}" if isinstance(work, (list, tuple)) else ""
        kind = kind or RuntimeError
        message = (
            f"Caught {kind.__name__} in DataLoader worker process {self.id}{where}{batch}.\nOriginal {trace}"
        )
        if kind is KeyError:
            return KeyError(_Verbatim(message))
        if not issubclass(kind, StopIteration):  # that one would end the loop without a word
            # One that wants other arguments cannot be made; its name is in the message.
            with contextlib.suppress(Exception):
                return kind(message)
        return RuntimeError(message)


class _Verbatim(str):
    """A text that KeyError prints as it is."""

    def __repr__(self) -> str:
        return str(self)


def _shortened(indices: Any) -> str:
    shown = list(indices)
    return repr(shown) if len(shown) <= 8 else f"{repr(shown[:6])[:-1]}, …] ({len(shown)} samples)"


def _end(workers: list[Worker]) -> None:
    """Tell the workers to end; after some seconds kill those that still do something."""
    for worker in workers:
        worker.send(None)
        worker._connection.close()
    deadline = time.monotonic() + _ENDING
    for worker in workers:
        worker.process.join(max(deadline - time.monotonic(), 0))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.process.close()


def _pack_cargo(recipe: Recipe, init: Any, num_workers: int) -> tuple[bytes, list[memoryview]]:
    try:
        return pack((recipe, init))
    except Exception as error:
        error.add_note(
            f"DataLoader(num_workers={num_workers}): the dataset, collate_fn or worker_init_fn cannot be sent to a "
            "worker process. Define functions and classes at the top of a module, not inside others or as a "
            "lambda, and open files in the worker; or use num_workers=0"
        )
        raise


def start_context(chosen: Any) -> Any:
    """The multiprocessing context for `DataLoader(multiprocessing_context=…)`, a name, a context or None."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(
            "a DataLoader with workers is iterated over while a worker imports this program: what the program "
            "does must stand under `if __name__ == '__main__':`, or in a function called there. Otherwise every "
            "worker would run it again"
        )
    if chosen is None:
        chosen = _start_method()
    context = multiprocessing.get_context(chosen) if isinstance(chosen, str) else chosen
    method = context.get_start_method()
    if method == "fork" and (reason := _why_not_fork()):
        raise RuntimeError(
            f"DataLoader(multiprocessing_context='fork'): {reason}, and a forked copy of this process could "
            "hang or corrupt it. Use 'forkserver' (the default) or 'spawn'"
        )
    if method == "forkserver":
        context.set_forkserver_preload([f"{__package__}.forkserver"])
    return context


def _start_method() -> str:
    """The fork server, or spawn where there is none, or where TMPDIR leaves its socket no name that Linux takes."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return "spawn"
    socket_name = os.path.join(tempfile.gettempdir(), "pymp-12345678", "listener-12345678")
    return "forkserver" if len(os.fsencode(socket_name)) < _SOCKET_NAME else "spawn"


def _why_not_fork() -> str | None:
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized():
        return "MPI is initialised"
    if "cupy" in sys.modules and cuda.is_initialized():
        return "CUDA is in use"
    if threading.active_count() > 1:
        return f"{threading.active_count()} threads are running"
    return None

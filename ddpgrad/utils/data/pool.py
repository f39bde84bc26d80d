"""The worker processes of a DataLoader, seen from the program: start, feed, read, stop.

How they are started is told in `start_method.py`. Each worker has a connection of its own; one that dies can
spoil no lock or queue that the others use.
"""

from __future__ import annotations

import contextlib
import signal
import time
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing import connection as connections
from multiprocessing import reduction
from typing import Any, NamedTuple

import numpy as np

from ...core import environment
from ...core.spans import wait_for
from .fetch import Recipe
from .packing import pack, unpack
from .shared_memory import Lease, Segment, fill, spans
from .start_method import start_context, why_not_fork
from .worker import NOTHING, SAMPLE, STARTING, Epoch, Name, Result, Start, Task, main

MP_STATUS_CHECK_INTERVAL = 0.5  # seconds of one wait, between which an interrupt is seen in any thread
HAS_NUMPY = True
_ENDING = 5.0  # seconds that workers have to end by themselves
_STARTING = 120.0  # seconds that a worker may take to import the program, where a timeout is given


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
        context, cargo, buffers = _prepared(context, recipe, init, num_workers)
        places = spans(buffers)
        arrays = Segment.create(places[-1][1] if places else 0)
        fill(arrays, buffers, places)
        self.workers: list[Worker] = []
        # Also at exit, and when the iteration is dropped before its end.
        self._ending = weakref.finalize(self, _end, self.workers)
        for number in range(num_workers):
            progress = Segment.create(2 * np.dtype(np.int64).itemsize)
            start = Start(
                number, num_workers, base_seed, cargo, arrays, places, progress, environment.ranks()
            )
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
            target=main, args=(theirs, start), daemon=True, name=Name(f"DataLoader worker {start.id}")
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
                ready = connections.wait([self._connection, self.process.sentinel], MP_STATUS_CHECK_INTERVAL)
                if self.process.sentinel in ready and not self._connection.poll(0):
                    raise EOFError
                now = time.monotonic()
                if not ready:
                    wait_for(f"DataLoader worker {self.id} (pid {self.process.pid}), which {self._doing()}")
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
        finally:
            wait_for(None)

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
        self.process.join(MP_STATUS_CHECK_INTERVAL)
        code = self.process.exitcode
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = signal.Signals(-code).name
        if self._progress[0] == STARTING:
            advice = (
                "If it printed a traceback, that is the reason. A worker that is not forked imports the "
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
            return KeyError(KeyErrorMessage(message))
        if not issubclass(kind, StopIteration):  # that one would end the loop without a word
            # One that wants other arguments cannot be made; its name is in the message.
            with contextlib.suppress(Exception):
                return kind(message)
        return RuntimeError(message)


class KeyErrorMessage(str):
    """A text that KeyError, which prints the repr of its argument, prints as it is."""

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


def _prepared(chosen: Any, recipe: Recipe, init: Any, num_workers: int) -> tuple[Any, Any, list[memoryview]]:
    """The context that starts the workers, and what they get: as a pickle and its arrays, or as it is if forked."""
    context = start_context(chosen, num_workers)
    if context.get_start_method() == "fork":
        return context, (recipe, init), []
    try:
        return context, *pack((recipe, init))
    except Exception as error:
        if chosen is None and why_not_fork() is None:
            return start_context("fork", num_workers), (recipe, init), []
        error.add_note(
            f"DataLoader(num_workers={num_workers}): the dataset, collate_fn or worker_init_fn cannot be sent to a "
            "worker process. Define functions and classes at the top of a module, not inside others or as a "
            "lambda, and open files in the worker; or use num_workers=0"
        )
        raise

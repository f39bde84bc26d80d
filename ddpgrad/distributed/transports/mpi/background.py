"""The thread that carries out the collectives of an MPI transport that nobody waits for yet, in order."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence

from ..base import Pending, again
from ..calls import Call


class Background:
    """The thread; it starts with the first collective. run: carries out one in this process."""

    def __init__(self, run: Callable[[Sequence[Call]], None]) -> None:
        self._run = run
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._latest: _Task | None = None

    def post(self, calls: Sequence[Call]) -> Pending:
        """Let the thread carry out one more."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="ddpgrad MPI", daemon=True)
            self._thread.start()
        self._latest = _Task(calls)
        self._tasks.put(self._latest)
        return self._latest

    def busy(self) -> bool:
        """True while something is left. Raises what went wrong with the latest."""
        return self._latest is not None and not self._latest.poll()

    def finish(self) -> None:
        """Return when nothing is left."""
        if self._latest is not None:
            self._latest.done.wait()

    def end(self, limit: float) -> bool:
        """End the thread; False if it is still at work after `limit` seconds."""
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._tasks.put(None)
        self._thread.join(limit)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task.began = time.monotonic()
            try:
                self._run(task.calls)
            except BaseException as error:
                task.error = error
            finally:
                task.ended = time.monotonic()
                task.done.set()


class _Task(Pending):
    """A collective for the thread."""

    __slots__ = ("began", "calls", "done", "ended", "error")

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = calls
        self.done = threading.Event()
        self.error: BaseException | None = None
        self.began = self.ended = 0.0

    @property
    def carried(self) -> tuple[float, float]:
        return self.began, self.ended

    def poll(self) -> bool:
        if not self.done.is_set():
            return False
        if self.error is not None:
            raise again(self.error)
        return True

    def wait(self) -> None:
        self.done.wait()
        self.poll()

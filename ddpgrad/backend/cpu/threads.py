"""More threads for one large kernel, as many as BLAS has: parts of it that do not hold the GIL, beside one another.

No result depends on their number: each element is computed by one of them, and sums have an order of their own. (BLAS's
products of few rows are the exception: see `matmul.py`.)
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

Work = Callable[[int, int], Any]

# Elements of which one thread has done much before another has begun, where an element takes less than a nanosecond.
WORTH_SHARING = 1 << 17
PER_ELEMENT = 50  # multiplications of a product in the time of such an element
_DONE = 8  # the place of its count, a line of the cache away from that of parts that are posted


class _Helper:
    """A thread that computes parts. It watches for the next for a while, as does who waits for it, before either sleeps."""

    def __init__(self) -> None:
        from .watching import watch  # Numba

        self._watch = watch()
        self._counts = np.zeros(2 * _DONE, np.int64)
        self._address = self._counts.ctypes.data
        self._posted = 0
        self._parts: SimpleQueue[tuple[Work, int, int] | None] = SimpleQueue()
        self._errors: SimpleQueue[tuple[int, BaseException | None]] = SimpleQueue()
        self._avoids = -1  # a core
        self._thread = threading.Thread(target=self._run, name="ddpgrad-helper", daemon=True)
        self._thread.__dict__["holds_no_lock"] = True  # so a loader may fork the process
        self._thread.start()

    def post(self, part: tuple[Work, int, int] | None) -> None:
        """Compute a part; None: end."""
        self._posted += 1
        self._parts.put(part)
        self._counts[0] = self._posted

    def error(self) -> BaseException | None:
        """What the part raised, when it is done."""
        self._watch(self._address + 8 * _DONE, self._posted)
        while True:
            number, error = self._errors.get()
            if number == self._posted:  # no one from before, for which an interrupt ended the wait
                return error

    def here(self) -> int:
        """The core of the calling thread."""
        return self._watch(self._address, self._posted)

    def avoid(self, core: int) -> None:
        """Run on other cores: of machines whose cores share no cache, Linux may wake a thread on that of who wakes it."""
        if core != self._avoids:
            self._avoids = core
            others = os.sched_getaffinity(0) - {core}
            if others and self._thread.native_id is not None:
                with contextlib.suppress(OSError):  # where threads may not choose, it is only slower
                    os.sched_setaffinity(self._thread.native_id, others)

    def _run(self) -> None:
        done = 0
        while True:
            self._watch(self._address, done + 1)
            part = self._parts.get()
            if part is None:
                return
            error = _error_of(*part)
            part = None  # or its arrays would be there until the next comes
            done += 1
            self._errors.put((done, error))
            self._counts[_DONE] = done


class _Team:
    """count: threads with the one that asks, None until somebody does. lock: held by whom the helpers work for.

    blas: what sets the number of threads of each library that has so many, and how many it has.
    """

    count: int | None = None
    helpers: tuple[_Helper, ...] = ()
    blas: tuple[tuple[Callable[[int], Any], int], ...] = ()
    lock = threading.Lock()


class _Part(threading.local):
    """inside: whether the calling thread computes a part, which it shares with nobody."""

    inside = False


team, _part = _Team(), _Part()


def blas_threads() -> int:
    """The number of threads that BLAS may use."""
    with team.lock:
        libraries = ThreadpoolController().select(user_api="blas").lib_controllers
        # What threadpoolctl offers since 3.6 does nothing in any thread but the first that uses it.
        setters = [
            getattr(library, "_real_set_num_threads", library.set_num_threads) for library in libraries
        ]
        team.blas = tuple(zip(setters, [library.num_threads for library in libraries], strict=True))
    return max((count for _, count in team.blas), default=1)


def set_threads(count: int) -> None:
    """Let BLAS and the kernels of this package use `count` threads."""
    blas_threads()
    for set_number, _ in team.blas:
        set_number(count)
    forget()


def threads() -> int:
    """The number of threads that the calling one may share a kernel between."""
    count = team.count
    if count is None:
        count = team.count = blas_threads()
    return 1 if count == 1 or _part.inside else count


def forget() -> None:
    """Ask anew how many threads there are: their number was changed."""
    with team.lock:
        for helper in team.helpers:
            helper.post(None)
        team.count, team.helpers = None, ()


def _in_a_new_process() -> None:
    team.count, team.helpers, team.lock, _part.inside = None, (), threading.Lock(), False


os.register_at_fork(after_in_child=_in_a_new_process)


def in_parts(work: Work, length: int, elements: int = WORTH_SHARING, blas: bool = False) -> None:
    """Call work(first, end) for neighbouring parts of range(length), a thread each; the parts may not overlap.

    elements: what they compute together; few are left to the calling thread. blas: the work calls BLAS, which then
    computes in the thread that calls it.
    """
    most = threads()
    count = min(most, length) if elements >= WORTH_SHARING else 1
    limits = blas and most > 1
    if not ((count > 1 or limits) and team.lock.acquire(blocking=False)):
        work(0, length)
        return
    try:
        if limits:
            for set_number, _ in team.blas:
                set_number(1)
        if count > 1:
            _share(work, length, count)
        else:
            work(0, length)
    finally:
        if limits:
            for set_number, usual in team.blas:
                set_number(usual)
        team.lock.release()


def _share(work: Work, length: int, count: int) -> None:
    team.helpers += tuple([_Helper() for _ in range(len(team.helpers), count - 1)])
    edges = [length * i // count for i in range(count + 1)]
    helpers = team.helpers[: count - 1]
    core = helpers[0].here()
    for i, helper in enumerate(helpers, 1):
        helper.avoid(core)
        helper.post((work, edges[i], edges[i + 1]))
    errors = [_error_of(work, 0, edges[1]), *[helper.error() for helper in helpers]]
    for error in errors:
        if error is not None:
            raise error


def _error_of(work: Work, first: int, end: int) -> BaseException | None:
    """Compute a part. What that raises belongs to the thread that asked for it."""
    _part.inside = True
    try:
        work(first, end)
    except BaseException as error:
        return error
    finally:
        _part.inside = False
    return None


def shared(*cut: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A compiled kernel of independent rows, for all threads: they get parts of the arguments `cut`, along the first dimension.

    The first of `cut` is one that has as many elements as any.
    """

    def share(compiled: Any) -> Callable[..., None]:
        names = compiled.py_func.__code__.co_varnames
        places = [names.index(name) for name in cut]
        measure = places[0]

        def call(*args: Any) -> None:
            array = args[measure]
            if array.size < WORTH_SHARING or threads() == 1:
                compiled(*args)
            else:
                in_parts(partial(_rows, compiled, places, args), len(array), array.size)

        return call

    return share


def _rows(compiled: Any, places: list[int], args: tuple[Any, ...], first: int, end: int) -> None:
    given = list(args)
    for place in places:
        given[place] = given[place][first:end]
    compiled(*given)

"""More threads for one large kernel, as many as BLAS has: parts of it that do not hold the GIL, beside one another.

No result depends on their number: each element is computed by one of them, and sums have an order of their own. (BLAS's
products of few rows are the exception: see `matmul.py`.)
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...core import environment

Work = Callable[[int, int], Any]

# Elements of which one thread has done much before another has begun, where an element takes less than a nanosecond.
WORTH_SHARING = 1 << 17
PER_ELEMENT = 50  # multiplications of a product in the time of such an element
MOST_HELPERS = 248


def _nothing(first: int, end: int) -> None:
    pass


class _Helper:
    """A thread that computes parts, of Python's and of NumPy's loops, and waits for them as `watching.py` says."""

    def __init__(self) -> None:
        from . import watching  # Numba

        self.cells = watching.new_cells(watching.CELLS)
        self.address = self.cells.ctypes.data
        self.cells[watching.AVOIDS] = -1
        self._ends = watching.POSTED, watching.DONE
        for place in (watching.SEMAPHORE, watching.OTHER_SEMAPHORE):
            if ctypes.CDLL(None).sem_init(ctypes.c_void_p(self.address + 8 * place), 0, 0):
                raise OSError("the system gives no semaphore for a thread to sleep on")
        self._post, self._take_back, self._until_done, self._serve = [
            watching.compiled(name) for name in ("post_part", "take_back", "until_done", "serve")
        ]
        self._part: tuple[Work, int, int] | None = None  # None: end
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ddpgrad-helper", daemon=True)
        self._thread.__dict__["holds_no_lock"] = True  # so a loader may fork the process
        self._thread.start()
        self.cells[watching.THREAD] = self._thread.native_id or 0
        # From here on it waits without the GIL, which a loop of NumPy's may have while it waits for parts.
        self.post((_nothing, 0, 0))
        self._until_done(self.address)

    def post(self, part: tuple[Work, int, int]) -> bool:
        """Compute a part. False where the helper is not awake yet since it was asked before."""
        if self.cells[self._ends[0]] != self.cells[self._ends[1]]:
            return False
        self._part, self._error = part, None
        self._post(self.address)
        return True

    def error(self, part: tuple[Work, int, int]) -> BaseException | None:
        """What the part that was posted raised, when it is done: here, where the helper has not begun."""
        if self._take_back(self.address):
            self._part = None
            return _error_of(*part)
        self._until_done(self.address)
        return self._error

    def end(self) -> None:
        """Let the thread end."""
        self._until_done(self.address)
        self._part = None
        self._post(self.address)

    def _run(self) -> None:
        finishes = False
        while True:
            self._serve(self.address, finishes)
            part, self._part = self._part, None
            if part is None:
                return
            self._error = _error_of(*part)
            part = None  # or its arrays would be there until the next comes
            finishes = True


class _Team:
    """count: threads with the one that asks, None until somebody does. lock: held by whom they work for.

    gathered: whether the helpers are there, or it is known that there are none. What they need takes a second to compile where it
    is not on disk, so that programs of small tensors do without.
    chosen: the number that the process has set last. seen: the files of the libraries that there were when somebody looked.
    helpers: of which NumPy's loops may ask, too, so whoever does holds the lock in `watching.STATE`. blas: what sets the number
    of threads of each library that has so many, and how many it has.
    """

    count: int | None = None
    chosen: int | None = None
    seen: frozenset[str] = frozenset()
    gathered = False
    helpers: tuple[_Helper, ...] = ()
    watching: Any = None  # the module, which is Numba's
    blas: tuple[tuple[Callable[[int], Any], int], ...] = ()
    lock = threading.Lock()


class _Part(threading.local):
    """inside: whether the calling thread computes a part, which it shares with nobody."""

    inside = False


team, _part = _Team(), _Part()


def blas_threads() -> int:
    """The number of threads that BLAS may use."""
    from threadpoolctl import ThreadpoolController

    with team.lock:
        libraries = ThreadpoolController().select(user_api="blas").lib_controllers
        # What threadpoolctl offers since 3.6 does nothing in any thread but the first that uses it.
        setters = [
            getattr(library, "_real_set_num_threads", library.set_num_threads) for library in libraries
        ]
        for library, set_number in zip(libraries, setters, strict=True):
            if team.chosen is not None and library.filepath not in team.seen:
                set_number(team.chosen)  # loaded since that was set
        team.seen = frozenset(library.filepath for library in libraries)
        team.blas = tuple(zip(setters, [library.num_threads for library in libraries], strict=True))
    return max((count for _, count in team.blas), default=1)


def set_threads(count: int) -> None:
    """Let BLAS and the kernels of this package use `count` threads."""
    team.chosen = count
    blas_threads()
    for set_number, _ in team.blas:
        set_number(count)
    forget()


def threads() -> int:
    """The number of threads that the calling one may share a kernel between."""
    count = team.count
    if count is None:
        count = min(blas_threads(), MOST_HELPERS + 1) if environment.numba_enabled() else 1
        team.count = count
    return 1 if count == 1 or _part.inside else count


def expect(array: Any) -> Any:
    """A new array. Where it is large, the threads that will compute with it are gathered."""
    if not team.gathered and array.__class__ is np.ndarray and array.size >= WORTH_SHARING // 2:
        threads()
        _gather()
    return array


def _gather() -> None:
    """Have the other threads, and let NumPy's loops be shared by them."""
    with team.lock:
        count = team.count
        if not team.gathered and count is not None:
            if count > 1:
                from . import repeated_rows, shared_loops, watching

                shared_loops.install()
                repeated_rows.install()
                team.helpers = tuple([_Helper() for _ in range(count - 1)])
                for i, helper in enumerate(team.helpers):
                    watching.STATE[watching.FIRST_HELPER + i] = helper.address
                watching.STATE[watching.HELPERS] = count - 1
                # Without the GIL they begin sooner than a part of Python's.
                watching.STATE[watching.LEAST] = max(WORTH_SHARING // 2, 4 * watching.GRAIN)
                team.watching = watching
            team.gathered = True


def forget() -> None:
    """Ask anew how many threads there are: their number was changed."""
    with team.lock:
        if team.helpers:
            state = _say_that_none_help()
            team.watching.compiled("lock")(state, True)  # until a loop that they work at is done
            for helper in team.helpers:
                helper.end()
            team.watching.compiled("unlock")(state)
        team.count, team.gathered, team.helpers = None, False, ()


def _say_that_none_help() -> int:
    """End the sharing of NumPy's loops. Returns the address of what says so."""
    state = team.watching.STATE
    state[team.watching.LEAST] = team.watching.NEVER
    return state.ctypes.data


def _in_a_new_process() -> None:
    if team.helpers:
        _say_that_none_help()
        team.watching.STATE[team.watching.LOCK] = 0
    team.count, team.gathered, team.helpers, team.lock = None, False, (), threading.Lock()
    _part.inside = False


os.register_at_fork(after_in_child=_in_a_new_process)


def in_parts(work: Work, length: int, elements: int = WORTH_SHARING, blas: bool = False) -> None:
    """Call work(first, end) for neighbouring parts of range(length), a thread each; the parts may not overlap.

    elements: what they compute together; few are left to the calling thread. blas: the work calls BLAS, which then
    computes in the thread that calls it.
    """
    most = threads()
    count = min(most, length) if elements >= WORTH_SHARING else 1
    if count > 1 and not team.gathered:
        _gather()
    limits = blas and most > 1
    if not ((count > 1 or limits) and team.lock.acquire(blocking=False)):
        work(0, length)
        return
    try:
        if limits:
            for set_number, _ in team.blas:
                set_number(1)
        if count == 1 or not _share(work, length, count):
            work(0, length)
    finally:
        if limits:
            for set_number, usual in team.blas:
                set_number(usual)
        team.lock.release()


def _share(work: Work, length: int, count: int) -> bool:
    """Do the parts, of which helpers do all but the first. False where a loop of NumPy's in another thread has them."""
    watching, helpers = team.watching, team.helpers[: count - 1]
    state = watching.STATE.ctypes.data
    if not watching.compiled("lock")(state, False):
        return False
    try:
        edges = [length * i // count for i in range(count + 1)]
        parts = [(work, edges[i], edges[i + 1]) for i in range(count)]
        posted = [helper.post(part) for helper, part in zip(helpers, parts[1:], strict=True)]
        errors = [_error_of(*parts[0])]
        for helper, part, there in zip(helpers, parts[1:], posted, strict=True):
            errors.append(helper.error(part) if there else _error_of(*part))
    finally:
        watching.compiled("unlock")(state)
    failed = next((error for error in errors if error is not None), None)
    try:
        if failed is not None:
            raise failed
    finally:
        del errors, failed  # which would keep this frame, and it them
    return True


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

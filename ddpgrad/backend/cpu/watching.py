"""How threads of compiled code wait for one another, without the GIL, and share an inner loop of NumPy's.

Who waits watches a number that another thread counts up, for a while, before it sleeps: to sleep and be woken takes longer
than many kernels. All that a helper and who asks it have in common lies in an array of int64, its *cells*.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from .element_loops import pointer
from .inner_loops import address_of, call, feeds_itself, few_words
from .kernel_cache import cached
from .register_tile import intrinsic
from .threads import MOST_HELPERS
from .vectormath import _OPTIONS, instruction

_LOOKS = 1 << 9  # 0.1 to 0.2 ms

# Places in a helper's cells, where a line of the cache is 8 of them: parts that were posted, and whether the helper sleeps;
# parts that are done, whether who asked sleeps, what a loop found of infinities and the like, whether somebody has begun the
# part, and whether it was posted; what to do, where a loop of
# 0 is Python's; the operands; what both sleep on; cores.
POSTED, _ASLEEP = 0, 1
DONE, _WAITING, _FLAGS, _BEGUN, _IS_POSTED = 8, 9, 10, 11, 12
_LOOP, _DATA, _COUNT, THREAD, AVOIDS = 16, 17, 18, 19, 20
_PLACES, _STEPS = 24, 32  # of at most `inner_loops.MOST` operands
SEMAPHORE, OTHER_SEMAPHORE = 40, 44
_CORES, _CORES_END = 48, 64
CELLS = 64

# Places in what all loops are told: whether the helpers work for somebody, elements that are worth their while, and who they are.
LOCK, LEAST, HELPERS, FIRST_HELPER = 0, 1, 2, 8
NEVER = 1 << 62
GRAIN = 1 << 8  # parts end where vectors do, whatever their width, so that no element is computed otherwise

_EXCEPTIONS = 0x3F  # all of <fenv.h>, whatever the processor


@instruction
def _look(typingctx: Any, address: Any) -> Any:
    """The int64 at an address, after other threads that wait for the core have had it."""
    if address != types.intp:
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.call(intrinsic(builder, "sched_yield", ir.IntType(32), []), [])
        place = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(place, "acquire", 8)

    return types.int64(types.intp), codegen


@instruction
def _swap(typingctx: Any, address: Any, value: Any) -> Any:
    """What was at an address, where `value` is from here on; what was written before is seen by who sees that."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("xchg", place, args[1], "seq_cst")

    return types.int64(types.intp, types.int64), codegen


def _of_c(name: str, *bits: int) -> Any:
    """A function of the C library that returns an int: of integers of so many bits."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds: list[Any] = [ir.IntType(n) for n in bits]
        given = [
            builder.trunc(x, kind) if kind.width < 64 else x for x, kind in zip(args, kinds, strict=True)
        ]
        return builder.call(intrinsic(builder, name, ir.IntType(32), kinds), given)

    def one(typingctx: Any, a: Any) -> Any:
        return types.int32(types.int64), build

    def three(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
        return types.int32(*[types.int64] * 3), build

    return instruction(one if len(bits) == 1 else three)


_sem_wait, _sem_post = _of_c("sem_wait", 64), _of_c("sem_post", 64)
_clear, _raised, _raise = _of_c("feclearexcept", 32), _of_c("fetestexcept", 32), _of_c("feraiseexcept", 32)
_cores_of, _set_cores = _of_c("sched_getaffinity", 32, 64, 64), _of_c("sched_setaffinity", 32, 64, 64)


@instruction
def _core(typingctx: Any) -> Any:
    """The number of the core that this runs on, -1 where the C library does not say."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not hasattr(ctypes.CDLL(None), "sched_getcpu"):
            return ir.Constant(ir.IntType(32), -1)
        return builder.call(intrinsic(builder, "sched_getcpu", ir.IntType(32), []), [])

    return types.int32(), codegen


@njit(**_OPTIONS)
def _wait(count, value, asleep, semaphore):
    """Return when the int64 at `count` is `value` or more."""
    while True:
        for _ in range(_LOOKS):
            if _look(count) >= value:
                return
        _swap(asleep, 1)
        if _look(count) >= value:
            return
        _sem_wait(semaphore)


@njit(**_OPTIONS)
def _avoid(at, core):
    """Have a helper run on other cores: of machines whose cores share no cache, Linux may wake a thread on that of who wakes it."""
    cells = pointer(at, 0)
    if cells[AVOIDS] == core or cells[THREAD] == 0:
        return
    cells[AVOIDS] = core
    others = 0
    for i in range(_CORES, _CORES_END):
        cells[i] = 0
    _cores_of(0, 8 * (_CORES_END - _CORES), at + 8 * _CORES)
    if 0 <= core < 64 * (_CORES_END - _CORES):
        cells[_CORES + core // 64] &= ~(1 << (core % 64))
    for i in range(_CORES, _CORES_END):
        others |= cells[i]
    if others != 0:  # where threads may not choose, it is only slower
        _set_cores(cells[THREAD], 8 * (_CORES_END - _CORES), at + 8 * _CORES)


@njit(**_OPTIONS)
def _post(at, core):
    """Have the helper do what its cells say. core: of who asks."""
    _avoid(at, core)
    _swap(at + 8 * POSTED, pointer(at, 0)[POSTED] + 1)
    if _swap(at + 8 * _ASLEEP, 0) == 1:
        _sem_post(at + 8 * SEMAPHORE)


@njit(**_OPTIONS)
def _finish(at):
    """Say that the part is done."""
    _swap(at + 8 * DONE, pointer(at, 0)[DONE] + 1)
    if _swap(at + 8 * _WAITING, 0) == 1:
        _sem_post(at + 8 * OTHER_SEMAPHORE)


def _until_done(at):
    _wait(at + 8 * DONE, pointer(at, 0)[POSTED], at + 8 * _WAITING, at + 8 * OTHER_SEMAPHORE)


def _serve(at, finishes):
    cells = pointer(at, 0)
    if finishes:
        _finish(at)
    while True:
        _wait(at + 8 * POSTED, cells[DONE] + 1, at + 8 * _ASLEEP, at + 8 * SEMAPHORE)
        if _swap(at + 8 * _BEGUN, 1) == 0:
            if cells[_LOOP] == 0:
                return
            _clear(_EXCEPTIONS)
            call(cells[_LOOP], at + 8 * _PLACES, at + 8 * _COUNT, at + 8 * _STEPS, cells[_DATA])
            cells[_FLAGS] = _raised(_EXCEPTIONS)
        _finish(at)


def _post_part(at):
    cells = pointer(at, 0)
    cells[_LOOP] = cells[_BEGUN] = 0
    _post(at, _core())


def _take_back(at):
    return _swap(at + 8 * _BEGUN, 1) == 0


def _lock(state, patient):
    while _swap(state + 8 * LOCK, 1) != 0:
        if not patient:
            return False
        _look(state)
    return True


def _unlock(state):
    _swap(state + 8 * LOCK, 0)


_compile: Any = njit(**_OPTIONS)
_until_done_, _lock_, _unlock_ = _compile(_until_done), _compile(_lock), _compile(_unlock)


@njit(**_OPTIONS)
def _end_of_part(count, k, parts):
    return count if k == parts - 1 else count * (k + 1) // parts // GRAIN * GRAIN


@njit(**_OPTIONS)
def share(args, count, steps, loop, data, inputs, operands, state_at):
    """Have helpers do parts of an inner loop. False where it has to be done at once, or they are busy.

    A part that its helper has not begun when the first is done, as its core is busy, is done here.
    """
    state = pointer(state_at, 0)
    if feeds_itself(args, steps, inputs, operands, count) or not _lock_(state_at, False):
        return False
    parts, core = state[HELPERS] + 1, _core()
    for k in range(1, parts):
        at = state[FIRST_HELPER + k - 1]
        cells = pointer(at, 0)
        cells[_IS_POSTED] = (
            cells[DONE] == cells[POSTED]
        )  # if not, it is not awake since a part that was done elsewhere
        if cells[_IS_POSTED]:
            begin = _end_of_part(count, k - 1, parts)
            cells[_LOOP], cells[_DATA] = loop, data
            cells[_COUNT], cells[_BEGUN] = _end_of_part(count, k, parts) - begin, 0
            for i in range(operands):
                cells[_PLACES + i], cells[_STEPS + i] = args[i] + begin * steps[i], steps[i]
            _post(at, core)
    size, places = few_words(), few_words()
    pointer(size, 0)[0] = _end_of_part(count, 0, parts)
    call(loop, address_of(args), size, address_of(steps), data)
    raised = 0
    for k in range(1, parts):
        at = state[FIRST_HELPER + k - 1]
        cells = pointer(at, 0)
        if cells[_IS_POSTED] and _swap(at + 8 * _BEGUN, 1) == 1:
            _until_done_(at)
            raised |= cells[_FLAGS]
        else:
            begin = _end_of_part(count, k - 1, parts)
            pointer(size, 0)[0] = _end_of_part(count, k, parts) - begin
            for i in range(operands):
                pointer(places, 0)[i] = args[i] + begin * steps[i]
            call(loop, places, size, address_of(steps), data)
    _unlock_(state_at)
    if raised != 0:
        _raise(raised)
    return True


_ADDRESS, _YES = types.intp, types.boolean
_FOR_PYTHON = {
    "serve": (_serve, _ADDRESS, _YES),
    "post_part": (_post_part, _ADDRESS),
    "take_back": (_take_back, _ADDRESS),
    "until_done": (_until_done, _ADDRESS),
    "lock": (_lock, _ADDRESS, _YES),
    "unlock": (_unlock, _ADDRESS),
}


@cache
def compiled(name: str) -> Any:
    """A function of this file for Python.

    Of a helper's cells: serve(at, finishes) says that a part is done, where one is, and returns when the next of Python's is there;
    post_part(at); take_back(at), False where the helper has begun; until_done(at). Of the state: lock(at, patient) whether it has it; unlock(at).
    """
    body, *arguments = _FOR_PYTHON[name]
    function = cached(njit(**_OPTIONS)(body))
    function.compile(tuple(arguments))
    function.disable_compile()
    return function


def new_cells(count: int) -> np.ndarray[Any, Any]:
    """int64 that begin a line of the cache."""
    room = np.zeros(count + 8, np.int64)
    start = -room.ctypes.data % 64 // 8
    return room[start : start + count]


STATE = new_cells(FIRST_HELPER + MOST_HELPERS)
STATE[LEAST] = NEVER

"""The compiled form of `ways.SmallSum`: post, wait, compare and add in one call.

Numba is loaded when a program has made some hundred small sums; until then, and without Numba, the
Python of `ways` and `control` does the same step by step.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.np.numpy_support import carray

from ....backend.cpu.vectormath import cached, instruction
from ....core.environment import Launch
from ...protocol.compiled_sum import pointer
from .control import DEPTH, Control

# Where a plan has its numbers: addresses, distances in bytes, counts.
(PAGE, LINE, ARRIVED, FINISHED, PROC, PROCS, RECORDS, RECORD, SLOTS, SLOT, WORLD, RANK, RING, DIGEST, SPINS, YIELDS,
 DIVIDES, _LENGTH) = range(18)  # fmt: skip

# How often to look again at once (for some 10 microseconds), and then how often after yielding the core.
_OWN_CORE = 500, 0
_SHARED_CORE = 50, 100
_X86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")


class Plans:
    """The arguments of `post_and_add` for each kind of sum of one transport, as numbers in memory.

    slots: address of the slots, and the bytes of each.
    """

    capacity = 1024

    def __init__(self, control: Control, launch: Launch, slots: tuple[int, int]) -> None:
        self._table = np.zeros((self.capacity, _LENGTH), np.int64)
        memory = control.memory()
        spins, yields = _OWN_CORE if memory.core_each else _SHARED_CORE
        self._table[:] = (
            memory.page, memory.line, memory.arrived, memory.done, launch.proc, launch.procs,
            memory.records, memory.record, *slots, launch.world_size, launch.ranks.start, DEPTH, 0, spins, yields, 0,
        )  # fmt: skip

    def make(self, index: int, dtype: np.dtype, op: str, digest: int) -> int:
        """The address of the plan number `index`: for sums of `dtype`; 0 if NumPy has to do them."""
        if op not in ("sum", "avg") or dtype.char not in "fdilq":
            return 0
        row = self._table[index]
        row[DIGEST] = np.array(digest, np.uint64).view(np.int64)
        row[DIVIDES] = op == "avg"
        return row.__array_interface__["data"][0]


_yield_core = types.ExternalFunction("sched_yield", types.int32())


@instruction
def _look(typingctx: Any, address: Any) -> Any:
    """The word at `address`. Everything that its writer wrote before it is visible after that."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(word, "acquire", 8)

    return types.int64(types.int64), build


@instruction
def _tell(typingctx: Any, address: Any, value: Any) -> Any:
    """Write the word at `address`, after all that was written before."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        builder.store_atomic(arguments[1], word, "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), build


@instruction
def _relax(typingctx: Any) -> Any:
    """Leave the core's other thread, and the memory, alone for a moment (some 20 ns)."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _X86:
            pause = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), pause), [])
        return context.get_dummy_value()

    return types.void(), build


@njit(inline="always")
def _words(address, count):
    return carray(pointer(address), (count,), np.int64)


@njit
def _by_levels(slots, distance, world, n, like):
    """The sum of the slots of `world` ranks: neighbours, then neighbouring pairs, and so on, as `tree` has it."""
    count = (world + 1) // 2
    level = np.empty((count, n), like.dtype)
    for k in range(count):
        level[k] = carray(pointer(slots + 2 * k * distance), (n,), like.dtype)
        if 2 * k + 1 < world:
            level[k] += carray(pointer(slots + (2 * k + 1) * distance), (n,), like.dtype)
    while count > 1:
        for k in range(count // 2):
            level[k] = level[2 * k] + level[2 * k + 1]
        if count % 2:
            level[count // 2] = level[count - 1]
        count = (count + 1) // 2
    return level[0]


# No option of fast mathematics: the order of the sum is promised.
@cached
@njit(error_model="numpy")
def post_and_add(array, plan_address, number):
    """Sum `array` over all ranks, in place, as collective `number`; True when done.

    plan_address: where the numbers named above lie, as int64. If others are late or do not agree, it
    has posted `array`, and the rest is left to the caller.
    """
    p = _words(plan_address, _LENGTH)
    world, n = p[WORLD], array.size
    slots = p[SLOTS] + number % p[RING] * world * p[SLOT]
    mine = carray(pointer(slots + p[RANK] * p[SLOT]), (n,), array.dtype)
    for i in range(n):
        mine[i] = array[i]
    _tell(p[PAGE] + p[PROC] * p[LINE] + p[ARRIVED], number)
    for proc in range(p[PROCS]):
        arrived = p[PAGE] + proc * p[LINE] + p[ARRIVED]
        tries = p[SPINS] + p[YIELDS]
        while _look(arrived) < number:
            tries -= 1
            if tries < p[YIELDS]:
                if tries < 0:
                    return False
                _yield_core()
            else:
                _relax()
    record = p[RECORDS] + number % p[RING] * p[RECORD]
    for _ in range(world):
        if _words(record, 1)[0] != p[DIGEST]:
            return False
        record += p[RING] * p[RECORD]
    a = carray(pointer(slots), (n,), array.dtype)
    b = carray(pointer(slots + p[SLOT]), (n,), array.dtype)
    c = carray(pointer(slots + 2 * p[SLOT]), (n,), array.dtype)
    d = carray(pointer(slots + 3 * p[SLOT]), (n,), array.dtype)
    if world == 2:
        for i in range(n):
            array[i] = a[i] + b[i]
    elif world == 3:
        for i in range(n):
            array[i] = (a[i] + b[i]) + c[i]
    elif world == 4:
        for i in range(n):
            array[i] = (a[i] + b[i]) + (c[i] + d[i])
    else:
        array[:] = _by_levels(slots, p[SLOT], world, n, array)
    if p[DIVIDES]:
        ranks = array.dtype.type(world)
        for i in range(n):
            array[i] = array[i] / ranks
    _tell(p[PAGE] + p[PROC] * p[LINE] + p[FINISHED], number)
    return True

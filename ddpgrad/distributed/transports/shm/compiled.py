"""The compiled form of `ways.AtOnce`: post, wait, compare, and add or copy, in one call.

Numba is loaded when a program has made some hundred small collectives, unless it has loaded it anyway; until then, and
without Numba, the Python of `ways` and `control` does the same step by step.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.np.numpy_support import carray

from ....backend.cpu.vectormath import cached, instruction
from ...protocol.compiled_sum import pointer
from ..calls import Call
from .control import DEPTH
from .slots import SMALL

if TYPE_CHECKING:
    from .transport import ShmTransport

# Where a plan has its numbers: addresses, distances in bytes, counts. Three for each copy follow.
(PAGE, LINE, ARRIVED, FINISHED, PROC, PROCS, RECORDS, RECORD, WORLD, RANK, SPINS, YIELDS,
 SLOTS, SLOT, SLOT_RING, DIGEST, POSTED, FIRST, DIVIDES, COPIES, _LENGTH) = range(21)  # fmt: skip

# How often to look again at once (for some 10 microseconds), and then how often after yielding the core.
_OWN_CORE = 500, 0
_SHARED_CORE = 50, 100
_X86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")

# The dtypes that functions are compiled for, each of which takes a second where nothing is kept on disk. Others are
# copied as bytes, and added by NumPy.
_COPIED = "fB"
_ADDED_IN_PLACE, _ADDED_APART = "fdilq", "fd"


class Plan(NamedTuple):
    """How collectives of one signature are carried out here.

    carry     a compiled function of the arrays, `address`, and the number: a negative one, if the array is posted already
    in_place  there is one array
    address   where the numbers named above lie
    depth     after how many collectives its slots are used again
    size      of the array that is posted, in elements
    as_bytes  the function is for bytes
    memory    keeps what lies at `address`
    """

    carry: Callable[..., bool]
    in_place: bool
    address: int
    depth: int
    size: int
    as_bytes: bool
    memory: np.ndarray


class Plans:
    """Makes the plans of one transport."""

    def __init__(self, transport: ShmTransport) -> None:
        memory, launch = transport.control.memory(), transport.launch
        self._slots = transport.slots
        self._rank, self._world = launch.ranks.start, launch.world_size
        self._fixed = (
            memory.page, memory.line, memory.arrived, memory.done, launch.proc, launch.procs, memory.records,
            memory.record, self._world, self._rank, *(_OWN_CORE if memory.core_each else _SHARED_CORE),
        )  # fmt: skip

    def make(self, call: Call) -> Plan | None:
        """The plan of collectives like `call`; None where Python and NumPy have to carry them out."""
        copies = call.copies(self._rank, self._world)
        char, width = call.array.dtype.char, call.array.itemsize
        in_place = call.result is call.array
        added = _ADDED_IN_PLACE if in_place else _ADDED_APART
        if copies is None or (call.op and (call.op not in ("sum", "avg") or char not in added)):
            return None
        digest = np.array(call.signature.digest, np.uint64).view(np.int64)
        posted = call.array.nbytes if call.contributes(self._rank) else 0
        first = 0 if in_place else self._rank * call.result.size
        slots, slot, ring = self._slots.place(call.extent)
        averages, count = int(call.op == "avg"), len(copies)
        numbers = [*self._fixed, slots, slot, ring, digest, posted, first * width, averages, count]
        for source, there, here, length in copies:
            numbers += [source * slot + there * width, here * width, length * width]
        memory = np.array(numbers, np.int64)
        address = memory.__array_interface__["data"][0]
        carry, as_bytes = _CARRY[bool(call.op), in_place], not call.op and char not in _COPIED
        return Plan(carry, in_place, address, ring, call.array.size, as_bytes, memory)


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
def _by_levels(slots, distance, world, result):
    """The sum of the slots of `world` ranks: neighbours, then neighbouring pairs, and so on, as `tree` has it.

    Sums of whole arrays would compile beside the loops what a text about shapes needs.
    """
    n, count = result.size, (world + 1) // 2
    level = np.empty((count, n), result.dtype)
    for k in range(count):
        row, a = level[k], carray(pointer(slots + 2 * k * distance), (n,), result.dtype)
        for i in range(n):
            row[i] = a[i]
        if 2 * k + 1 < world:
            b = carray(pointer(slots + (2 * k + 1) * distance), (n,), result.dtype)
            for i in range(n):
                row[i] += b[i]
    while count > 1:
        for k in range(count // 2):
            row, a, b = level[k], level[2 * k], level[2 * k + 1]
            for i in range(n):
                row[i] = a[i] + b[i]
        if count % 2:
            row, a = level[count // 2], level[count - 1]
            for i in range(n):
                row[i] = a[i]
        count = (count + 1) // 2
    for i in range(n):
        result[i] = level[0, i]


@instruction
def _copy_many(typingctx: Any, target: Any, source: Any, nbytes: Any) -> Any:
    """Copy memory, from one address to another, by the C library."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        to, of = (builder.inttoptr(address, byte) for address in arguments[:2])
        cgutils.raw_memcpy(builder, to, of, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


@njit
def _copy(target, source, nbytes):
    # A processor's instruction for strings, which the C library uses, begins slowly.
    if nbytes > SMALL:
        _copy_many(target, source, nbytes)
        return
    to, of = carray(pointer(target), (nbytes,), np.uint8), carray(pointer(source), (nbytes,), np.uint8)
    for i in range(nbytes):
        to[i] = of[i]


@njit(inline="always")
def _meet(p, array, number):
    """Post `array`, and wait until all have posted theirs; where they lie, or 0 if some are late or do not agree."""
    posted = number < 0
    number = abs(number)
    slots = p[SLOTS] + number % p[SLOT_RING] * p[WORLD] * p[SLOT]
    if not posted:
        if p[POSTED]:
            _copy(slots + p[RANK] * p[SLOT], array.ctypes.data, p[POSTED])
        _tell(p[PAGE] + p[PROC] * p[LINE] + p[ARRIVED], number)
    for proc in range(p[PROCS]):
        arrived = p[PAGE] + proc * p[LINE] + p[ARRIVED]
        tries = p[SPINS] + p[YIELDS]
        while _look(arrived) < number:
            tries -= 1
            if tries < p[YIELDS]:
                if tries < 0:
                    return 0
                _yield_core()
            else:
                _relax()
    record = p[RECORDS] + number % DEPTH * p[RECORD]
    for _ in range(p[WORLD]):
        if _words(record, 1)[0] != p[DIGEST]:
            return 0
        record += DEPTH * p[RECORD]
    return slots


@njit(inline="always")
def _copied(array, result, plan_address, number):
    """Carry out collective `number`; True when done. False: `array` is posted, and the rest left to another call."""
    p = _words(plan_address, _LENGTH)
    slots = _meet(p, array, number)
    if slots == 0:
        return False
    copies = _words(plan_address + 8 * _LENGTH, 3 * p[COPIES])
    for k in range(0, copies.size, 3):
        _copy(result.ctypes.data + copies[k + 1], slots + copies[k], copies[k + 2])
    _tell(p[PAGE] + p[PROC] * p[LINE] + p[FINISHED], abs(number))
    return True


@njit(inline="always")
def _added(array, result, plan_address, number):
    """As `_copied`, where `result` is the sum of a part of all arrays, or of all of them."""
    p = _words(plan_address, _LENGTH)
    slots = _meet(p, array, number)
    if slots == 0:
        return False
    world, n = p[WORLD], result.size
    slots += p[FIRST]
    a = carray(pointer(slots), (n,), array.dtype)
    b = carray(pointer(slots + p[SLOT]), (n,), array.dtype)
    c = carray(pointer(slots + 2 * p[SLOT]), (n,), array.dtype)
    d = carray(pointer(slots + 3 * p[SLOT]), (n,), array.dtype)
    if world == 2:
        for i in range(n):
            result[i] = a[i] + b[i]
    elif world == 3:
        for i in range(n):
            result[i] = (a[i] + b[i]) + c[i]
    elif world == 4:
        for i in range(n):
            result[i] = (a[i] + b[i]) + (c[i] + d[i])
    else:
        _by_levels(slots, p[SLOT], world, result)
    if p[DIVIDES]:
        ranks = array.dtype.type(world)
        for i in range(n):
            result[i] = result[i] / ranks
    _tell(p[PAGE] + p[PROC] * p[LINE] + p[FINISHED], abs(number))
    return True


# No option of fast mathematics: the order of the sum is promised. An array takes 0.1 us to be passed.
@cached
@njit(error_model="numpy")
def _copy_in_place(array, plan_address, number):
    return _copied(array, array, plan_address, number)


@cached
@njit(error_model="numpy")
def _copy_apart(array, result, plan_address, number):
    return _copied(array, result, plan_address, number)


@cached
@njit(error_model="numpy")
def _add_in_place(array, plan_address, number):
    return _added(array, array, plan_address, number)


@cached
@njit(error_model="numpy")
def _add_apart(array, result, plan_address, number):
    return _added(array, result, plan_address, number)


# By whether they add, and whether the result overwrites the array.
_CARRY: dict[tuple[bool, bool], Callable[..., bool]] = {
    (False, True): _copy_in_place,
    (False, False): _copy_apart,
    (True, True): _add_in_place,
    (True, False): _add_apart,
}

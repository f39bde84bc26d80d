"""Watching a number that another thread will count up, without the GIL: to sleep and be woken takes longer than many kernels."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from llvmlite import ir
from numba import njit, types

from .register_tile import intrinsic
from .vectormath import _OPTIONS, cached, instruction

_LOOKS = 1 << 9  # 0.1 to 0.2 ms


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
def _core(typingctx: Any) -> Any:
    """The number of the core that this runs on, -1 where the C library does not say."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not hasattr(ctypes.CDLL(None), "sched_getcpu"):
            return ir.Constant(ir.IntType(32), -1)
        return builder.call(intrinsic(builder, "sched_getcpu", ir.IntType(32), []), [])

    return types.int32(), codegen


def _watch(address: Any, value: Any) -> Any:
    for _ in range(_LOOKS):
        if _look(address) >= value:
            break
    return _core()


@cache
def watch() -> Any:
    """watch(address, value): the core that this runs on, when the int64 there is `value` or more, or after a while."""
    compiled = cached(njit(**_OPTIONS)(_watch))
    compiled.compile((types.intp, types.intp))
    compiled.disable_compile()
    return compiled

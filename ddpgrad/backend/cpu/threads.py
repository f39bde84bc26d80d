"""More threads for one large kernel, as many as BLAS has: parts of it that do not hold the GIL, beside one another."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from threadpoolctl import threadpool_info


class _Helpers:
    """count: threads with the one that asks, None until somebody does. pool: those that help, once they have."""

    count: int | None = None
    pool: ThreadPoolExecutor | None = None


_helpers = _Helpers()


def blas_threads() -> int:
    """The number of threads that BLAS may use."""
    return max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=1)


def forget() -> None:
    """Ask anew how many threads there are: their number was changed, or this is a new process."""
    _helpers.count = _helpers.pool = None


os.register_at_fork(after_in_child=forget)


def in_parts(work: Callable[[int, int], Any], length: int) -> None:
    """Call work(first, end) for neighbouring parts of range(length), a thread each; the parts may not overlap."""
    if _helpers.count is None:
        _helpers.count = blas_threads()
    count = min(_helpers.count, length)
    if count <= 1:
        work(0, length)
        return
    if _helpers.pool is None:
        _helpers.pool = ThreadPoolExecutor(_helpers.count - 1, "ddpgrad-helper")
    edges = [length * i // count for i in range(count + 1)]
    others = [_helpers.pool.submit(work, edges[i], edges[i + 1]) for i in range(1, count)]
    work(0, edges[1])
    for other in others:
        other.result()

"""The least time that a training step can take on this machine: its products at the rate of BLAS, its parameters at that of memory.

    floor = flops / (flop/s of a large float32 product) + bytes / (bytes/s of a large copy)

Flops are those of matrix products, convolutions and attention, forward and backward. Bytes are what an optimizer has to read and write:
gradients once, parameters and its own state twice. What else moves (activations, norms, losses) may stay in the cache, and counts as
nothing; nor do all-reduces. Both rates are measured in the ranks, all at once and with the threads that they train with.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any, TypedDict

import numpy as np

_SIDE = 1536  # of the square product: three matrices of 9 MB
_COPY = 64 << 20  # bytes: no cache holds them


class Rates(TypedDict):
    """What one rank reaches while all ranks are at it."""

    flops: float  # per second
    bytes: float  # read and written, per second


class Work(TypedDict):
    """What one step of one rank cannot do without."""

    flops: int
    bytes: int


def _best(work: Callable[[], Any], times: int) -> float:
    """Seconds of the fastest of some calls."""
    best = float("inf")
    for _ in range(times):
        start = perf_counter()
        work()
        best = min(best, perf_counter() - start)
    return best


def rates() -> Rates:
    """Of this process: of products, the better of NumPy's BLAS and ddpgrad's own."""
    import ddpgrad

    a, b = np.random.default_rng(0).standard_normal((2, _SIDE, _SIDE), dtype=np.float32)
    product = np.empty_like(a)
    x, y = ddpgrad.from_numpy(a), ddpgrad.from_numpy(b)
    least = min(_best(lambda: np.matmul(a, b, product), 6), _best(lambda: x @ y, 6))
    source, copy = np.ones(_COPY // 4, np.float32), np.zeros(_COPY // 4, np.float32)
    return {"flops": 2 * _SIDE**3 / least, "bytes": 2 * _COPY / _best(lambda: np.copyto(copy, source), 8)}


def work_of(step: Callable[[], Any], parameters: list[Any], optimizer: Any) -> Work:
    """Of a step of ddpgrad's that has run before, so that the optimizer has its state. `step` is run once more."""
    from ddpgrad.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counted:
        step()
    own = sum(p.numel() * p.element_size() for p in parameters)
    kept = [
        value for state in optimizer.state.values() for value in state.values() if hasattr(value, "numel")
    ]
    state = sum(value.numel() * value.element_size() for value in kept)
    return {"flops": counted.get_total_flops(), "bytes": 3 * own + 2 * state}


def floor_s(work: Work, reached: Rates) -> float:
    """Seconds that a step takes at least."""
    return work["flops"] / reached["flops"] + work["bytes"] / reached["bytes"]

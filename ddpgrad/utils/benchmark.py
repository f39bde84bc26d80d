"""`torch.utils.benchmark`: the time of a statement, with warm-up, a fixed number of threads, and GPU work."""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from .. import cuda
from ..compat.settings import get_num_threads, set_num_threads

__path__: list[str] = []  # PyTorch has a package here: its modules are other names of this one

_SHARE_OF_TIMING = 0.05  # a block runs at least this part of min_run_time
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (0.0, "ns"))


def timer() -> float:
    """Seconds, after the GPU has done what was asked of it."""
    if cuda.is_initialized():
        cuda.synchronize()
    return perf_counter()


@dataclass(repr=False)
class Measurement:
    """Timings of a statement: each of `raw_times` is seconds for `number_per_run` runs."""

    number_per_run: int
    raw_times: Sequence[float]
    title: str
    num_threads: int = 1

    @property
    def times(self) -> list[float]:
        """Seconds a run."""
        return [seconds / self.number_per_run for seconds in self.raw_times]

    @property
    def mean(self) -> float:
        """The mean of `times`."""
        return statistics.fmean(self.times)

    @property
    def median(self) -> float:
        """The median of `times`."""
        return statistics.median(self.times)

    @property
    def iqr(self) -> float:
        """The distance of the quartiles of `times`; 0 of a single one."""
        if len(self.times) < 2:
            return 0.0
        quartiles = statistics.quantiles(self.times, method="inclusive")
        return quartiles[2] - quartiles[0]

    def __repr__(self) -> str:
        scale, unit = next((s or 1e-9, u) for s, u in _UNITS if self.median >= s)
        spread = f"  IQR: {self.iqr / scale:.2f} {unit}" if len(self.times) > 1 else ""
        count = f"{len(self.times)} measurement{'s'[: len(self.times) > 1]}, {self.number_per_run} runs each"
        return f"{self.title}\n  {self.median / scale:.2f} {unit}{spread}\n  {count}, {self.num_threads} thread(s)"


class Timer:
    """Times `stmt`, Python source that sees the names of `globals`, after `setup` has run once.

    label, sub_label and description say what a Measurement is of. num_threads is the number of threads
    that kernels may use meanwhile. `timer` gives the time in seconds.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: str = "python",
    ) -> None:
        if global_setup or str(language).lower() not in ("python", "language.python"):
            raise NotImplementedError("benchmark.Timer: only Python statements can be timed")
        self._timer = timeit.Timer(stmt, setup, timer, dict(globals or {}))
        self._title = ": ".join(part for part in (label or stmt, sub_label, description) if part)
        self._threads = num_threads

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """One timing of `number` runs, after some that are not counted."""
        self._run(max(number // 100, 2))
        return self._measured(number, [self._run(number)])

    def blocked_autorange(
        self, callback: Callable[[int, float], object] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Timings of blocks of runs, until they took `min_run_time` seconds together."""
        number = 1
        while (seconds := self._run(number)) < _SHARE_OF_TIMING * min_run_time:
            number *= 10 if seconds * 10 < _SHARE_OF_TIMING * min_run_time else 2
        times: list[float] = []
        while sum(times) < min_run_time:
            times.append(self._run(number))
            if callback is not None:
                callback(number, times[-1])
        return self._measured(number, times)

    def _run(self, number: int) -> float:
        before = get_num_threads()
        set_num_threads(self._threads)
        try:
            return self._timer.timeit(number)
        finally:
            set_num_threads(before)

    def _measured(self, number: int, times: Sequence[float]) -> Measurement:
        return Measurement(number, times, self._title, self._threads)


__all__ = ["Measurement", "Timer", "timer"]

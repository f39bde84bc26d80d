"""`torch.autograd.profiler`: the older way to the same recordings."""

from __future__ import annotations

import os
from typing import Any

from ..compat import absent
from ..core import spans
from .events import EventList, FunctionEvent, FunctionEventAvg
from .label import record_function
from .recording import Options, ProfilerActivity, Recording, check_activities

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "kineto_available", "profile", "record_function"]


class profile:
    """Records what the calling rank does within a `with` block; printed, it is a table.

    enabled: whether to record at all. The other options are those of `torch.profiler.profile`; use_cuda and
    use_device ask for times on a GPU, which are not recorded: a warning says so.
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = True,
        use_cpu: bool = True,
        experimental_config: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Any = None,
    ) -> None:
        self.enabled = enabled
        if use_cuda or use_device is not None:
            check_activities([ProfilerActivity.CUDA])
        self._options = Options(record_shapes, profile_memory, with_stack, with_flops)
        self._recording: Recording | None = None
        self._events: EventList | None = None

    def __enter__(self) -> profile:
        if self.enabled:
            if self._recording is not None or self._events is not None:
                raise RuntimeError("Profiler context manager is not reentrant")
            self._recording = Recording(self._options)
            self._recording.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._recording is not None:
            self._events, self._recording = self._recording.stop(), None

    @property
    def function_events(self) -> EventList:
        """What was recorded. RuntimeError before the block has ended, and where the profiler is not enabled."""
        if self._events is None:
            raise RuntimeError("Profiler didn't finish running")
        return self._events

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events, without counting any twice."""
        return self.function_events.self_cpu_time_total

    def table(self, *args: Any, **kwargs: Any) -> str:
        """See `EventList.table`."""
        return self.function_events.table(*args, **kwargs)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """See `EventList.key_averages`."""
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n)

    def total_average(self) -> FunctionEventAvg:
        """All events as one."""
        return self.function_events.total_average()

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a timeline for ui.perfetto.dev."""
        self.function_events.export_chrome_trace(path)

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write stacks with their times. Needs with_stack=True."""
        self.function_events.export_stacks(path, metric)

    def __repr__(self) -> str:
        return "<unfinished torch.autograd.profile>" if self._events is None else repr(self._events)

    def __str__(self) -> str:
        return repr(self) if self._events is None else str(self._events)


def kineto_available() -> bool:
    """Whether `torch.profiler.profile` records: always. What it records of a GPU is when the host launches."""
    return True


def _running() -> list[Recording]:
    return [r for r in spans.recorders if isinstance(r, Recording) and r.rank == spans.caller()]


def _profiler_enabled() -> bool:
    """Whether a profiler records the calling rank."""
    return bool(_running())


def _disable_profiler() -> None:
    """Let profilers hear nothing more of the calling rank: they have what was recorded until here."""
    for recording in _running():
        spans.detach(recording)


globals().update(
    absent.stand_ins(
        "autograd.profiler",
        absent.Part(
            "NVTX ranges are written by ddpgrad.cuda.nvtx.range_push and range_pop; for operators, use torch.profiler",
            "emit_nvtx emit_itt load_nvprof",
        ),
    )
)

"""What happens on one rank from the start of a profiler to its end, as events."""

from __future__ import annotations

import enum
import sys
import threading
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import cuda
from ..core import spans
from ..ops.dispatch import timing
from ..ops.dispatch.declare import Op
from .events import EventList, FunctionEvent, Interval

_PACKAGE = str(Path(__file__).parents[1])


class ProfilerActivity(enum.Enum):
    """What a profiler may watch."""

    CPU, XPU, CUDA, MTIA, HPU, PrivateUse1 = 0, 1, 2, 3, 4, 5


@dataclass
class Options:
    """What is recorded of each operator beside its time.

    record_shapes: the shapes of its tensors. profile_memory: the bytes of its results. with_stack: where the program
    called it. with_flops: its floating-point operations, for products and convolutions.
    """

    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False


def check_activities(activities: Iterable[ProfilerActivity]) -> set[ProfilerActivity]:
    """The activities as a set; a warning for what is not recorded."""
    chosen = set(activities)
    for activity in chosen:
        if not isinstance(activity, ProfilerActivity):
            raise TypeError(f"profile(activities=...) takes ProfilerActivity, got {activity!r}")
    others = chosen - {ProfilerActivity.CPU}
    if ProfilerActivity.CUDA in others and cuda.is_available():
        warnings.warn(
            "the profiler records how long the host takes to launch an operator, not how long the GPU takes to run it; "
            "use Nsight Systems for that (`nsys profile`)",
            stacklevel=4,
        )
    elif others:
        names = ", ".join(sorted(activity.name for activity in others))
        warnings.warn(f"{names} is not available, disabling {names} profiling", stacklevel=4)
    return chosen


class Recording(spans.Recorder):
    """Records the calling rank between `start` and `stop`."""

    detailed = True

    def __init__(self, options: Options) -> None:
        super().__init__(spans.caller())
        self._options = options
        self._told: list[tuple[int, spans.Span]] = []
        self._began = 0.0
        # Before anything is recorded, as it takes a while.
        timing.start(self)

    def start(self) -> None:
        """Record from now on, if it has not begun yet."""
        if not self._began:
            self._began = spans.now()
            spans.attach(self)

    def discard(self) -> None:
        """End what has only been prepared."""
        timing.stop(self)

    def stop(self) -> EventList:
        """End the recording; what was recorded."""
        spans.detach(self)
        timing.stop(self)
        events = EventList(
            (_event(number, thread, span) for number, (thread, span) in enumerate(self._told)),
            began=self._began,
            rank=self.rank,
            columns=self._options,
        )
        events.nest()
        return events

    def add(self, span: spans.Span) -> None:
        if span.kind == "communication":
            return  # a "collective" says the same, as the program called it
        if (self.rank is None or span.rank == self.rank) and span.began >= self._began:
            self._told.append((threading.get_ident(), span))

    def op(
        self, op: Op, began: float, ended: float, arguments: tuple[Any, ...], results: tuple[Any, ...]
    ) -> None:
        """As `add`, for a kernel of an op that has run."""
        rank = spans.caller()
        if self.rank is None or rank == self.rank:
            details = self._details(op, arguments, results)
            self.add(spans.Span(rank, spans.PROGRAM, "op", op.name, began, ended, details))

    def _details(self, op: Op, arguments: tuple[Any, ...], results: tuple[Any, ...]) -> dict[str, Any]:
        options, found = self._options, dict[str, Any]()
        if options.record_shapes:
            found["shapes"] = [list(getattr(a, "shape", ())) for a in arguments if a is not None]
        if options.profile_memory:
            # A view's memory is somebody else's, as is that of an argument.
            mine = [
                r for r in results if getattr(r, "base", 0) is None and all(r is not a for a in arguments)
            ]
            found["bytes"] = sum(r.nbytes for r in mine)
        if options.with_flops:
            from ..ops.dispatch.multiply_adds import multiply_adds

            found["flops"] = 2 * multiply_adds(op, arguments, results)
        if options.with_stack:
            found["stack"] = _stack()
        return found


def _stack() -> list[str]:
    """The program's own frames, innermost first, as 'file(line): function'."""
    frame, found = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            found.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return found


_NAMES = {"op": "aten::{}", "optimizer": "Optimizer.step#{}.step", "loader": "enumerate(DataLoader)#__next__"}
"""By kind of span: PyTorch's name for it."""


def _event(number: int, thread: int, span: spans.Span) -> FunctionEvent:
    details = span.details or {}
    return FunctionEvent(
        id=number,
        name=_NAMES.get(span.kind, "{}").format(span.name),
        kind=span.kind,
        thread=thread if span.track == spans.PROGRAM else -1,
        time_range=Interval(span.began * 1e6, span.ended * 1e6),
        input_shapes=details.get("shapes", []),
        stack=details.get("stack", []),
        flops=details.get("flops", 0),
        self_cpu_memory_usage=details.get("bytes", 0),
    )

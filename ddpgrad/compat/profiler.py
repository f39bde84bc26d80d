"""`torch.profiler`: labelled ranges, which `distributed.trace` records."""

from __future__ import annotations

import contextlib
import enum
from typing import Any, NoReturn

from ..core import spans
from . import absent


class record_function(contextlib.ContextDecorator):
    """A label around a block, or a decorator: what `ddprun --trace` shows as a span of its own."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args
        self._began = 0.0

    def _recreate_cm(self) -> record_function:
        return record_function(self.name, self.args)  # a function may call itself

    def __enter__(self) -> record_function:
        if spans.recorders:
            self._began = spans.now()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._began:
            spans.tell("user", self.name, self._began)


class ProfilerActivity(enum.Enum):
    """What a profiler may watch."""

    CPU, XPU, CUDA, MTIA, HPU, PrivateUse1 = 0, 1, 2, 3, 4, 5


class ProfilerAction(enum.Enum):
    """What a profiler does in a step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = 0, 1, 2, 3


class profile:
    """Refused: there is no profiler of single operations."""

    def __init__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            "torch.profiler.profile: ddpgrad has no profiler of its own. Use `python -m cProfile` or py-spy for the CPU, "
            "and Nsight Systems for a GPU. For the parts of a step and the communication of all ranks: `ddprun --trace DIR`, "
            "or ddpgrad.distributed.trace.recording(DIR)"
        )


globals().update(
    absent.stand_ins(
        "profiler",
        absent.Part(
            "there is no profiler of single operations; see torch.profiler.profile",
            "EventList FunctionEvent emit_nvtx kineto_available? schedule tensorboard_trace_handler",
        ),
    )
)

__all__ = ["ProfilerAction", "ProfilerActivity", "profile", "record_function"]

"""`torch.profiler.profile`: records the steps of a loop that a schedule chooses."""

from __future__ import annotations

import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..core import environment
from .events import EventList
from .label import record_function
from .recording import Options, ProfilerActivity, Recording, check_activities
from .scheduling import RECORDING, ProfilerAction
from .scheduling import always as _default_schedule_fn


def supported_activities() -> set[ProfilerActivity]:
    """What can be recorded here: what the host does."""
    return {ProfilerActivity.CPU}


class profile:
    """Records what the calling rank does within a `with` block, or between `start` and `stop`.

        with profile(schedule=schedule(wait=1, warmup=1, active=3), on_trace_ready=handler) as p:
            for batch in loader:
                train(batch)
                p.step()

    The time of an operator is that of its kernel on the host; what the call costs beside that is the time of what
    calls it. schedule: action of each step (see `schedule`); everything is recorded without one. on_trace_ready:
    called with this object when a recording has ended. record_shapes, profile_memory, with_stack, with_flops: what
    is kept of each operator beside its time; each costs some microseconds a call. with_modules, execution_trace_observer,
    experimental_config: without effect. acc_events: keep the events of former cycles, too.
    Source: https://pytorch.org/docs/stable/profiler.html
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
    ) -> None:
        chosen = [ProfilerActivity.CPU] if activities is None else list(activities)
        self.activities = check_activities([*chosen, *([ProfilerActivity.CUDA] if use_cuda else [])])
        self.schedule = schedule or _default_schedule_fn
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack, self.with_flops, self.with_modules = with_stack, with_flops, with_modules
        self.acc_events = acc_events
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._options = Options(record_shapes, profile_memory, with_stack, with_flops)
        self._by_step = schedule is not None
        self._recording: Recording | None = None
        self._label: record_function | None = None
        self._events: EventList | None = None
        self._metadata: dict[str, Any] = {}

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin the first step."""
        if self._recording is not None:
            raise RuntimeError("profile.start(): it has begun already")
        self._enter(self.current_action)
        self._begin_step()

    def step(self) -> None:
        """The step has ended, and the next begins."""
        self._end_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        if before is ProfilerAction.RECORD_AND_SAVE:
            self._save()
        elif before is ProfilerAction.RECORD and self.current_action not in RECORDING:
            warnings.warn("Incorrect schedule: RECORD followed by NONE", stacklevel=2)
            self._save()
        self._enter(self.current_action)
        self._begin_step()

    def stop(self) -> None:
        """End the last step, and what is recorded."""
        self._end_step()
        if self.current_action in RECORDING:
            self._save()
        elif self._recording is not None:  # only warmed up
            self._recording.discard()
            self._recording = None

    def _enter(self, action: ProfilerAction) -> None:
        if action is not ProfilerAction.NONE and self._recording is None:
            self._recording = Recording(self._options)
        if self._recording is not None and action in RECORDING:
            self._recording.start()

    def _save(self) -> None:
        if self._recording is None:
            return
        events, self._recording = self._recording.stop(), None
        if self.acc_events and self._events is not None:
            events[:0] = self._events
        self._events = events
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _begin_step(self) -> None:
        if self._by_step:
            self._label = record_function(f"ProfilerStep#{self.step_num}")
            self._label.__enter__()

    def _end_step(self) -> None:
        if self._label is not None:
            self._label.__exit__()
            self._label = None

    def events(self) -> EventList:
        """What the last recording that has ended consists of. RuntimeError before one has."""
        if self._events is None:
            raise RuntimeError(
                "profile: nothing has been recorded yet: leave the `with` block, or call step() until the schedule's "
                "active steps have ended"
            )
        return self._events

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """The events added up by name, and by shapes and innermost stack frames if asked for."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a timeline for ui.perfetto.dev; a path that ends in `.gz` is compressed."""
        metadata = dict(self._metadata)
        launch = environment.launch()
        if launch.world_size > 1:
            rank = self.events().rank
            metadata["distributedInfo"] = {
                "rank": launch.ranks.start if rank is None else rank,
                "world_size": launch.world_size,
            }
        self.events().export_chrome_trace(path, metadata)

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write stacks with their times, as flame graphs are made of. Needs with_stack=True."""
        self.events().export_stacks(path, metric)

    def add_metadata(self, key: str, value: str) -> None:
        """Put a text into the trace file."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Put a value, given as JSON, into the trace file."""
        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json


def tensorboard_trace_handler(
    dir_name: str | os.PathLike[str], worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """For `on_trace_ready`: writes each recording to a file of its own in `dir_name`, as TensorBoard's plugin reads it.

    worker_name: unique for each rank; host and process if None.
    """

    def handler(profiler: profile) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        ending = ".pt.trace.json" + (".gz" if use_gzip else "")
        profiler.export_chrome_trace(folder / f"{worker}.{time.time_ns()}{ending}")

    return handler

"""The events of a profile, one by one, and added up by name."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .table import duration, table

if TYPE_CHECKING:
    from .recording import Options


class Interval(NamedTuple):
    """Microseconds of the host's monotonic clock."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        return self.end - self.start


class _Times:
    """What an event and an average have in common. Times are in microseconds, memory is in bytes."""

    key: str
    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    is_remote = is_legacy = False
    node_id = -1
    device_type, use_device = "CPU", None

    @property
    def cpu_time(self) -> float:
        """The mean time of a call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def cpu_time_str(self) -> str:
        return duration(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        return duration(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        return duration(self.self_cpu_time_total)


@dataclass(eq=False, repr=False)
class FunctionEvent(_Times):
    """One call of an operator, one node of backward, or one labelled block.

    kind: "op", "node", "user" or another kind of span. input_shapes: one for each argument, [] for what is no tensor.
    stack: the program's frames, innermost first. cpu_parent, cpu_children: the events of the same thread around it
    and within it.
    """

    id: int
    name: str
    kind: str
    thread: int
    time_range: Interval
    input_shapes: list[list[int]] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    flops: int = 0
    self_cpu_memory_usage: int = 0
    cpu_parent: FunctionEvent | None = None
    cpu_children: list[FunctionEvent] = field(default_factory=list)
    count: int = 1

    @property
    def key(self) -> str:  # type: ignore[override]
        return self.name

    @property
    def is_user_annotation(self) -> bool:
        return self.kind == "user"

    @property
    def is_async(self) -> bool:
        """Whether the thread that called may have done something else before the end."""
        return self.kind == "collective"

    @property
    def cpu_time_total(self) -> float:  # type: ignore[override]
        return self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:  # type: ignore[override]
        if self.is_async:
            return 0.0
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def cpu_memory_usage(self) -> int:
        return self.self_cpu_memory_usage + sum(child.cpu_memory_usage for child in self.cpu_children)

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} "
            f"cpu_children={[child.id for child in self.cpu_children]} thread={self.thread} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}>"
        )


@dataclass(eq=False, repr=False)
class FunctionEventAvg(_Times):
    """Events of one name, and where asked for of one list of shapes and one stack, added up."""

    key: str
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0
    cpu_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    flops: int = 0
    input_shapes: list[list[int]] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    is_user_annotation: bool = False
    is_async: bool = False

    def add(self, other: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        """Count `other` in."""
        for name in ("count", "cpu_time_total", "self_cpu_time_total", "cpu_memory_usage",
                     "self_cpu_memory_usage", "flops"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str} input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}>"
        )


class EventList(list[Any]):
    """The events of a profile, or their averages; printed, it is a table.

    began: when the recording began, in seconds of the monotonic clock. rank: of which it is; None for the only one of
    its process. columns: what was recorded beside the times.
    """

    def __init__(self, events: Iterable[Any], *, began: float, rank: int | None, columns: Options) -> None:
        super().__init__(events)
        self.rank = rank
        self._began = began
        self._columns = columns

    def nest(self) -> None:
        """Order the events by their beginning, and give each the events around it and within it."""
        self.sort(key=lambda event: (event.thread, event.time_range.start, -event.time_range.end))
        around: list[FunctionEvent] = []
        for event in self:
            while around and (
                around[-1].thread != event.thread or around[-1].time_range.end < event.time_range.end
            ):
                around.pop()
            if around and event.thread != -1:  # what is on its way to other ranks is within nothing
                event.cpu_parent = around[-1]
                around[-1].cpu_children.append(event)
            around.append(event)

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events, without counting any twice."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0) -> EventList:
        """The events added up by name, and if asked for by the shapes and the innermost frames of the stack."""
        found: dict[Any, FunctionEventAvg] = {}
        for event in self:
            shapes = event.input_shapes if group_by_input_shapes else []
            stack = event.stack[:group_by_stack_n]
            group = event.key, str(shapes), tuple(stack)
            if group not in found:
                found[group] = FunctionEventAvg(
                    event.key, input_shapes=shapes, stack=stack, is_user_annotation=event.is_user_annotation
                )
            found[group].add(event)
        return EventList(found.values(), began=self._began, rank=self.rank, columns=self._columns)

    def total_average(self) -> FunctionEventAvg:
        """All events as one, with the key 'Total'; its total time is that of the events themselves."""
        total = FunctionEventAvg("Total")
        for event in self:
            total.add(event)
        total.cpu_time_total = total.self_cpu_time_total
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The events as text, one a line, the largest of `sort_by` first.

        sort_by: such as "cpu_time_total", "self_cpu_time_total", "cpu_memory_usage", "count". row_limit: -1 for all.
        time_unit: "us", "ms" or "s"; as fits each figure if None.
        """
        rows = list(self)
        if top_level_events_only:
            rows = [event for event in rows if getattr(event, "cpu_parent", None) is None]
        if sort_by is not None:
            rows.sort(key=_order(sort_by), reverse=True)
        return table(
            rows,
            self.self_cpu_time_total,
            limit=row_limit,
            widths=(max_name_column_width, max_shapes_column_width, max_src_column_width),
            header=header,
            unit=time_unit,
            memory=self._columns.profile_memory,
            flops=self._columns.with_flops,
        )

    def __str__(self) -> str:
        return self.table()

    def export_chrome_trace(
        self, path: str | os.PathLike[str], metadata: dict[str, Any] | None = None
    ) -> None:
        """Write the events as a timeline that ui.perfetto.dev and chrome://tracing read; `.gz` is compressed."""
        process = os.getpid()
        trace = {
            "schemaVersion": 1,
            "displayTimeUnit": "ms",
            **(metadata or {}),
            "traceEvents": [
                {"ph": "M", "name": "process_name", "pid": process, "args": {"name": "ddpgrad"}},
                *(_chrome(event, process, self._began * 1e6) for event in self),
            ],
        }
        opener: Callable[..., Any] = gzip.open if os.fspath(path).endswith(".gz") else open
        with opener(path, "wt", encoding="utf-8") as file:
            json.dump(trace, file)

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write a line for each stack with the sum of `metric` in it, as flame graphs are made of. Needs with_stack."""
        if metric not in ("self_cpu_time_total",):
            raise ValueError(f"metric should be one of: ['self_cpu_time_total'], got {metric!r}")
        found: dict[str, int] = {}
        for event in self:
            if event.stack:
                line = ";".join(frame.replace(";", "_").replace(" ", "_") for frame in reversed(event.stack))
                found[line] = found.get(line, 0) + int(getattr(event, metric))
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{stack} {amount}\n" for stack, amount in found.items() if amount > 0)


def _order(name: str) -> Callable[[Any], Any]:
    name = {"cpu_time": "cpu_time_total", "self_cpu_time": "self_cpu_time_total"}.get(name, name)
    known = (
        "cpu_time_total",
        "self_cpu_time_total",
        "cpu_memory_usage",
        "self_cpu_memory_usage",
        "count",
        "flops",
    )
    if name not in known:
        raise ValueError(
            f"table(sort_by={name!r}): expected one of {', '.join(known)}; times on a GPU are not recorded"
        )
    return lambda event: getattr(event, name)


_CATEGORY = {"op": "cpu_op", "node": "cpu_op", "user": "user_annotation"}


def _chrome(event: FunctionEvent, process: int, zero: float) -> dict[str, Any]:
    args: dict[str, Any] = {"External id": event.id}
    if event.input_shapes:
        args["Input Dims"] = event.input_shapes
    if event.stack:
        args["Call stack"] = ";".join(event.stack)
    if event.self_cpu_memory_usage:
        args["Bytes"] = event.self_cpu_memory_usage
    start = event.time_range.start
    return {"ph": "X", "cat": _CATEGORY.get(event.kind, event.kind), "name": event.name, "pid": process,
            "tid": event.thread, "ts": round(start - zero, 3), "dur": round(event.cpu_time_total, 3),
            "args": args}  # fmt: skip

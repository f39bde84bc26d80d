"""`torch.monitor`: events of a rank, which handlers are told of, and statistics that become events."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from ..core.rank_local import RankLocal

STAT_EVENT = "torch.monitor.Stat"


class Aggregation(Enum):
    """What a `Stat` makes of its values. VALUE: the last one, which PyTorch does not tell of, nor is it here."""

    VALUE = 0
    MEAN = 2
    COUNT = 3
    SUM = 4
    MAX = 5
    MIN = 6


@dataclass
class Event:
    """Something that happened. data: numbers, texts and bools by name."""

    name: str
    timestamp: datetime
    data: dict[str, Any]

    def __post_init__(self) -> None:
        given = {str: self.name, datetime: self.timestamp, dict: self.data}
        wrong = [value for kind, value in given.items() if not isinstance(value, kind)]
        wrong += [v for v in self.data.values() if not isinstance(v, (int, float, str))] if not wrong else []
        if wrong:
            raise TypeError(
                f"Event(name, timestamp, data): expected a text, a datetime and a dict of numbers and texts, got {wrong[0]!r}"
            )


class EventHandlerHandle:
    """What `register_event_handler` returns and `unregister_event_handler` takes."""


_handlers: RankLocal[dict[EventHandlerHandle, Callable[[Event], Any]]] = RankLocal(dict)


def register_event_handler(callback: Callable[[Event], Any]) -> EventHandlerHandle:
    """Let `callback` be told of each event of this rank."""
    if not callable(callback):
        raise TypeError(f"register_event_handler: expected a function, got {type(callback).__name__}")
    handle = EventHandlerHandle()
    _handlers.get()[handle] = callback
    return handle


def unregister_event_handler(handler: EventHandlerHandle) -> None:
    """Tell it no more."""
    _handlers.get().pop(handler, None)


def log_event(event: Event) -> None:
    """Tell all handlers; what one of them raises is raised."""
    if not isinstance(event, Event):
        raise TypeError(f"log_event: expected an Event, got {type(event).__name__}")
    for handler in list(_handlers.get().values()):
        handler(event)


class Stat:
    """Values that are added in windows of time, each of which becomes an event when it is over and another value comes.

    max_samples: an event comes as soon as a window has so many, and what else is added in it is left out. The last window
    becomes an event with the end of this object.
    """

    def __init__(
        self,
        name: str,
        aggregations: Sequence[Aggregation],
        window_size: timedelta,
        max_samples: int | None = None,
    ) -> None:
        if not (isinstance(window_size, timedelta) and all(isinstance(a, Aggregation) for a in aggregations)):
            raise TypeError(
                "Stat(name, aggregations, window_size): expected a list of Aggregations and a timedelta"
            )
        self._name, self._aggregations = name, sorted(set(aggregations), key=lambda a: -a.value)
        self._window, self._most = window_size.total_seconds(), max_samples
        self._lock = threading.Lock()
        self._values: list[float] = []
        self._last = dict.fromkeys((a for a in self._aggregations if a is not Aggregation.VALUE), 0.0)
        self._begun = self._told = -1

    @property
    def name(self) -> str:
        return self._name

    @property
    def count(self) -> int:
        """How many values the window has that is not over."""
        return len(self._values)

    def add(self, v: float) -> None:
        """Add a value, after the event of a window that is over."""
        value = float(v) if isinstance(v, (int, float)) else None
        if value is None:
            raise TypeError(f"Stat.add: expected a number, got {type(v).__name__}")
        with self._lock:
            now = int(time.time() / self._window)
            if self._values and now != self._begun:
                self._tell()
            if now == self._told:
                return
            self._begun = now
            self._values.append(value)
            if self._most is not None and len(self._values) >= self._most:
                self._tell()
                self._told = now

    def get(self) -> dict[Aggregation, float]:
        """What the last event has told."""
        return dict(self._last)

    def _tell(self) -> None:
        values = self._values
        found = {
            Aggregation.MEAN: sum(values) / len(values),
            Aggregation.COUNT: float(len(values)),
            Aggregation.SUM: sum(values),
            Aggregation.MAX: max(values),
            Aggregation.MIN: min(values),
        }
        self._last = {a: found[a] for a in self._last}
        self._values = []
        data = {f"{self._name}.{a.name.lower()}": value for a, value in self._last.items()}
        log_event(Event(STAT_EVENT, datetime.now(), data))

    def __del__(self) -> None:
        if getattr(self, "_values", None):
            self._tell()


class TensorboardEventHandler:
    """A handler that writes the numbers of `Stat`s to a SummaryWriter."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def __call__(self, event: Event) -> None:
        if event.name == STAT_EVENT:
            for name, value in event.data.items():
                self._writer.add_scalar(name, value, walltime=event.timestamp.timestamp())


__all__ = [
    "STAT_EVENT", "Aggregation", "Event", "EventHandlerHandle", "Stat", "TensorboardEventHandler", "log_event",
    "register_event_handler", "unregister_event_handler",
]  # fmt: skip

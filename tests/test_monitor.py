"""`torch.monitor`: events reach handlers, and statistics become events."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from ddpgrad.compat import monitor
from ddpgrad.compat.monitor import Aggregation, Event, Stat


def test_statistics_become_events_and_handlers_hear_of_them(monkeypatch: pytest.MonkeyPatch):
    told: list[tuple[str, dict[str, Any]]] = []
    handle = monitor.register_event_handler(lambda event: told.append((event.name, event.data)))
    now = [1000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    try:
        stat = Stat("loss", [Aggregation.SUM, Aggregation.MEAN], timedelta(seconds=10))
        stat.add(2.0)
        stat.add(4)
        assert stat.count == 2 and stat.get()[Aggregation.SUM] == 0.0 and not told
        now[0] += 10
        stat.add(1.0)
        assert stat.count == 1 and stat.get() == {Aggregation.SUM: 6.0, Aggregation.MEAN: 3.0}
        assert told == [("torch.monitor.Stat", {"loss.sum": 6.0, "loss.mean": 3.0})]
        del stat
        assert told.pop() == ("torch.monitor.Stat", {"loss.sum": 1.0, "loss.mean": 1.0})
        few = Stat("few", [Aggregation.MAX, Aggregation.COUNT], timedelta(seconds=10), max_samples=2)
        for value in (1.0, 5.0, 9.0):
            few.add(value)
        assert told[1:] == [("torch.monitor.Stat", {"few.max": 5.0, "few.count": 2.0})] and few.count == 0
    finally:
        monitor.unregister_event_handler(handle)
    monitor.log_event(Event("mine", datetime.now(), {"a": 1}))
    assert len(told) == 2


def test_the_writer_gets_statistics_and_wrong_events_are_refused():
    written: list[tuple[str, float]] = []

    class Writer:
        def add_scalar(self, name: str, value: float, walltime: float) -> None:
            written.append((name, value))

    handler = monitor.TensorboardEventHandler(Writer())
    handler(Event("torch.monitor.Stat", datetime.now(), {"a.sum": 1.0}))
    handler(Event("other", datetime.now(), {"a.sum": 2.0}))
    assert written == [("a.sum", 1.0)]
    with pytest.raises(TypeError, match="expected a text, a datetime and a dict"):
        Event("a", datetime.now(), {"b": [1]})
    with pytest.raises(TypeError, match="expected a list of Aggregations"):
        Stat("a", [3], timedelta(1))  # type: ignore[list-item]

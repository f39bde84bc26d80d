"""`record_function`: labels of the program's own."""

from __future__ import annotations

import contextlib

from ..core import spans


class record_function(contextlib.ContextDecorator):
    """A label around a block, or a decorator: a row of the profiler's table, and a span in `ddprun --trace`."""

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

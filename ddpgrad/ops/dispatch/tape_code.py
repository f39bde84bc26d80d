"""A tape as a Python function: one line for each entry, which drops what no later line needs."""

from __future__ import annotations

import linecache
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from ...core.tensor import Tensor, wrap
from .tape import Recording
from .tape_entries import AsTensor, Constant, Entry, Slot, constant, load, load_grad, write

_numbers = count(1)


class Code:
    """What replays a recording. text: its source."""

    def __init__(self, tape: Recording, outputs: Sequence[tuple[Slot, bool]]) -> None:
        """outputs: what a replay returns, and which of it must be copies."""
        self._tape = tape
        self._scope: dict[str, Any] = {"asarray": np.asarray, "wrap": wrap}
        self._names: dict[int, str] = {}
        self._loaded: dict[Slot, Tensor] = {}
        last = self._last_uses(outputs)
        lines = [f"def replay({', '.join(self._slot(slot) for slot in tape.inputs)}):"]
        for place, entry in enumerate(tape.entries):
            lines += [f"    {line}" for line in self._lines(entry)]
            done = [self._slot(Slot(index)) for index in last.get(place, ())]
            if done:
                lines.append(f"    del {', '.join(done)}")
        returned = [f"{self._slot(slot)}{'.copy()' if copied else ''}" for slot, copied in outputs]
        lines.append(f"    return [{', '.join(returned)}]")
        self.text = "\n".join(lines) + "\n"
        self.replay: Callable[..., list[Any]] = self._compiled()

    def _compiled(self) -> Any:
        name = f"<captured step {next(_numbers)}>"
        linecache.cache[name] = len(self.text), None, self.text.splitlines(True), name  # for tracebacks
        exec(compile(self.text, name, "exec"), self._scope)
        return self._scope["replay"]

    def _last_uses(self, outputs: Iterable[tuple[Slot, bool]]) -> dict[int, list[int]]:
        """Slots by the entry that uses, or makes, them last."""
        last: dict[int, int] = {}
        for place, entry in enumerate(self._tape.entries):
            for slot in _slots((entry.args, entry.kwargs, entry.results)):
                last[slot.number] = place
        for slot, _ in outputs:
            last.pop(slot.number, None)
        places: dict[int, list[int]] = {}
        for index, place in last.items():
            places.setdefault(place, []).append(index)
        return places

    def _lines(self, entry: Entry) -> Iterator[str]:
        function, args, results = entry.function, entry.args, entry.results
        if function is constant:
            name = self._object(args[0].value)
            if results.number in self._tape.mutable:
                name += ".copy()"
            yield f"{self._slot(results)} = {name}"
        elif function is load:
            self._loaded[results] = args[0].value
            yield f"{self._slot(results)} = {self._object(args[0].value)}._array"
        elif function is load_grad:
            yield f"{self._slot(results)} = {self._object(args[0].value)}._grad._array"
        elif function is write:
            array, index, value = map(self._term, args)
            yield f"{array}[{index}] = {value}"
            if args[0] in self._loaded:  # what depends on the old elements must find out
                yield f"{self._object(self._loaded[args[0]])}._versions[0] += 1"
        else:
            given = [self._term(arg) for arg in args]
            given += [f"{name}={self._term(value)}" for name, value in entry.kwargs.items()]
            call = f"{self._object(function)}({', '.join(given)})"
            yield from self._assigned(results, call)

    def _assigned(self, results: Any, call: str) -> Iterator[str]:
        if isinstance(results, Slot):
            scalar = results.number in self._tape.scalars
            yield f"{self._slot(results)} = {f'asarray({call})' if scalar else call}"
        elif isinstance(results, AsTensor):
            yield f"{self._slot(results.slot)} = {call}._array"
        elif not any(True for _ in _slots(results)):
            yield call
        else:
            yield f"{self._pattern(results)} = {call}"
            for slot in _slots(results):
                if slot.number in self._tape.scalars:
                    yield f"{self._slot(slot)} = asarray({self._slot(slot)})"

    def _pattern(self, results: Any) -> str:
        """The left side of an assignment that takes results apart."""
        if isinstance(results, Slot):
            return self._slot(results)
        if isinstance(results, tuple) and not isinstance(results, AsTensor):
            return f"({', '.join(map(self._pattern, results))},)"
        return "_"

    def _slot(self, slot: Slot) -> str:
        return f"v{slot.number}"

    def _term(self, value: Any) -> str:
        """An argument as an expression."""
        if isinstance(value, Slot):
            return self._slot(value)
        if isinstance(value, AsTensor):
            return f"wrap({self._slot(value.slot)})"
        if isinstance(value, Constant):
            return self._object(value.value)
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {self._term(part)}" for key, part in value.items()) + "}"
        parts = ", ".join(map(self._term, value))
        return f"[{parts}]" if isinstance(value, list) else f"({parts},)"

    def _object(self, value: Any) -> str:
        """An expression for an object of Python."""
        if _is_literal(value):
            return repr(value)
        name = self._names.get(id(value))
        if name is None:
            told = re.sub(r"\W", "_", str(getattr(value, "__name__", type(value).__name__)))
            name = self._names[id(value)] = f"{told}_{len(self._names)}"
            self._scope[name] = value  # and so alive, which keeps its identity
        return name


def _is_literal(value: Any) -> bool:
    """Whether Python's text of `value` means the same."""
    if value is None or value is Ellipsis or type(value) in (bool, int, str):
        return True
    if type(value) is slice:
        return all(map(_is_literal, (value.start, value.stop, value.step)))
    return (
        math.isfinite(value)
        if type(value) is float
        else type(value) is tuple and all(map(_is_literal, value))
    )


def _slots(value: Any) -> Iterator[Slot]:
    """All slots in arguments or results."""
    if isinstance(value, Slot):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _slots(part)
    elif isinstance(value, (tuple, list)) and not isinstance(value, Constant):
        for part in value:
            yield from _slots(part)

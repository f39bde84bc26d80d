"""A forward pass as a list of steps: each op with its inputs and outputs.

The model runs twice, the second time on other values and, where axes are dynamic, on other sizes.
What differs between the runs shows what depends on the input: a size that follows a dynamic axis
becomes a `Size`; anything else that differs cannot be exported, and is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import ExportError
from ...ops.dispatch.recording import Call, Recorder


class Value(NamedTuple):
    """An array that is known by name: an input, a parameter, or what a step gave."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Size(NamedTuple):
    """`factor` times the size of a dynamic axis of an input; `here` is what it was in the first run."""

    input: str
    axis: int
    here: int
    factor: int = 1


class Unknown(NamedTuple):
    """A size that follows dynamic axes in another way than being a multiple of one of them."""

    here: int


@dataclass
class Step:
    """One op that ran: arguments by name, in which arrays are a Value, or themselves if constant.

    An argument is an attribute too: `step.input`.
    """

    op: str
    arguments: dict[str, Any]
    results: list[Value | None]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.arguments[name]
        except KeyError:
            raise AttributeError(f"the op '{self.op}' has no argument '{name}'") from None


@dataclass
class Trace:
    """A forward: its steps, and its outputs in order."""

    steps: list[Step]
    outputs: list[Any]


class Tracer:
    """Turns arrays into names while a model runs."""

    def __init__(self, known: dict[str, np.ndarray]) -> None:
        self.steps: list[Step] = []
        self._names: dict[int, Value] = {}
        self._alive: list[Any] = []  # an array's identity is its own only while it lives
        self._views: dict[int, list[int]] = {}
        self._lost: set[int] = set()
        for name, array in known.items():
            self._know(name, array)

    def _know(self, name: str, array: np.ndarray) -> Value:
        value = self._names[id(array)] = Value(name, array.shape, array.dtype)
        self._alive.append(array)
        self._lost.discard(id(array))
        self._views.setdefault(_memory(array), []).append(id(array))
        return value

    def run(self, forward: Callable[[], Any]) -> Trace:
        """Call `forward` and write down the ops that it runs; it returns arrays, nested at will."""
        with Recorder(self._on_call, self._on_write):
            out = forward()
        return Trace(self.steps, [self._arguments(array) for array in out])

    def _on_call(self, call: Call) -> None:
        arguments = {name: self._arguments(value) for name, value in call.arguments.items()}
        number = len(self.steps)
        results: list[Value | None] = []
        for i, array in enumerate(call.results):
            known = isinstance(array, np.ndarray)
            results.append(self._know(f"{call.op.name}_{number}_{i}", array) if known else None)
        self.steps.append(Step(call.op.name, arguments, results))

    def _on_write(self, array: Any, index: Any, value: Any) -> None:
        traced = id(array) in self._names or (isinstance(value, np.ndarray) and id(value) in self._names)
        if not traced:
            return
        whole = index is None or index is Ellipsis
        if not whole:
            raise ExportError(
                "onnx.export: a part of a tensor is assigned in place; build the tensor with cat, stack or where instead"
            )
        source = self._arguments(np.asarray(value))
        for other in self._views.get(_memory(array), []):
            if other != id(array):
                self._lost.add(other)  # it sees the new elements too, which nothing here says
        if array.shape != source.shape:
            whole_shape = Value(f"expand_{len(self.steps)}_0", array.shape, source.dtype)
            self.steps.append(Step("expand", {"input": source, "size": array.shape}, [whole_shape]))
            source = whole_shape
        result = self._know(f"cast_{len(self.steps)}_0", array)
        self.steps.append(Step("cast", {"input": source, "dtype": None}, [result]))

    def _arguments(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            if id(value) in self._lost:
                raise ExportError(
                    "onnx.export: a tensor is used after another tensor that shares its memory was changed in place; write "
                    "that operation out of place"
                )
            known = self._names.get(id(value))
            if known is not None:
                return known
            self._alive.append(value)
            return value.copy()
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return value  # tables such as `Bands`, which hold no traced array
        if isinstance(value, (list, tuple)):
            return type(value)(self._arguments(part) for part in value)
        return value


def _memory(array: np.ndarray) -> int:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return id(array)


def unify(first: Trace, second: Trace, sizes: Sequence[tuple[Size, int]]) -> Trace:
    """The first trace, in which what follows dynamic axes is marked; sizes: each with what it was in the second."""
    if [step.op for step in first.steps] != [step.op for step in second.steps]:
        raise ExportError(
            "onnx.export: the model ran other ops on an input of other values or sizes; its Python branches depend on them, and a "
            "file holds one branch only"
        )
    steps = []
    for a, b in zip(first.steps, second.steps, strict=True):
        arguments = {
            name: _unify(value, b.arguments[name], sizes, f"{a.op}({name})")
            for name, value in a.arguments.items()
        }
        steps.append(Step(a.op, arguments, a.results))
    outputs = [_unify(x, y, sizes, "the output") for x, y in zip(first.outputs, second.outputs, strict=True)]
    return Trace(steps, outputs)


def _unify(a: Any, b: Any, sizes: Sequence[tuple[Size, int]], where: str) -> Any:
    if isinstance(a, Value) and isinstance(b, Value) and a.name == b.name:
        return a
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes():
            return a
        if a.size and a.ndim == b.ndim and all((x == a.flat[0]).all() for x in (a, b)):
            shape = _unify(a.shape, b.shape, sizes, where)
            return Filled(a.reshape(-1)[0], tuple(shape), a.dtype)
        if (
            a.ndim == b.ndim == 1
            and min(a.size, b.size) > 1
            and a.size != b.size
            and a.dtype == b.dtype
            and a.dtype.kind in "if"
        ):
            start, step = a[0], a[1] - a[0]
            if all(np.array_equal(x, start + step * np.arange(x.size, dtype=a.dtype)) for x in (a, b)):
                count = _following(a.size, b.size, sizes)
                return Counted(start, step, count, (count,), a.dtype)
    elif isinstance(a, slice) and isinstance(b, slice):
        parts = ("start", "stop", "step")
        return slice(*(_unify(getattr(a, p), getattr(b, p), sizes, where) for p in parts))
    elif isinstance(a, tuple) and hasattr(a, "_fields"):
        parts_of: Any = zip(a, b, strict=True)
        if all(np.array_equal(x, y) for x, y in parts_of):
            return a
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) == len(b):
            same: Any = type(a)
            return same(_unify(x, y, sizes, where) for x, y in zip(a, b, strict=True))
    elif type(a) is type(b) and (a is b or a == b or a != a):
        return a
    elif type(a) is int and type(b) is int:
        return _following(a, b, sizes)
    raise ExportError(
        f"onnx.export: {where} depends on the input's values or sizes in a way that is not made of ops. Export without that dynamic "
        "axis, or compute it from the input with tensor operations"
    )


def _following(a: int, b: int, sizes: Sequence[tuple[Size, int]]) -> Size | Unknown:
    """The dynamic axis of which an int that was `a` and then `b` is a multiple, if there is one."""
    for size, there in sizes:
        factor, rest = divmod(b - a, there - size.here)
        if not rest and a == factor * size.here:
            return size._replace(here=a, factor=factor)
    return Unknown(a)


class Counted(NamedTuple):
    """A constant that counts: start, start + step, …, as many as a dynamic axis says."""

    start: Any
    step: Any
    length: Size | Unknown
    shape: tuple[Any, ...]
    dtype: np.dtype[Any]


class Filled(NamedTuple):
    """A constant with one element everywhere, whose shape follows dynamic axes."""

    element: Any
    shape: tuple[Any, ...]
    dtype: np.dtype[Any]

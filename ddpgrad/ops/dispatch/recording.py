"""Records the ops that run and their arrays, for `summary` and `onnx.export`.

While a `Recorder` is active it stands in the place of every op's CPU kernel, so an op that runs
at another time pays nothing. It sees the ops that Tensors run, with their arguments as the
kernels take them, and not the kernels that a kernel calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...backend.registry import Backend, backend_of
from ...core.modes import recorders
from ...core.upcalls import declare_all_ops
from .declare import OPS, Op


class Call(NamedTuple):
    """One op that ran: its arguments by name, with arrays for tensors, and the arrays that it gave."""

    op: Op
    arguments: dict[str, Any]
    results: tuple[Any, ...]


class Recorder:
    """Calls `on_call` for every op on CPU arrays that runs within a `with` block.

    on_write: called with (array, index, value) when `array[index]`, all of it for None, was made the
    elements of the array or number `value`, converted to its dtype: by an in-place op, or for an op
    that brings its arguments to one dtype.
    """

    def __init__(
        self, on_call: Callable[[Call], None], on_write: Callable[[Any, Any, Any], None] | None = None
    ) -> None:
        self._on_call = on_call
        self.on_write = on_write or (lambda array, index, value: None)
        self._undo: Callable[[], None] = lambda: None

    def __enter__(self) -> Recorder:
        if recorders:
            raise RuntimeError("ops are being recorded already: a summary or an export runs inside another")
        recorders.append(self)
        self._undo = replace_kernels(self._watched, [backend_of("cpu")])
        return self

    def __exit__(self, *exc: object) -> None:
        self._undo()
        recorders.remove(self)

    def _watched(self, op: Op, known: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(*args: Any) -> Any:
            out = known(*args)
            several = isinstance(out, (tuple, list))
            results = tuple(_array(result, args) for result in (out if several else (out,)))
            self._on_call(Call(op, dict(zip(op.params, args, strict=False)), results))
            return type(out)(results) if several else results[0]

        return kernel


def replace_kernels(
    make: Callable[[Op, Callable[..., Any]], Callable[..., Any]], backends: Iterable[Backend]
) -> Callable[[], None]:
    """Let `make(op, kernel)` stand for the kernel of every op on these backends; returns what undoes it.

    What runs in the place of a kernel, for some of its arguments, is made by the kernel's `watching`. Who replaces kernels
    that stand for others must undo it before these are taken away.
    """
    declare_all_ops()
    before: list[tuple[Op, type, Any]] = []
    for backend in backends:
        for op in dict.fromkeys(OPS.values()):
            known = op.kernels.get(backend.array_type)
            before.append((op, backend.array_type, known))
            kernel: Any = make(op, known or partial(_found, backend, op.name))
            kernel.watching = partial(make, op)
            op.kernels[backend.array_type] = kernel

    def undo() -> None:
        for op, array_type, known in before:
            if known is None:
                del op.kernels[array_type]
            else:
                op.kernels[array_type] = known

    return undo


def _found(backend: Backend, name: str, *args: Any, **kwargs: Any) -> Any:
    """Run the kernel of an op that was not used before."""
    return backend.find(name)(*args, **kwargs)


def _array(result: Any, args: tuple[Any, ...]) -> Any:
    """A result as the array object that the Tensor will hold: its identity is how it is known again."""
    if isinstance(result, np.generic):
        return np.asarray(result)
    return result[...] if any(result is arg for arg in args) else result

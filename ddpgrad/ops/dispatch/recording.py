"""Records the ops that run and their arrays, for `summary` and `onnx.export`.

While a `Recorder` is active it stands in the place of every op's CPU kernel, so an op that runs
at another time pays nothing. It sees the ops that Tensors run, with their arguments as the
kernels take them, and not the kernels that a kernel calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...backend.registry import backend_of
from ...core.upcalls import declare_all_ops
from .declare import OPS, Op
from .watching import recorders


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
        self._before: list[tuple[Op, Any]] = []

    def __enter__(self) -> Recorder:
        if recorders:
            raise RuntimeError("ops are being recorded already: a summary or an export runs inside another")
        recorders.append(self)
        declare_all_ops()
        for op in dict.fromkeys(OPS.values()):
            self._before.append((op, op.kernels.get(np.ndarray)))
            op.kernels[np.ndarray] = self._watched(op)
        return self

    def __exit__(self, *exc: object) -> None:
        for op, kernel in self._before:
            if kernel is None:
                del op.kernels[np.ndarray]
            else:
                op.kernels[np.ndarray] = kernel
        self._before.clear()
        recorders.remove(self)

    def _watched(self, op: Op) -> Callable[..., Any]:
        known = op.kernels.get(np.ndarray)

        def kernel(*args: Any) -> Any:
            out = (known or backend_of("cpu").find(op.name))(*args)
            several = isinstance(out, (tuple, list))
            results = tuple(_array(result, args) for result in (out if several else (out,)))
            self._on_call(Call(op, dict(zip(op.params, args, strict=False)), results))
            return type(out)(results) if several else results[0]

        return kernel


def _array(result: Any, args: tuple[Any, ...]) -> Any:
    """A result as the array object that the Tensor will hold: its identity is how it is known again."""
    if isinstance(result, np.generic):
        return np.asarray(result)
    return result[...] if any(result is arg for arg in args) else result

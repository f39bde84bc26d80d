"""The wrappers that tell tapes what threads do: around the kernels of ops, and around what else reads or changes a Tensor.

They are on while some thread records; for other threads they do nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backend.registry import backend_of
from ...core.modes import recorders
from ...core.taping import taping, untaped
from ...core.tensor import Tensor
from .declare import Op
from .recording import replace_kernels

# The shape of what these give depends on the elements: the program may have read it.
_SHAPED_BY_ELEMENTS = frozenset({
    "argwhere", "bincount", "masked_select", "nonzero", "repeat_interleave", "unique", "unique_consecutive", "unique_dim",
})  # fmt: skip


class _Wrappers:
    """On or off, by the number of threads that record."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._undo: list[Callable[[], None]] = []

    def put_on(self) -> bool:
        """For one more thread. False where a summary or an export records ops meanwhile."""
        with self._lock:
            if not self._users and recorders:
                return False
            self._users += 1
            if self._users > 1:
                return True
            recorders.append(self)
            self._undo = [replace_kernels(_watched, [backend_of("cpu")])]
            for name in _READERS:
                self._replace(name, _reading(name, getattr(Tensor, name)))
            for name, changing in _CHANGED.items():
                self._replace(name, changing(name, vars(Tensor)[name]))
            return True

    def take_off(self) -> None:
        """For one thread."""
        with self._lock:
            self._users -= 1
            if not self._users:
                recorders.remove(self)
                while self._undo:
                    self._undo.pop()()

    def _replace(self, name: str, by: Any) -> None:
        before = vars(Tensor)[name]
        setattr(Tensor, name, by)
        self._undo.append(lambda: setattr(Tensor, name, before))

    def on_write(self, array: Any, index: Any, value: Any) -> None:
        """Ops tell of writes that no kernel makes."""
        tape: Any = taping.now
        if tape is not None:
            tape.on_write(array, index, value)


wrappers = _Wrappers()


def _watched(op: Op, known: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        tape = taping.now
        if tape is None or kwargs:
            return known(*args, **kwargs)
        if op.name in _SHAPED_BY_ELEMENTS or (op.name == "index_by" and _has_mask(args[1])):
            tape.fail(f"the shape of what {op.name} gives depends on elements")
        return tape.run(known, args)

    return kernel


def _has_mask(index: Any) -> bool:
    """Whether an index selects as many elements as a mask has ones."""
    if isinstance(index, (tuple, list)):
        return any(map(_has_mask, index))
    return isinstance(index, np.ndarray) and index.dtype == np.bool_


def _reading(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        untaped(f"it reads a value, by Tensor.{name}: return the tensor, and read it outside of the step")
        return method(self, *args, **kwargs)

    return read


def _grad(name: str, known: property) -> property:
    def store(self: Tensor, value: Tensor | None) -> None:
        tape: Any = taping.now
        if tape is None:
            known.fset(self, value)  # type: ignore[misc]
        else:
            tape.fills(self)
            tape.call(known.fset, (self, value), {})

    return property(known.fget, store, lambda self: store(self, None))


def _fixed(name: str, known: property) -> property:
    def store(self: Tensor, value: Any) -> None:
        tape: Any = taping.now
        if tape is not None and tape.knows(self):
            tape.fail(f"it changes .{name} of a tensor")
        known.fset(self, value)  # type: ignore[misc]

    return property(known.fget, store, known.fdel)


_READERS = ("item", "numpy", "tolist", "__bool__")
_CHANGED: dict[str, Callable[[str, Any], property]] = {"grad": _grad, "requires_grad": _fixed, "data": _fixed}

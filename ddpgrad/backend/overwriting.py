"""Which array the kernels that write single elements may write to, where they otherwise write to a copy of it.

`x.index_add_(…)` and its like are the out-of-place functions run within `overwriting(x)`: what they
change of a large tensor is often little, and copying the rest would cost more than the work.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any


class _Target(threading.local):
    array: Any = None


_target = _Target()


@contextlib.contextmanager
def overwriting(array: Any) -> Iterator[None]:
    """Within the block, kernels of this thread that are given `array` itself write to it."""
    _target.array = array
    try:
        yield
    finally:
        _target.array = None


def to_write(xp: ModuleType, array: Any) -> Any:
    """What a kernel of `xp` (NumPy or CuPy) writes to: a copy of `array`, or `array` where that is allowed."""
    return array if array is _target.array else xp.array(array, copy=True)

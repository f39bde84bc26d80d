"""The meta backend: shapes and dtypes of results, without elements and without computing any.

It is the portable body of every op, and the elementary kernels, on a third array library (`array.py`), whose arrays
have a shape, a dtype and steps. So an op needs no shape function of its own. What needs elements raises
`NoElementsError`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ..device import META, Device
from ..elementary import elementary
from ..registry import Backend, kernels_in
from .array import MetaArray
from .library import LIBRARY


def _device_of(array: Any) -> Device:
    return META


def from_host(array: Any, device: Device) -> MetaArray:
    """An array that lies in memory as one on the host."""
    return MetaArray(array.shape, array.dtype, strides=array.strides)


def to_host(array: MetaArray) -> NoReturn:
    raise NotImplementedError("Cannot copy out of meta tensor; no data!")


def load() -> Backend:
    """The meta backend; it has no requirements."""
    own = {"from_host": from_host, "to_host": to_host}
    families = kernels_in(__name__, ("kernels",))
    kernels = elementary(LIBRARY) | own  # type: ignore[arg-type]
    return Backend("meta", MetaArray, kernels, families, _device_of, library=LIBRARY)

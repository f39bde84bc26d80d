"""Plans, descriptions and errors on their way from rank to rank.

They go by Python's own pickle, since a plan of a large model has many parts, and the reader makes nothing but what is listed
here; after `allow_pickle`, or under `ddprun --as-torch`, planners and storages may put objects of any class into their plans.
"""

from __future__ import annotations

import builtins
import collections
import io
import pathlib
import pickle
import traceback
from typing import Any

from ...backend.dtype import DType
from ...core import errors
from ...core.size import Layout, Size
from ..objects import _require_pickle
from . import metadata, planner, storage
from .api import WRAPPED_EXCEPTION, CheckpointException

_HOMES = (metadata, planner, storage)
_CLASSES: dict[tuple[str, str], Any] = {
    (kind.__module__, kind.__qualname__): kind
    for kind in (
        *[v for home in _HOMES for v in vars(home).values() if isinstance(v, type) and v.__module__ == home.__name__],
        Size, CheckpointException, traceback.StackSummary, traceback.FrameSummary, collections.OrderedDict,
        type(pathlib.Path()), *[v for v in vars(errors).values() if isinstance(v, type)],
        *[v for v in vars(builtins).values() if isinstance(v, type) and issubclass(v, Exception)],
        set, frozenset, complex, bytearray,
    )
}  # fmt: skip


def register(*classes: type) -> None:
    """Let plans hold objects of these classes of data."""
    _CLASSES.update({(kind.__module__, kind.__qualname__): kind for kind in classes})


class _Reader(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        known = _CLASSES.get((module_name, global_name))
        if known is not None:
            return known
        if module_name in (DType.__module__, Layout.__module__):
            found = super().find_class(module_name, global_name)
            if isinstance(found, (DType, Layout)):
                return found
        _require_pickle(f"a plan of a checkpoint with a {module_name}.{global_name}")
        return super().find_class(module_name, global_name)


def packed(value: Any) -> bytes:
    """`value` for the way to another rank."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> Any:
    """What another rank has packed; TypeError for a class of the program, unless pickle is allowed."""
    return _Reader(io.BytesIO(data)).load()


def portable(failure: WRAPPED_EXCEPTION) -> WRAPPED_EXCEPTION:
    """`failure`, whose error the others can make again, or its text can."""
    error, where = failure
    try:
        again = unpacked(packed(error))
    except Exception:  # whatever a class does when it is taken apart or made
        again = None
    if type(again) is type(error) and str(again) == str(error):
        return failure
    return errors.CheckpointError(f"{type(error).__name__}: {error}"), where

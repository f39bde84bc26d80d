"""What CuPy's own extensions sort with thrust, by NumPy: `cupy.cuda.thrust`'s three functions."""

from typing import Any

import ml_dtypes
import numpy as np

from .abi import captured, finish, view


def _keys(values: Any) -> Any:
    """What orders the values: NumPy sorts no bfloat16. nan comes last, as in CuPy."""
    import cupy

    stream = cupy.cuda.get_current_stream().ptr
    if captured(stream):  # thrust allocates and waits
        raise RuntimeError("thrust sorts nothing on a stream that is captured")
    finish(stream)
    return values.astype(np.float32) if values.dtype == ml_dtypes.bfloat16 else values


def sort(dtype: Any, data: int, keys: int, shape: Any) -> None:
    """Sort the last dimension in place."""
    values = view(data, dtype, shape, who="thrust")
    order = np.argsort(_keys(values), axis=-1, kind="stable")
    values[...] = np.take_along_axis(values, order, -1)


def argsort(dtype: Any, out: int, data: int, keys: int, shape: Any) -> None:
    """Sort the last dimension in place, and write where each value was."""
    values, places = view(data, dtype, shape, who="thrust"), view(out, np.intp, shape, who="thrust")
    places[...] = np.argsort(_keys(values), axis=-1, kind="stable")
    values[...] = np.take_along_axis(values, places, -1)


def lexsort(dtype: Any, out: int, keys: int, rows: int, count: int) -> None:
    """The order by the last row of keys first."""
    values = view(keys, dtype, (rows, count), who="thrust")
    view(out, np.intp, (count,), who="thrust")[...] = np.lexsort(_keys(values))

"""Objects as a pickle and the bytes of their arrays, which are copied once into shared memory."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.tensor import Tensor, wrap

_USER_DEFINED = 2  # NumPy's word for a dtype that another package brings, such as bfloat16


def pack(obj: Any) -> tuple[bytes, list[memoryview]]:
    """(pickle, buffers): the arrays and tensors inside `obj` are in the buffers, uncopied."""
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(obj)
    return file.getvalue(), [buffer.raw() for buffer in buffers]


def unpack(data: bytes, buffers: Sequence[Any]) -> Any:
    """The object again; its arrays lie in `buffers`, and are writable where those are."""
    return _Unpickler(io.BytesIO(data), buffers=buffers).load()


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is Tensor and not obj._requires_grad and not obj.is_cuda and not obj.__dict__:
            return wrap, (obj._array,)
        # NumPy gives a buffer only of contiguous arrays, and of dtypes that it knows.
        if type(obj) is np.ndarray and not obj.dtype.hasobject:
            if not (obj.flags.c_contiguous or obj.flags.f_contiguous):
                return _array, (np.ascontiguousarray(obj), obj.dtype)
            if obj.dtype.isbuiltin == _USER_DEFINED:
                return _array, (obj.view(f"u{obj.dtype.itemsize}"), obj.dtype)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # A worker knows the program's file as __mp_main__; a rank under ddprun sees its own as __main__.
        return super().find_class("__main__" if module == "__mp_main__" else module, name)


def _array(stored: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    return stored.view(dtype)

"""Plain Python data as bytes and back, without pickle, for object collectives.

None, bool, int, float, str, bytes, list, tuple, dict (with keys of these types) and NumPy
arrays of numbers and texts come back as they were, types included: an instance of a subclass,
which may hold more (a mask, a default), is none of them. Nothing received can run code.
"""

from __future__ import annotations

import base64
import json
from typing import Any, TypeGuard

import ml_dtypes
import numpy as np

# JSON has no bytes, tuples or keys other than strings; a dict with this one key stands for them.
_TAG = "!"


def encode(obj: object) -> bytes:
    """`obj` as bytes. Raises TypeError, naming the place, for anything that is not plain data."""
    return json.dumps(_plain(obj, "object"), separators=(",", ":")).encode("utf-8", "surrogatepass")


def decode(data: bytes) -> Any:
    """The object that `encode` turned into `data`."""
    return _restore(json.loads(data.decode("utf-8", "surrogatepass")))


def is_plain(obj: object) -> bool:
    """Whether `encode` takes `obj`."""
    if _is_word(obj) or type(obj) is bytes or _is_array(obj):
        return True
    if type(obj) in (list, tuple):
        return all(map(is_plain, obj))  # type: ignore[call-overload]
    return type(obj) is dict and all(map(is_plain, obj)) and all(map(is_plain, obj.values()))


def _is_word(obj: object) -> bool:
    """Whether JSON has `obj` as it is."""
    return obj is None or type(obj) in (bool, int, float, str)


def _is_array(obj: object) -> TypeGuard[np.ndarray]:
    known = type(obj) in (np.ndarray, np.memmap)
    return known and not obj.dtype.hasobject and obj.dtype.names is None  # type: ignore[attr-defined]


def _name(dtype: np.dtype) -> str:
    """What makes `dtype` again, with its order of bytes; only a name makes those of ml_dtypes."""
    return dtype.name if hasattr(ml_dtypes, dtype.name) else dtype.str


def _plain(obj: object, where: str) -> object:
    if _is_word(obj):
        return obj
    if type(obj) is bytes:
        return {_TAG: ["bytes", base64.b64encode(obj).decode("ascii")]}
    if _is_array(obj):
        data = base64.b64encode(np.ascontiguousarray(obj).tobytes()).decode("ascii")
        return {_TAG: ["array", [_name(obj.dtype), list(obj.shape), data]]}
    if type(obj) is list:
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(obj)]
    if type(obj) is tuple:
        return {_TAG: ["tuple", [_plain(item, f"{where}[{i}]") for i, item in enumerate(obj)]]}
    if type(obj) is dict:
        if _TAG not in obj and all(type(key) is str for key in obj):
            return {key: _plain(value, f"{where}[{key!r}]") for key, value in obj.items()}
        pairs = [
            [_plain(key, f"{where} key"), _plain(value, f"{where}[{key!r}]")] for key, value in obj.items()
        ]
        return {_TAG: ["dict", pairs]}
    raise TypeError(
        f"{where} is a {type(obj).__name__}; between ranks go None, bool, int, float, str, bytes, list, "
        "tuple, dict and arrays of numbers or texts (no pickle). Convert it first, for example with .numpy() or .item()."
    )


def _restore(obj: Any) -> Any:
    if isinstance(obj, list):
        return [_restore(item) for item in obj]
    if not isinstance(obj, dict):
        return obj
    if _TAG not in obj:
        return {key: _restore(value) for key, value in obj.items()}
    kind, content = obj[_TAG]
    if kind == "bytes":
        return base64.b64decode(content)
    if kind == "array":
        name, shape, data = content
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        return np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()
    if kind == "tuple":
        return tuple(_restore(item) for item in content)
    return {_restore(key): _restore(value) for key, value in content}

"""`save` and `load`: nested Python data with tensors in one file, without pickle.

A file holds the tensors' bytes (`tensor_file.py`) and a JSON tree that says how they were
nested. Loading a file runs no code from it.

The tree: null, booleans, integers, finite floats, strings and lists stand for themselves;
everything else is an object with one key, which names its kind. A tensor, or an array,
that occurs twice is stored once and comes back as one object.

Files of PyTorch itself hold pickles, and are read through an installed PyTorch (`torch_file.py`).
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from .. import ops  # noqa: F401 - gives the class Tensor its methods
from ..backend import device as devices
from ..backend import dtype as dtypes
from ..backend.device import CPU, Device
from ..backend.dtype import DType
from ..backend.registry import to_device
from ..core.errors import CheckpointError, DeviceError
from ..core.tensor import Size, Tensor, wrap
from . import torch_file
from .tensor_file import is_storable, read, write

File = str | os.PathLike[str] | IO[bytes]
Place = tuple[Any, ...]  # the keys and indices that lead to a part of an object
MapLocation = str | Device | Mapping[str, Any] | Callable[[Any, str], Any] | None

_VERSION = "1"


def save(
    obj: Any,
    f: File,
    pickle_module: Any = None,
    pickle_protocol: int | None = None,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Write `obj` to a path or to a binary file.

    obj: dict (any order of int, float, bool, None, str and tuple keys), OrderedDict, list, tuple,
    set, int, float, complex, bool, str, bytes, None, dtype, device, Size, Tensor, NumPy array and
    scalar, nested at will. A Parameter comes back as a Tensor that requires a gradient.
    CheckpointError names the place of anything else, before the file is touched. The other
    arguments are PyTorch's, and without effect: nothing is pickled.
    """
    arrays, metadata = pack(obj)
    if isinstance(f, (str, os.PathLike)):
        with open(f, "wb") as file:
            write(file, arrays, metadata)
    else:
        write(f, arrays, metadata)


def pack(obj: Any) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """What `save` writes: the arrays of `obj`, named by their places in it, and metadata with all the rest."""
    encoder = _Encoder()
    try:
        tree = encoder.encode(obj, ())
        text = json.dumps(tree, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"the object cannot be written: {error}") from None
    return encoder.arrays, {"format": "ddpgrad", "version": _VERSION, "tree": text}


def unpack(
    arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str], name: str, map_location: MapLocation = None
) -> Any:
    """The object that `pack` took apart; CheckpointError, which calls it `name`, if that is not possible."""
    if metadata.get("format") != "ddpgrad" or metadata.get("version") != _VERSION:
        raise CheckpointError(
            f"{name} has format {metadata.get('format')!r} version {metadata.get('version')!r}; this ddpgrad "
            f"reads 'ddpgrad' version {_VERSION!r}"
        )
    try:
        return _Decoder(arrays, map_location).decode(json.loads(metadata["tree"]))
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise CheckpointError(f"{name} does not describe an object: {error!r}") from None


def load(
    f: File,
    map_location: MapLocation = None,
    pickle_module: Any = None,
    *,
    weights_only: bool = True,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read what `save` wrote from a path or a seekable binary file; or a file of PyTorch's.

    map_location: the device of all tensors, or a mapping from saved to wanted devices, or a
    function of (storage, saved device) that returns the storage where it should be; by default
    every tensor goes where it was saved from. weights_only, pickle_module and pickle_load_args
    are PyTorch's: nothing but data is ever read. mmap: accepted; the checksum is over all bytes,
    so that they are read in any case (`ddpgrad.safetensors` maps files). A file of PyTorch's is read
    by an installed PyTorch with `weights_only=True`. CheckpointError if the file is damaged or of
    another kind.
    """
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return _load(file, os.fspath(f), map_location, to_end=True)
    return _load(f, str(getattr(f, "name", "the file")), map_location, to_end=False)


def _load(file: IO[bytes], name: str, map_location: MapLocation, *, to_end: bool) -> Any:
    if torch_file.looks_like_one(file):
        return torch_file.read(file, name, lambda array: _placed(array, "cpu", map_location))
    arrays, metadata = read(file, name, to_end=to_end)
    return unpack(arrays, metadata, name, map_location)


def add_safe_globals(safe_globals: Sequence[Any]) -> None:
    """Nothing: files name no classes, so none has to be allowed."""


def get_safe_globals() -> list[Any]:
    """No classes: see `add_safe_globals`."""
    return []


@contextlib.contextmanager
def safe_globals(safe_globals: Sequence[Any]) -> Iterator[None]:
    """A block without effect: see `add_safe_globals`."""
    yield


class _Encoder:
    """Turns an object into a tree, and collects the arrays that it refers to."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._names: dict[tuple[Any, ...], str] = {}
        self._inside: set[int] = set()  # containers that are being encoded
        self._alive: list[Any] = []  # addresses are only unique while their owners live

    def encode(self, obj: Any, where: Place) -> Any:
        kind = type(obj)
        if obj is None or kind in (bool, int, str):
            return obj
        if kind is float:
            return obj if math.isfinite(obj) else {"float": str(obj)}
        if kind in _PLAIN:
            name, write_down = _PLAIN[kind]
            return {name: write_down(obj)}
        if isinstance(obj, Tensor):
            return {"tensor": [self._store(obj._array, where), str(obj.device), obj.requires_grad]}
        if kind is np.ndarray:
            return {"array": self._store(obj, where)}
        if isinstance(obj, np.generic):
            return {"scalar": self._store(obj, where)}
        if kind in _CONTAINERS:
            if id(obj) in self._inside:
                raise CheckpointError(f"cannot save {_in_words(where)}: it contains itself")
            self._inside.add(id(obj))
            out = self._container(kind, obj, where)
            self._inside.discard(id(obj))
            return out
        raise CheckpointError(
            f"cannot save {_in_words(where)}: objects of type {kind.__module__}.{kind.__qualname__} are not stored. "
            "Save numbers, strings, tensors, arrays, and dicts, lists and tuples of them; of an object with "
            "a state_dict, save that"
        )

    def _container(self, kind: type, obj: Any, where: Place) -> Any:
        if kind in (dict, OrderedDict):
            for key in obj:
                _check_key(key, where)
            pairs = [[self.encode(k, where), self.encode(v, (*where, k))] for k, v in obj.items()]
            return {_CONTAINERS[kind]: pairs}
        ordered = sorted(obj, key=repr) if kind in (set, frozenset) else obj  # one set, one file
        items = [self.encode(item, (*where, i)) for i, item in enumerate(ordered)]
        return items if kind is list else {_CONTAINERS[kind]: items}

    def _store(self, array: Any, where: Place) -> str:
        """The name under which the array's elements are stored, the same for the same memory."""
        if not is_storable(array.dtype):
            raise CheckpointError(
                f"cannot save {_in_words(where)}: arrays of {array.dtype} have no place in the file format"
            )
        if isinstance(array, np.generic):
            array = np.asarray(array)
        on_host = isinstance(array, np.ndarray)
        address = array.__array_interface__["data"][0] if on_host else array.data.ptr
        key = (address, array.shape, array.strides, array.dtype)
        if key not in self._names:
            self._names[key] = name = self._new_name(where)
            self.arrays[name] = to_device(array, CPU)
            self._alive.append(array)
        return self._names[key]

    def _new_name(self, where: Place) -> str:
        """A name that tells people and other programs which array it is."""
        wanted = name = ".".join(map(str, where)) or "value"
        number = 1
        while name in self.arrays or name == "__metadata__":
            number += 1
            name = f"{wanted}~{number}"
        return name


def _in_words(where: Place) -> str:
    return "obj" + "".join(f"[{key!r}]" for key in where)


class _Decoder:
    """Turns a tree back into the object."""

    def __init__(self, arrays: Mapping[str, np.ndarray], map_location: MapLocation) -> None:
        self._arrays = arrays
        self._map_location = map_location
        self._tensors: dict[tuple[Any, ...], Tensor] = {}

    def decode(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.decode(item) for item in node]
        if not isinstance(node, dict):
            return node
        ((kind, value),) = node.items()
        return _DECODERS[kind](self, value)

    def pairs(self, value: Any) -> list[tuple[Any, Any]]:
        return [(self.decode(k), self.decode(v)) for k, v in value]

    def tuple(self, value: Any) -> tuple[Any, ...]:
        return tuple(self.decode(item) for item in value)

    def array(self, value: str) -> np.ndarray:
        return self._arrays[value]

    def tensor(self, value: Any) -> Tensor:
        name, saved_on, requires_grad = value
        key = (name, saved_on, requires_grad)
        if key not in self._tensors:
            out = _placed(self._arrays[name], saved_on, self._map_location)
            out.requires_grad = requires_grad
            self._tensors[key] = out
        return self._tensors[key]


def _placed(array: np.ndarray, saved_on: str, target: MapLocation) -> Tensor:
    """A tensor with the elements of `array` on the device that `map_location` says."""
    if callable(target):
        storage = wrap(array).untyped_storage()
        moved = target(storage, saved_on)
        target = None if moved is None else moved.device
    elif isinstance(target, Mapping):
        target = target.get(saved_on)
    return wrap(to_device(array, devices.of(_device(saved_on) if target is None else target)))


def _device(name: str) -> Device:
    """The device of that name, whether this machine has it or not; ValueError if there can be none."""
    try:
        return Device(name)
    except DeviceError as error:
        raise ValueError(str(error)) from None


_CONTAINERS: dict[type, str] = {
    list: "list",
    tuple: "tuple",
    Size: "size",
    set: "set",
    frozenset: "frozenset",
    dict: "dict",
    OrderedDict: "ordered",
}

_PLAIN: dict[type, tuple[str, Callable[[Any], Any]]] = {
    bytes: ("bytes", lambda value: base64.b64encode(value).decode()),
    complex: ("complex", lambda value: [str(value.real), str(value.imag)]),
    DType: ("dtype", lambda value: value.name),
    Device: ("device", str),
}
"""What a word or two describe: the kind's name in the tree, and how it is written there."""

_DECODERS: dict[str, Callable[[_Decoder, Any], Any]] = {
    "float": lambda _, value: float(value),
    "tensor": _Decoder.tensor,
    "array": _Decoder.array,
    "scalar": lambda decoder, value: decoder.array(value)[()],
    "tuple": _Decoder.tuple,
    "set": lambda decoder, value: set(decoder.tuple(value)),
    "frozenset": lambda decoder, value: frozenset(decoder.tuple(value)),
    "bytes": lambda _, value: base64.b64decode(value, validate=True),
    "complex": lambda _, value: complex(*map(float, value)),
    "dtype": lambda _, value: dtypes.BY_NAME[value],
    "device": lambda _, value: _device(value),
    "size": lambda decoder, value: Size(decoder.tuple(value)),
    "dict": lambda decoder, value: dict(decoder.pairs(value)),
    "ordered": lambda decoder, value: OrderedDict(decoder.pairs(value)),
}


def _check_key(key: Any, where: Place) -> None:
    if type(key) is tuple:
        for part in key:
            _check_key(part, where)
    elif key is not None and type(key) not in (bool, int, float, str):
        raise CheckpointError(
            f"cannot save {_in_words(where)}: its key {key!r} is a {type(key).__qualname__}; keys are str, int, float, "
            "bool, None, or tuples of them"
        )

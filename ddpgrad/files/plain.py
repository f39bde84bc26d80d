"""Nested Python data with tensors in one file, without pickle: the form of checkpoints and of `.safetensors` files.

A file holds the tensors' bytes (`tensor_file.py`) and a JSON tree that says how they were
nested. Loading a file runs no code from it.

The tree: null, booleans, integers, finite floats, strings and lists stand for themselves;
everything else is an object with one key, which names its kind. A tensor, or an array,
that occurs twice is stored once and comes back as one object.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import enum
import json
import math
import pathlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import IO, Any

import numpy as np

from .. import ops  # noqa: F401 - gives the class Tensor its methods
from ..backend import device as devices
from ..backend import dtype as dtypes
from ..backend.device import CPU, Device
from ..backend.dtype import DType
from ..backend.elementary.shape import address_of
from ..backend.registry import to_device
from ..core.errors import CheckpointError, DeviceError
from ..core.storage import UntypedStorage
from ..core.tensor import Size, Tensor, wrap
from ..version import TorchVersion
from . import safe_globals
from .pickle_reader import RefusedError, check_hashes
from .pickle_writer import Place, in_words
from .settings import default_restore_location, registered
from .tensor_file import is_storable, read, write

MapLocation = str | Device | Mapping[str, Any] | Callable[[Any, str], Any] | None

_VERSION = "1"


class PlainFile:
    """What a file is to hold; CheckpointError names the place of what has no form."""

    def __init__(self, obj: Any) -> None:
        self._arrays, self._metadata = pack(obj)

    def write(self, file: IO[bytes]) -> None:
        """Write the file at the position of a binary one."""
        write(file, self._arrays, self._metadata)


def load_plain(file: IO[bytes], name: str, map_location: MapLocation = None, *, to_end: bool = True) -> Any:
    """Read what `PlainFile` wrote at the position of a seekable binary file. to_end: nothing may follow."""
    arrays, metadata = read(file, name, to_end=to_end)
    return unpack(arrays, metadata, name, map_location)


def pack(obj: Any) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """What `PlainFile` writes: the arrays of `obj`, named by their places in it, and metadata with all the rest."""
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


class _Encoder:
    """Turns an object into a tree, and collects the arrays that it refers to."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._names: dict[tuple[Any, ...], str] = {}
        self._inside: set[int] = set()  # containers that are being encoded
        self._alive: list[Any] = []  # addresses are only unique while their owners live

    def encode(self, obj: Any, where: Place) -> Any:
        kind = type(obj)
        if obj is None or kind in (bool, int, str, TorchVersion):
            return obj
        if isinstance(obj, Tensor) and (
            kind is Tensor or not hasattr(kind, "full_tensor")
        ):  # a part of which this rank has
            array = obj._array
            device = "cpu" if type(array) is np.ndarray else str(obj.device)
            return {"tensor": [self._store(array, where), device, obj.requires_grad]}
        if kind is float:
            return obj if math.isfinite(obj) else {"float": str(obj)}
        if kind in _PLAIN:
            name, write_down = _PLAIN[kind]
            return {name: write_down(obj)}
        if kind is np.ndarray:
            return {"array": self._store(obj, where)}
        if isinstance(obj, np.generic):
            return {"scalar": self._store(obj, where)}
        if isinstance(obj, pathlib.PurePath):
            return {"path": str(obj)}
        if isinstance(obj, enum.Enum):
            return {"enum": [_name_of(kind), obj.name]}
        if kind in _CONTAINERS or kind in _NAMESPACES or dataclasses.is_dataclass(kind):
            if id(obj) in self._inside:
                raise CheckpointError(f"cannot save {in_words(where)}: it contains itself")
            self._inside.add(id(obj))
            out = self._container(kind, obj, where)
            self._inside.discard(id(obj))
            return out
        raise CheckpointError(
            f"cannot save {in_words(where)}: objects of type {kind.__module__}.{kind.__qualname__} are not stored. "
            "Save numbers, strings, tensors, arrays, and dicts, lists and tuples of them; of an object with "
            "a state_dict, save that"
        )

    def _container(self, kind: type, obj: Any, where: Place) -> Any:
        if kind in (dict, OrderedDict):
            for key in obj:
                if type(key) is not str:
                    _check_key(key, where)
            pairs = [
                [k if type(k) is str else self.encode(k, where), self.encode(v, (*where, k))]
                for k, v in obj.items()
            ]
            return {_CONTAINERS[kind]: pairs}
        if kind not in _CONTAINERS:
            names = vars(obj) if kind in _NAMESPACES else [field.name for field in dataclasses.fields(obj)]
            pairs = [[name, self.encode(getattr(obj, name), (*where, name))] for name in names]
            return (
                {_NAMESPACES[kind]: pairs} if kind in _NAMESPACES else {"dataclass": [_name_of(kind), pairs]}
            )
        ordered = sorted(obj, key=repr) if kind in (set, frozenset) else obj  # one set, one file
        items = [self.encode(item, (*where, i)) for i, item in enumerate(ordered)]
        return items if kind is list else {_CONTAINERS[kind]: items}

    def _store(self, array: Any, where: Place) -> str:
        """The name under which the array's elements are stored, the same for the same memory."""
        if not is_storable(array.dtype):
            raise CheckpointError(
                f"cannot save {in_words(where)}: arrays of {array.dtype} have no place in the file format"
            )
        if isinstance(array, np.generic):
            array = np.asarray(array)
        key = (address_of(array), array.shape, array.strides, array.dtype)
        if key not in self._names:
            self._names[key] = name = self._new_name(where)
            self.arrays[name] = array if type(array) is np.ndarray else to_device(array, CPU)
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
        found = [(self.decode(k), self.decode(v)) for k, v in value]
        check_hashes([k for k, _ in found])
        return found

    def set(self, value: Any) -> tuple[Any, ...]:
        items = self.tuple(value)
        check_hashes(items)
        return items

    def size(self, value: Any) -> Size:
        if not all(type(length) is int for length in value):
            raise ValueError("a Size that is not made of ints")
        return Size(value)

    def tuple(self, value: Any) -> tuple[Any, ...]:
        return tuple(self.decode(item) for item in value)

    def array(self, value: str) -> np.ndarray:
        return self._arrays[value]

    def tensor(self, value: Any) -> Tensor:
        name, saved_on, requires_grad = value
        key = (name, saved_on, requires_grad)
        if key not in self._tensors:
            out = placed(self._arrays[name], saved_on, self._map_location)
            out.requires_grad = requires_grad
            self._tensors[key] = out
        return self._tensors[key]

    def namespace(self, kind: type, value: Any) -> Any:
        if not all(type(name) is str and not name.startswith("__") for name, _ in value):
            raise ValueError("a name of a namespace is no name")
        return kind(**{name: self.decode(item) for name, item in value})

    def dataclass(self, value: Any) -> Any:
        name, pairs = value
        kind = _allowed(name)
        fields = {field.name for field in dataclasses.fields(kind)}
        out = object.__new__(kind)
        for field, item in pairs:
            if field not in fields:
                raise ValueError(f"{name} has no field {field!r}")
            object.__setattr__(out, field, self.decode(item))
        return out

    def enum(self, value: Any) -> Any:
        name, member = value
        kind = _allowed(name)
        if not issubclass(kind, enum.Enum):
            raise ValueError(f"{name} is no Enum")
        return kind[member]


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _allowed(name: str) -> Any:
    """The class of that name, which the user must have declared safe: a file imports nothing."""
    try:
        return safe_globals.by_name()[name]
    except KeyError:
        raise RefusedError(
            f"the file holds an object of the class {name}, and files import nothing: allow the class with "
            f"torch.serialization.add_safe_globals([{name.rpartition('.')[2]}]) before loading, or save "
            "its values as a dict (dataclasses.asdict, or an Enum's value)"
        ) from None


def placed(array: np.ndarray, saved_on: str, target: MapLocation) -> Tensor:
    """A tensor with the elements of `array` on the device that `map_location` says."""
    storage = UntypedStorage._part(array)  # of a file that is mapped the rest is not this tensor's
    if callable(target):
        moved = target(storage, saved_on)
        target = None if moved is None else moved.device
    elif isinstance(target, Mapping):
        target = target.get(saved_on)
    elif target is None and registered():
        return wrap(default_restore_location(storage, saved_on)._owner)
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

_NAMESPACES: dict[type, str] = {argparse.Namespace: "namespace", SimpleNamespace: "simple"}

_PLAIN: dict[type, tuple[str, Callable[[Any], Any]]] = {
    bytes: ("bytes", lambda value: base64.b64encode(value).decode()),
    complex: ("complex", lambda value: [str(value.real), str(value.imag)]),
    **dict.fromkeys((DType, type(dtypes.float16)), ("dtype", lambda value: value.name)),
    Device: ("device", str),
}
"""What a word or two describe: the kind's name in the tree, and how it is written there."""

_DECODERS: dict[str, Callable[[_Decoder, Any], Any]] = {
    "float": lambda _, value: float(value),
    "tensor": _Decoder.tensor,
    "array": _Decoder.array,
    "scalar": lambda decoder, value: decoder.array(value)[()],
    "tuple": _Decoder.tuple,
    "set": lambda decoder, value: set(decoder.set(value)),
    "frozenset": lambda decoder, value: frozenset(decoder.set(value)),
    "bytes": lambda _, value: base64.b64decode(value, validate=True),
    "complex": lambda _, value: complex(*map(float, value)),
    "dtype": lambda _, value: dtypes.BY_NAME[value],
    "device": lambda _, value: _device(value),
    "size": _Decoder.size,
    "path": lambda _, value: pathlib.Path(value),
    "namespace": lambda decoder, value: decoder.namespace(argparse.Namespace, value),
    "simple": lambda decoder, value: decoder.namespace(SimpleNamespace, value),
    "dataclass": _Decoder.dataclass,
    "enum": _Decoder.enum,
    "dict": lambda decoder, value: dict(decoder.pairs(value)),
    "ordered": lambda decoder, value: OrderedDict(decoder.pairs(value)),
}


def _check_key(key: Any, where: Place) -> None:
    if type(key) is tuple:
        for part in key:
            _check_key(part, where)
    elif key is not None and type(key) not in (bool, int, float, str):
        raise CheckpointError(
            f"cannot save {in_words(where)}: its key {key!r} is a {type(key).__qualname__}; keys are str, int, float, "
            "bool, None, or tuples of them"
        )

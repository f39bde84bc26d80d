"""PyTorch's files, read and written without PyTorch: a pickle of the object, and the memory of its tensors.

A zip archive holds the pickle in `data.pkl` and every storage in a record of its own, by number. Before
version 1.6 PyTorch wrote five pickles one behind the other, and the storages behind them; those are read too.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import math
import os
import pickle
import pickletools
import sys
from collections.abc import Callable
from typing import IO, Any, NamedTuple

import numpy as np

from ..backend.device import CPU
from ..backend.dtype import DType, uint8
from ..backend.elementary.shape import address_of
from ..backend.registry import to_device
from ..core.dispatching import tells
from ..core.errors import CheckpointError
from ..core.storage import STORAGES, TypedStorage, UntypedStorage
from ..core.tensor import Tensor, wrap
from ..nn.parameter import Parameter
from . import archive, safe_globals, settings
from .pickle_reader import Reader, RefusedError
from .pickle_writer import (
    NO_HOOKS,
    Place,
    Writer,
    dtype_name,
    number,
    numbers,
    of_meta,
    of_wrapper,
    plain_tensor,
    rebuilt,
    text,
)
from .tensor_file import fill
from .torch_names import LANGUAGE, StorageType

Storage = TypedStorage | UntypedStorage
Placer = Callable[[np.ndarray, str], Tensor]
"""Puts an array of bytes where it belongs, given the device that the file names."""

_MAGIC = 0x1950A86A20F9469CFC6C
_MOST_PICKLE = 100_000_000  # bytes; longer ones hold what should be tensors
# The pickles that PyTorch wrote before it used archives begin with this number.
_OLD = b"\x8a\x0a" + _MAGIC.to_bytes(10, "little")


def looks_like_one(file: IO[bytes]) -> bool:
    """True when the seekable `file` begins as PyTorch's files do, or as any pickle; it stands where it stood."""
    here = file.tell()
    beginning = file.read(9)
    file.seek(here)
    # A file of ours begins with the length of its header, whose upper bytes are zero, and the header.
    known = beginning.startswith((archive.BEGINNING, b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"))
    return known and not beginning.endswith(b"\0\0\0\0{")


def read(
    file: IO[bytes], name: str, place: Placer, *, weights_only: bool, to_end: bool, mapped: Any = None
) -> Any:
    """The object in PyTorch's file `name`, its memory put where it belongs by `place`.

    weights_only: read data only; without it the file may import and call anything. to_end: nothing may follow.
    mapped: the file's bytes in memory, which tensors of an archive are then views of, without a look at checksums.
    RefusedError for a file that is more than data, CheckpointError for a damaged one.
    """
    start = file.tell()
    beginning = file.read(4)
    file.seek(start)
    if beginning == archive.BEGINNING:
        return _read_archive(file, name, place, weights_only, to_end, mapped)
    return _read_old(file, name, place, weights_only)


def _read_archive(
    file: IO[bytes], name: str, place: Placer, weights_only: bool, to_end: bool, mapped: Any
) -> Any:
    zipped = archive.Archive(file, name, to_end=to_end)
    order = settings.unmarked_order()
    if "byteorder" in zipped:
        order = {b"little": "little", b"big": "big"}.get(bytes(zipped.read("byteorder")[:7]))
        if order is None:
            raise zipped.damaged("its order of bytes is neither little nor big")
    storages: dict[str, Storage] = {}

    def storage(key: Any) -> Storage:
        kind, number, location, count = _described(key, name, 5)
        if number not in storages:
            if zipped.size(f"data/{number}") != count * kind.itemsize:
                raise zipped.damaged(f"storage {number} has another size than its description")
            raw = zipped.read(f"data/{number}", mapped, skips=settings.skips_data())
            if order != sys.byteorder:
                width = 1 if kind.dtype is None else kind.itemsize >> kind.dtype.is_complex
                raw = raw.view(f"u{width}").byteswap().view(np.uint8)
            storages[number] = kind(place(raw, location)._array)
        return storages[number]

    if zipped.size("data.pkl") > _MOST_PICKLE:
        raise CheckpointError(
            f"{name}: its pickle has more than {_MOST_PICKLE} bytes: put numbers into tensors"
        )
    data = zipped.read("data.pkl").tobytes()
    if weights_only:
        out = Reader(data, LANGUAGE, safe_globals.by_name(), storage, name).read()
    else:
        out = _Open(io.BytesIO(data), storage, name).load()
    file.seek(zipped.end)
    return out


def _read_old(file: IO[bytes], name: str, place: Placer, weights_only: bool) -> Any:
    """An object in the form from before version 1.6: magic number, version, machine, object, keys; then memory."""
    start = file.tell()
    available = file.seek(0, os.SEEK_END) - start
    file.seek(start)
    memory: dict[str, tuple[np.ndarray, Storage]] = {}
    whole = 0

    def storage(key: Any) -> Storage:
        kind, number, location, count, view = _described(key, name, 6)
        if view is not None:
            raise CheckpointError(
                f"{name}: a storage that is a part of another one, which only PyTorch 0.x wrote"
            )
        nonlocal whole
        if number not in memory:
            whole += count * kind.itemsize
            if whole > available:
                raise CheckpointError(f"{name} is damaged: its storages are larger than the file")
            raw = np.empty(count * kind.itemsize, np.uint8)
            memory[number] = raw, kind(place(raw, location)._array)
        return memory[number][1]

    data = file.read(min(available, _MOST_PICKLE))
    position = 0

    def pickled(weights_only: bool = True) -> Any:
        nonlocal position
        if weights_only:
            reader = Reader(data[position:], LANGUAGE, safe_globals.by_name(), storage, name)
            out = reader.read()
            position += reader.position
        else:
            stream = io.BytesIO(data[position:])
            out = _Open(stream, storage, name).load()
            position += stream.tell()
        return out

    if not data[2:].startswith(_OLD):
        raise _no_torch_file(name, pickled)
    _, _ = pickled(), pickled()  # the magic number, and the version of the form, 1001
    machine = pickled()
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise CheckpointError(f"{name} was not written on a little-endian machine")
    out, keys = pickled(weights_only), pickled()
    # Only strings are looked at: the text of a nested tuple may be without end.
    sound = isinstance(keys, list) and all(type(key) is str for key in keys)
    if not sound or sorted(keys) != sorted(memory):
        raise CheckpointError(f"{name} is damaged: the keys of its storages are not those of its tensors")
    file.seek(start + position)
    for key in keys:
        raw, stored = memory[key]
        if int.from_bytes(file.read(8), "little") * stored.element_size() != raw.nbytes:
            raise CheckpointError(f"{name} is damaged: a storage has another size than its description")
        fill(file, raw.data, name)
        memory_there = stored.untyped()._owner
        if memory_there is not raw:  # it lies on a GPU
            wrap(memory_there).copy_(wrap(raw))
    return out


def _no_torch_file(name: str, pickled: Callable[[], Any]) -> CheckpointError:
    """What is wrong with a pickle that does not begin as PyTorch's do: what it asks for, where it asks for something."""
    with contextlib.suppress(CheckpointError):
        try:
            pickled()
        except RefusedError as error:
            return error
    return CheckpointError(f"{name} is a pickle, but no file of torch.save's")


def _described(key: Any, name: str, parts: int) -> Any:
    """(type, key, device, elements, …) of the storage that a persistent id names, checked."""
    if not isinstance(key, tuple) or len(key) != parts or key[0] != "storage":
        raise CheckpointError(f"{name}: its pickle refers to something that is no storage")
    kind, number, location, count = key[1:5]
    if not isinstance(kind, StorageType) or not (isinstance(number, str) and isinstance(location, str)):
        raise CheckpointError(f"{name} is damaged: the description of a storage is malformed")
    if type(count) is not int or count < 0:
        raise CheckpointError(f"{name} is damaged: a storage without a number of elements")
    return key[1:]


class _Open(pickle.Unpickler):
    """Python's own reader, for files that the caller trusts; the names of PyTorch's data stand for ours."""

    def __init__(self, file: IO[bytes], storage: Callable[[Any], Storage], name: str) -> None:
        super().__init__(file)
        self._name = name
        self.persistent_load = storage

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        known = LANGUAGE.names.get(f"{module_name}.{global_name}")
        if known is not None and not module_name.startswith(("numpy", "builtins", "_codecs")):
            return known
        if module_name.partition(".")[0] == "torch":
            layer = safe_globals.layer_of(module_name, global_name)
            if layer is not None:
                return layer
            raise RefusedError(
                f"{self._name} holds an object of PyTorch's class {module_name}.{global_name}, whose parts are others "
                "here: load it with PyTorch and save its state_dict()"
            )
        return super().find_class(module_name, global_name)


# -- writing ---------------------------------------------------------------------------------


class TorchFile:
    """What an archive is to hold; CheckpointError names the place of what cannot be written."""

    def __init__(self, obj: Any) -> None:
        self._memory = _Memory()
        pieces = Writer(self._memory.tensor).write(obj)
        storages = self._memory.storages()
        records = [("data.pkl", b"".join(pieces)), ("byteorder", sys.byteorder.encode())]
        records += [(f"data/{number}", data) for number, data in enumerate(storages)]
        self._records = [*records, ("version", b"3\n")]

    def write(self, file: IO[bytes]) -> None:
        """Write the archive at the position of a binary file."""
        skips = settings.skips_data()
        archive.write(
            file,
            [
                (name, np.zeros(len(d), np.uint8) if skips and name[:5] == "data/" else d)
                for name, d in self._records
            ],
        )


class _Memory:
    """The memory of the tensors in a file: what overlaps lies in one storage, which holds no more than the tensors span."""

    def __init__(self) -> None:
        self._seen: list[tuple[Tensor | Storage, Any, bytearray, Place]] = []

    def tensor(self, tensor: Tensor | Storage, where: Place) -> bytearray:
        """The place of a tensor, or of a storage, in the pickle, filled in by `storages`."""
        if not isinstance(tensor, Tensor):
            dtype = tensor.dtype if isinstance(tensor, TypedStorage) else uint8
            self._seen.append((tensor, tensor.untyped().as_tensor(dtype)._array, bytearray(), where))
            return self._seen[-1][2]
        array = tensor._array
        if min(array.strides, default=0) < 0 or any(step % array.itemsize for step in array.strides):
            array = array.copy()  # PyTorch has no such steps
        place = bytearray()
        if getattr(array, "device_kind", "") == "meta":
            without_memory = tensor.is_meta and not tells(tensor)
            place.extend(of_meta(tensor, where) if without_memory else of_wrapper(tensor, where))
            return place
        self._seen.append((tensor, array, place, where))
        return place

    def storages(self) -> list[np.ndarray]:
        """The bytes of each storage; fills in all tensors' places."""
        spans = []
        for tensor, array, place, where in self._seen:
            first = address_of(array)
            last = sum((n - 1) * step for n, step in zip(array.shape, array.strides, strict=True))
            end = first + (last + array.itemsize if array.size else 0)
            spans.append(_Span(str(tensor.device), first, end, tensor, array, place, where))
        spans.sort(key=lambda span: span[:3])
        groups: list[list[_Span]] = []
        reach = 0  # of the last group
        for span in spans:
            if not groups or span.device != groups[-1][0].device or span.first >= reach:
                groups.append([])
                reach = span.end
            groups[-1].append(span)
            reach = max(reach, span.end)
        return [_storage(group, number) for number, group in enumerate(groups)]


class _Span(NamedTuple):
    """The addresses from `first` to `end` that the array of a tensor spans, and where the pickle describes it."""

    device: str
    first: int
    end: int
    tensor: Tensor | Storage
    array: Any
    place: bytearray
    where: Place


def _storage(group: list[_Span], key: int) -> np.ndarray:
    """The bytes that all tensors of `group` span; fills in each tensor's place in the pickle."""
    first, end = group[0].first, max(span.end for span in group)
    dtypes = {None if isinstance(span.tensor, UntypedStorage) else span.tensor.dtype for span in group}
    word = _WORDS.get(dtypes.pop()) if len(dtypes) == 1 else None
    if any((span.first - first) % span.array.itemsize for span in group):
        raise CheckpointError(
            "the object cannot be written: tensors of several types overlap between elements"
        )
    if word is None and any(isinstance(span.tensor, TypedStorage) for span in group):
        raise CheckpointError(
            "the object cannot be written: a storage of one type and tensors or storages of others view the same data"
        )
    width = 1 if word is None else group[0].array.itemsize
    kind = "torch.storage\nUntypedStorage" if word is None else f"torch\n{word}Storage"
    described = text("storage") + f"c{kind}\n".encode() + text(str(key)) + text(_place_of(group[0].tensor))
    described = b"((" + described + number((end - first) // width) + b"tQ"
    for span in group:
        tensor, array = span.tensor, span.array
        if not isinstance(tensor, Tensor):
            span.place.extend(described[1:])  # the mark begins the arguments that a tensor is rebuilt from
            continue
        steps = tensor.stride() if array is tensor._array else wrap(array).stride()
        if not array.size:  # NumPy's have no steps
            steps = [math.prod(n or 1 for n in array.shape[d + 1 :]) for d in range(array.ndim)]
        parameter = isinstance(tensor, Parameter) and plain_tensor(type(tensor))
        out = described + number((span.first - first) // array.itemsize)
        out += numbers(array.shape) + numbers(steps)
        out += number(tensor.requires_grad and not parameter) + NO_HOOKS
        out += dtype_name(tensor) if word is None else b""
        function = b"_rebuild_tensor_v3" if word is None else b"_rebuild_tensor_v2"
        span.place.extend(rebuilt(tensor, function, out, span.where))
    return _bytes_at(group[0].array, end - first)


def _place_of(tensor: Tensor | Storage) -> str:
    storage = tensor.untyped_storage() if isinstance(tensor, Tensor) else tensor.untyped()
    return settings.location_tag(storage)


_WORDS: dict[DType | None, str] = {dtype: word for word, dtype in STORAGES.items()}


def _bytes_at(array: Any, count: int) -> np.ndarray:
    """The `count` bytes from the first of `array` on, which lie in one piece of memory."""
    if not count:
        return np.empty(0, np.uint8)
    if isinstance(array, np.ndarray):
        return np.ctypeslib.as_array((ctypes.c_ubyte * count).from_address(address_of(array)))
    return to_device(type(array)((count,), np.uint8, array.data), CPU)


def unsafe_names(file: IO[bytes]) -> list[str]:
    """The classes and functions in an archive that `load` makes only where the user allows them."""
    pickled = archive.Archive(file, str(getattr(file, "name", "the file")), to_end=False).read("data.pkl")
    named: set[str] = set()
    words: list[str] = []
    for code, argument, _ in pickletools.genops(pickled.tobytes()):
        if code.name == "GLOBAL":
            named.add(str(argument).replace(" ", "."))
        elif code.name == "STACK_GLOBAL":
            named.add(".".join(words[-2:]))
        elif isinstance(argument, str):
            words.append(argument)
    return sorted(named - set(LANGUAGE.names) - set(safe_globals.by_name()))

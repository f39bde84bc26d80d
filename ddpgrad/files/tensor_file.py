"""The safetensors format: named arrays in one file, written as a stream, checked when read.

Layout (https://github.com/huggingface/safetensors#format): eight bytes with the length of
a JSON header, the header, the arrays' bytes without gaps. What `write` writes also carries
a SHA-256 over everything that follows the length, computed with zeros in its own place, so
that a file in which any byte changed is refused by `read`. `read_layout` takes any file of the format, without its
arrays.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import IO, Any, NamedTuple

import ml_dtypes
import numpy as np

from ..core.errors import CheckpointError

_DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "C64": np.dtype("<c8"),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}

_LENGTH_BYTES = 8
_MAX_HEADER = 100_000_000  # the format's own limit
# A header of that size may still stand for far more memory, and time, than the file takes.
_MAX_TENSORS = 100_000
_MAX_BRACKETS = 1_000_000  # of lists and dicts, in the header and in the text within


_BLANK = "0" * 64
"""Stands where the digest goes while the digest is computed."""


class Entry(NamedTuple):
    """Where an array lies: `offset` is its first byte's place in the file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def is_storable(dtype: np.dtype[Any]) -> bool:
    """True if arrays of `dtype` have a place in the format."""
    return dtype in _CODES


def write(
    file: IO[bytes], arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str], *, checksum: bool = True
) -> None:
    """Write `arrays` and `metadata` to a binary file, copying only arrays that are not contiguous.

    checksum: one is added to the metadata.
    """
    blank = {"sha256": _BLANK} if checksum else {}
    entries: dict[str, Any] = {"__metadata__": {**metadata, **blank}}
    end = 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        code = _CODES[array.dtype]
        entries[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [start, end]}
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _LENGTH_BYTES)  # keeps the arrays aligned
    if len(header) > _MAX_HEADER:
        raise CheckpointError(
            f"the description of the object takes {len(header)} bytes, the format allows {_MAX_HEADER}: put "
            "large lists of numbers into tensors"
        )
    if reason := _too_much(header):
        raise CheckpointError(f"the object cannot be written: {reason}")
    if checksum:
        digest = hashlib.sha256(header)
        for array in arrays.values():
            digest.update(_bytes_of(array))
        header = header.replace(_entry(_BLANK), _entry(digest.hexdigest()), 1)
    file.write(len(header).to_bytes(_LENGTH_BYTES, "little"))
    file.write(header)
    for array in arrays.values():
        file.write(_bytes_of(array))


def _entry(digest: str) -> bytes:
    return f'"sha256":"{digest}"'.encode()


def read(
    file: IO[bytes], name: str, *, to_end: bool, checksum: bool = True
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read the arrays and the metadata that `write` wrote, at the position of a seekable binary file.

    name: what errors call the file. to_end: nothing may follow. checksum: it must have one of its own.
    Nothing that the file claims is believed before it is checked: CheckpointError says what is wrong.
    """
    header, layout, metadata = _read_header(file, name, to_end=to_end)
    written = metadata.get("sha256")
    if checksum and not isinstance(written, str):
        raise CheckpointError(
            f"{name} was not written by ddpgrad.save: it has no checksum of its own. Tensors of a plain safetensors file "
            "are read by ddpgrad.safetensors.load_file"
        )
    arrays = {key: np.empty(entry.shape, entry.dtype) for key, entry in layout.items()}
    digest = hashlib.sha256(header.replace(_entry(str(written)), _entry(_BLANK), 1))
    for array in arrays.values():
        fill(file, _bytes_of(array), name)
        if checksum:
            digest.update(_bytes_of(array))
    if checksum and digest.hexdigest() != written:
        raise _damaged(name, "its bytes do not match its checksum")
    return arrays, metadata


def read_layout(file: IO[bytes], name: str) -> tuple[dict[str, Entry], dict[str, str]]:
    """What a whole file of the format holds, whoever wrote it, and its metadata; reads the header only."""
    _, layout, metadata = _read_header(file, name, to_end=True)
    return layout, metadata


def _read_header(
    file: IO[bytes], name: str, *, to_end: bool
) -> tuple[bytes, dict[str, Entry], dict[str, str]]:
    """The header's bytes, its entries in the order in which they lie, and the metadata."""
    available = _bytes_left(file)
    length = int.from_bytes(_read_exactly(file, _LENGTH_BYTES, name), "little")
    if length > _MAX_HEADER or length > available - _LENGTH_BYTES:
        raise _damaged(name, f"its header claims {length} bytes, the file has {available}")
    header = _read_exactly(file, length, name)
    if reason := _too_much(header):
        raise _damaged(name, reason)
    entries = _parse(header, name)
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise _damaged(name, "its metadata is not an object")
    layout = _lay_out(entries, file.tell(), available - _LENGTH_BYTES - length, name, to_end)
    return header, layout, metadata


def _too_much(header: bytes) -> str:
    """Why a header is not parsed, or ''."""
    if header.count(b'"data_offsets"') > _MAX_TENSORS:
        return f"it has more than {_MAX_TENSORS} tensors"
    if header.count(b"[") + header.count(b"{") > _MAX_BRACKETS:
        return f"its description has more than {_MAX_BRACKETS} lists and dicts: put numbers into tensors"
    return ""


def _lay_out(
    entries: dict[str, Any], first: int, available: int, name: str, to_end: bool
) -> dict[str, Entry]:
    """The header's entries, which must follow each other without gaps in `available` bytes from `first` on."""
    spans: dict[str, tuple[int, int, Entry]] = {}
    for key, entry in entries.items():
        try:
            shape, (start, stop) = tuple(entry["shape"]), entry["data_offsets"]
            sound = all(type(n) is int and n >= 0 for n in (*shape, start, stop))
            if sound and entry["dtype"] not in _DTYPES:
                raise CheckpointError(
                    f"{name}: {key!r} has the element type {entry['dtype']}, which has no form here"
                )
            spans[key] = start, stop, Entry(_DTYPES[entry["dtype"]], shape, first + start)
        except (KeyError, TypeError, ValueError):
            sound = False
        if not sound:
            raise _damaged(name, f"its entry for {key!r} is malformed")
    end = 0
    layout = {}
    for key, (start, stop, entry) in sorted(spans.items(), key=lambda item: item[1][:2]):
        if start != end or stop != start + entry.nbytes:
            raise _damaged(name, f"its entry for {key!r} does not follow the one before it")
        end = stop
        layout[key] = entry
    if end > available:
        raise _damaged(name, f"it is truncated: {end} bytes of arrays expected, {available} there")
    if to_end and end < available:
        raise _damaged(name, f"{available - end} bytes follow its end")
    return layout


def _parse(header: bytes, name: str) -> dict[str, Any]:
    def unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in pairs:
            if key in out:
                raise ValueError(f"{key!r} twice")
            out[key] = value
        return out

    try:
        entries = json.loads(header.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise _damaged(name, f"its header is not valid ({error})") from None
    if not isinstance(entries, dict):
        raise _damaged(name, "its header is not an object")
    return entries


def _bytes_of(array: np.ndarray) -> memoryview:
    """The array's bytes in C order, without a copy where they lie so."""
    return np.asarray(array, order="C").reshape(-1).view(np.uint8).data


def _bytes_left(file: IO[bytes]) -> int:
    here = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(here)
    return end - here


def _read_exactly(file: IO[bytes], count: int, name: str) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise _damaged(name, f"it is truncated: {count} bytes expected, {len(data)} there")
    return data


def fill(file: IO[bytes], target: memoryview, name: str) -> None:
    """Read straight into `target`; CheckpointError, which calls the file `name`, if it ends before."""
    into = getattr(file, "readinto", None)
    while len(target):
        if into is None:
            got = len(data := file.read(len(target)))
            target[:got] = data
        else:
            got = into(target)
        if not got:
            raise _damaged(name, f"it is truncated: {len(target)} bytes of arrays are missing")
        target = target[got:]


def _damaged(name: str, reason: str) -> CheckpointError:
    return CheckpointError(f"{name} is damaged: {reason}")

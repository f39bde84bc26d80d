"""Zip archives of uncompressed records, as PyTorch writes them: records are read only where the directory is sound.

Layout (https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT): each record behind a local header, then a
directory of all records, then the place of the directory. Sizes of 4 GiB and more stand in extra fields.
A compressed record is refused, so that no file stands for more memory than it takes.
"""

from __future__ import annotations

import itertools
import os
import struct
import zlib
from collections.abc import Iterable
from typing import IO, Any, NamedTuple

import numpy as np

from ..core.errors import CheckpointError
from .tensor_file import fill

BEGINNING = b"PK\x03\x04"
_FOLDER = "archive/"  # what PyTorch calls the folder of an archive that it writes into a buffer
_ALIGNMENT = 64  # of the records' bytes in the file, as in PyTorch's, so that they can be mapped
_MOST_RECORDS = 100_000
_LONGEST_NAME = 1000
_DAY = 1 << 5 | 1  # the first of zip, 1980-01-01, so that the same data makes the same file
_BIG = 0xFFFFFFFF  # stands where the number is in an extra field

_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_BIG_END = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")


def write(file: IO[bytes], records: Iterable[tuple[str, Any]]) -> None:
    """Write an archive of (name, bytes) at the position of a binary file, which is only appended to."""
    at = count = 0
    directory = bytearray()
    for name, content in records:
        data = memoryview(content).cast("B")
        raw = (_FOLDER + name).encode()
        crc, size, big = zlib.crc32(data), data.nbytes, data.nbytes >= _BIG
        sizes = struct.pack("<2H2Q", 1, 16, size, size) if big else b""
        padding = -(at + _LOCAL.size + len(raw) + len(sizes) + 4) % _ALIGNMENT
        extra = sizes + struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        shown = _BIG if big else size
        version = 45 if big or at >= _BIG else 20
        common = (version, 0, 0, 0, _DAY, crc, shown, shown, len(raw))
        file.write(_LOCAL.pack(BEGINNING, *common, len(extra)) + raw + extra)
        file.write(data)
        wide = ((size, size) if big else ()) + ((at,) if at >= _BIG else ())
        more = struct.pack(f"<2H{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
        entry = (b"PK\x01\x02", 45, *common, len(more), 0, 0, 0, 0, min(at, _BIG))
        directory += _ENTRY.pack(*entry) + raw + more
        at += _LOCAL.size + len(raw) + len(extra) + size
        count += 1
    file.write(directory)
    size = len(directory)
    if at + size >= _BIG or count >= 0xFFFF:
        file.write(_BIG_END.pack(b"PK\x06\x06", _BIG_END.size - 12, 45, 45, 0, 0, count, count, size, at))
        file.write(_LOCATOR.pack(b"PK\x06\x07", 0, at + size, 1))
    shown = min(count, 0xFFFF)
    file.write(_END.pack(b"PK\x05\x06", 0, 0, shown, shown, min(size, _BIG), min(at, _BIG), 0))


class Record(NamedTuple):
    """A record's first byte in the file, its length, and its CRC-32."""

    start: int
    size: int
    crc: int


class Archive:
    """The records of the archive at the position of a seekable binary file, by name without the folder.

    name: what errors call the file; to_end: nothing may follow. Nothing that the directory claims is believed
    before it is checked: CheckpointError says what is wrong.
    """

    def __init__(self, file: IO[bytes], name: str, *, to_end: bool) -> None:
        self._file = file
        self._name = name
        first = file.tell()
        self.end = file.seek(0, os.SEEK_END)
        if not (place := self._directory(first, self.end)):
            place = None if to_end else self._directory_of_first(first)
        if not place:
            raise self.damaged("it has no whole directory of records at its end")
        self._records = self._entries(first, *place)
        # PyTorch can be told to compute none: `torch.serialization.set_crc32_options(False)`.
        self._sealed = any(record.crc for record in self._records.values())

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def size(self, name: str) -> int:
        """The length of a record in bytes."""
        return self._find(name).size

    def read(self, name: str, mapped: Any = None, *, skips: bool = False) -> np.ndarray:
        """The bytes of a record, as an array of their own, or a view of `mapped`; `skips` leaves them as they are."""
        record = self._find(name)
        if mapped is not None:
            return mapped[record.start : record.start + record.size]
        if skips:
            return np.empty(record.size, np.uint8)
        out = np.empty(record.size, np.uint8)
        self._file.seek(record.start)
        fill(self._file, out.data, self._name)
        if self._sealed and zlib.crc32(out.data) != record.crc:
            raise self.damaged(f"the bytes of {name} do not match their checksum")
        return out

    def damaged(self, reason: str) -> CheckpointError:
        """The error for a file that is not sound."""
        return CheckpointError(f"{self._name} is damaged: {reason}")

    def _find(self, name: str) -> Record:
        if name not in self._records:
            raise self.damaged(f"it has no record {name}")
        return self._records[name]

    def _at(self, start: int, form: struct.Struct) -> tuple[Any, ...] | None:
        if start < 0:
            return None
        self._file.seek(start)
        data = self._file.read(form.size)
        return form.unpack(data) if len(data) == form.size else None

    def _directory(self, first: int, end: int) -> tuple[int, int, int] | None:
        """(start, length, records) of the directory of the archive that takes the bytes from `first` to `end`."""
        place = end - _END.size
        found = self._at(place, _END)
        if place < first or found is None or found[0] != b"PK\x05\x06" or found[7] or found[1] or found[2]:
            return None
        count, size, offset = found[4:7]
        locator = self._at(place - _LOCATOR.size, _LOCATOR)
        if locator is not None and locator[0] == b"PK\x06\x07":
            place -= _LOCATOR.size + _BIG_END.size
            big = self._at(place, _BIG_END)
            if big is None or big[0] != b"PK\x06\x06" or first + locator[2] != place:
                return None
            count, size, offset = big[7:]
        start = first + offset
        return (start, size, count) if start + size == place and start >= first else None

    def _directory_of_first(self, first: int) -> tuple[int, int, int] | None:
        """The same of the first of several archives that stand one behind the other."""
        self._file.seek(first)
        at, kept = first, b""
        while data := self._file.read(1 << 20):
            kept += data
            found = kept.find(b"PK\x05\x06")
            while found >= 0:
                end = at + found + _END.size
                if place := self._directory(first, end):
                    self.end = end
                    return place
                found = kept.find(b"PK\x05\x06", found + 1)
            at += len(kept) - 3
            kept = kept[-3:]
            self._file.seek(at + 3)
        return None

    def _entries(self, first: int, start: int, size: int, count: int) -> dict[str, Record]:
        if count > _MOST_RECORDS or size > count * (_ENTRY.size + 2 * _LONGEST_NAME):
            raise self.damaged(f"it has more than {_MOST_RECORDS} records, or its directory is too long")
        self._file.seek(start)
        directory = self._file.read(size)
        found: dict[str, Record] = {}
        spans: list[tuple[int, int]] = []
        folder, at = None, 0
        for _ in range(count):
            if at + _ENTRY.size > size:
                raise self.damaged("its directory is too short")
            entry = _ENTRY.unpack_from(directory, at)
            name_length, extra_length, note_length = entry[10:13]
            at += _ENTRY.size
            raw = directory[at : at + name_length]
            extra = directory[at + name_length : at + name_length + extra_length]
            at += name_length + extra_length + note_length
            if entry[0] != b"PK\x01\x02" or at > size or name_length > _LONGEST_NAME:
                raise self.damaged("its directory is malformed")
            flags, method = entry[3], entry[4]
            packed, unpacked, header = self._sizes(entry[8], entry[9], entry[16], extra)
            if method or flags & 1 or packed != unpacked:
                raise CheckpointError(
                    f"{self._name}: a record is compressed or encrypted, which PyTorch's files are not; unpack it and "
                    "zip it with `zip -0`"
                )
            name, begun, stop = self._local(first + header, raw, unpacked, start)
            here, _, name = name.partition("/")
            if (folder is not None and here != folder) or not name or name in found:
                raise self.damaged("its records are not in one folder, or one is there twice")
            folder = here
            found[name] = Record(begun, unpacked, entry[7])
            spans.append((first + header, stop))
        spans.sort()
        if at != size or any(a[1] > b[0] for a, b in itertools.pairwise(spans)):
            raise self.damaged("its records overlap, or its directory is too long")
        return found

    def _local(self, start: int, raw: bytes, size: int, most: int) -> tuple[str, int, int]:
        """(name, first byte, end) of the record whose own header is at `start`."""
        local = self._at(start, _LOCAL)
        if local is None or local[0] != BEGINNING or self._file.read(local[9]) != raw or local[3]:
            raise self.damaged("a record's own header is not what the directory says")
        begun = start + _LOCAL.size + local[9] + local[10]
        if begun + size > most:
            raise self.damaged("a record reaches into the directory")
        try:
            return raw.decode(), begun, begun + size
        except UnicodeDecodeError:
            raise self.damaged("a record has no readable name") from None

    def _sizes(self, packed: int, unpacked: int, header: int, extra: bytes) -> tuple[int, int, int]:
        """The same numbers, with those that are too large for their place taken from the extra field."""
        at, big = 0, b""
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<2H", extra, at)
            if kind == 1:
                big = extra[at + 4 : at + 4 + length]
            at += 4 + length
        numbers = [unpacked, packed, header]
        for i, number in enumerate(numbers):
            if number == _BIG:
                if len(big) < 8:
                    raise self.damaged("its directory lacks the size of a record")
                numbers[i], big = struct.unpack_from("<Q", big)[0], big[8:]
        return numbers[1], numbers[0], numbers[2]

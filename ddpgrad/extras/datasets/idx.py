"""The IDX format of MNIST: arrays of numbers, plain or compressed with gzip.

A file is two zero bytes, one byte for the type, one for the number of dimensions, each
length as a big-endian 32-bit number, then the numbers, big-endian, the last dimension
fastest. Source: http://yann.lecun.com/exdb/mnist/ ("The IDX file format").
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ...core.errors import DataError

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read(path: Path, shape: Sequence[int | None], dtype: str = "uint8") -> np.ndarray:
    """The array in `path`, in the machine's byte order.

    shape: the lengths that the array must have, None for any. Raises DataError when type,
    shape or size are others, or the compression is broken, and OSError when reading fails.
    """
    with path.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if not compressed:
            return _parse(path, file, shape, dtype)
        try:
            with gzip.GzipFile(fileobj=file) as inside:
                return _parse(path, inside, shape, dtype)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path}: the gzip compression is damaged: {error}") from None


def _parse(path: Path, file: BinaryIO | gzip.GzipFile, shape: Sequence[int | None], dtype: str) -> np.ndarray:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES:
        raise DataError(f"{path}: no IDX file: it begins with the bytes {magic.hex(' ') or '(none)'}")
    stored = np.dtype(_TYPES[magic[2]])
    dimensions = magic[3]
    if dimensions != len(shape) or stored.newbyteorder("=") != np.dtype(dtype):
        raise DataError(
            f"{path}: expected {len(shape)} dimensions of {dtype}, found {dimensions} of {stored.name}"
        )
    header = file.read(4 * dimensions)
    if len(header) < 4 * dimensions:
        raise DataError(f"{path}: the file ends within its header, after {4 + len(header)} bytes")
    lengths = struct.unpack(f">{dimensions}I", header)
    if any(wanted not in (None, length) for wanted, length in zip(shape, lengths, strict=True)):
        expected = " x ".join("any" if wanted is None else str(wanted) for wanted in shape)
        raise DataError(f"{path}: expected a shape of {expected}, found {' x '.join(map(str, lengths))}")
    size = math.prod(lengths) * stored.itemsize
    data = _up_to(file, size)
    rest = file.read(1)  # at the end, so that gzip checks its checksum
    if len(data) != size or rest:
        found = "more" if rest else str(len(data))
        raise DataError(f"{path}: expected {size} bytes of numbers after the header, found {found}")
    return np.frombuffer(data, stored).reshape(lengths).astype(dtype)


def _up_to(file: BinaryIO | gzip.GzipFile, size: int) -> bytearray:
    """`size` bytes, or what is left. In pieces: a damaged header may ask for more than there is memory."""
    data = bytearray()
    while len(data) < size and (piece := file.read(min(size - len(data), 1 << 20))):
        data += piece
    return data

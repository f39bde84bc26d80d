"""TensorBoard's event files: TFRecords with checksums around protocol-buffer messages.

A record is its length, a checksum of the length, the message, and a checksum of the message; the
checksums are CRC-32C, rotated and shifted. Sources: https://www.tensorflow.org/tutorials/load_data/tfrecord,
https://protobuf.dev/programming-guides/encoding, and the field numbers of TensorFlow's event.proto,
summary.proto and tensor.proto.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protocol buffers
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, bits reversed


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def _checksum(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field: int, value: int) -> bytes:
    """A field that holds an integer."""
    return _varint(field << 3 | _VARINT) + _varint(value)


def single(field: int, value: float) -> bytes:
    """A field that holds a float32."""
    return _varint(field << 3 | _FIXED32) + struct.pack("<f", value)


def double(field: int, value: float) -> bytes:
    """A field that holds a float64."""
    return _varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def block(field: int, value: bytes | str) -> bytes:
    """A field that holds bytes, text, or another message."""
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | _BYTES) + _varint(len(data)) + data


def doubles(field: int, values: Iterable[float]) -> bytes:
    """A field that holds many float64."""
    return block(field, b"".join(struct.pack("<d", value) for value in values))


def event(step: int, content: bytes, wall_time: float | None = None) -> bytes:
    """An Event: what was seen (`content`, fields of Event) at a step and a time."""
    return double(1, time.time() if wall_time is None else wall_time) + integer(2, step) + content


class EventFile:
    """An event file that grows; not shared between threads."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = open(path, "wb")  # noqa: SIM115 - close() closes it
        self.write(event(0, block(3, "brain.Event:2")))

    def write(self, message: bytes) -> None:
        """Append one event."""
        length = struct.pack("<Q", len(message))
        parts = (length, struct.pack("<I", _checksum(length)), message, struct.pack("<I", _checksum(message)))
        self._file.write(b"".join(parts))

    def add_summary(
        self, summary: bytes, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Append what was seen at a step: a Summary message."""
        self.write(event(int(global_step or 0), block(5, summary), walltime))

    def flush(self) -> None:
        """Hand what was written to the system."""
        self._file.flush()

    def close(self) -> None:
        """Flush, and end the file."""
        self._file.close()

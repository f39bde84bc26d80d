"""IDX files: what is read, and what is refused by name."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from ddpgrad.datasets import idx
from ddpgrad.errors import DataError

CODES = {"uint8": 0x08, "int8": 0x09, "int16": 0x0B, "int32": 0x0C, "float32": 0x0D, "float64": 0x0E}


def encode(array: np.ndarray) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, CODES[array.dtype.name], array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


IMAGES = np.arange(2 * 3 * 5, dtype=np.uint8).reshape(2, 3, 5)
GOOD = encode(IMAGES)


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_arrays_come_back(tmp_path: Path, dtype, pack):
    array = (np.arange(24).reshape(2, 3, 4) * 5 - (0 if dtype == "uint8" else 60)).astype(dtype)
    path = tmp_path / "array"
    path.write_bytes(pack(encode(array)))
    found = idx.read(path, (None, 3, 4), dtype)
    assert found.dtype == np.dtype(dtype) and found.dtype.isnative
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no IDX file: it begins with the bytes (none)"),
        (b"\x89PNG\r\n", "no IDX file: it begins with the bytes 89 50 4e 47"),
        (b"\0\0\x07\x03" + GOOD[4:], "no IDX file"),
        (encode(IMAGES.astype(np.int32)), "expected 3 dimensions of uint8, found 3 of int32"),
        (encode(IMAGES.reshape(6, 5)), "expected 3 dimensions of uint8, found 2 of uint8"),
        (GOOD[:10], "ends within its header, after 10 bytes"),
        (encode(IMAGES.reshape(2, 5, 3)), "expected a shape of any x 3 x 5, found 2 x 5 x 3"),
        (GOOD[:-1], "expected 30 bytes of numbers after the header, found 29"),
        (GOOD + b"\0", "expected 30 bytes of numbers after the header, found more"),
        (struct.pack(">BBBB3I", 0, 0, 8, 3, 2**32 - 1, 3, 5) + GOOD[16:], "64424509425 bytes of numbers"),
        (gzip.compress(GOOD, mtime=0)[:-9], "gzip compression is damaged"),
        (gzip.compress(GOOD, mtime=0)[:-8] + bytes(8), "gzip compression is damaged"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, data, reason):
    path = tmp_path / "images-idx3-ubyte"
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        idx.read(path, (None, 3, 5))
    assert str(caught.value).startswith(f"{path}: ") and reason in str(caught.value)

"""A target for Atheris: reading a file of any bytes succeeds or raises a CheckpointError."""

import contextlib
import io
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["ddpgrad.files"]):
    import ddpgrad
    from ddpgrad import safetensors
    from ddpgrad.errors import CheckpointError

_FILE = Path("fuzzed")


def one(data: bytes) -> None:
    """Read `data` in both ways."""
    with contextlib.suppress(CheckpointError):
        ddpgrad.load(io.BytesIO(data))
    _FILE.write_bytes(data)
    with contextlib.suppress(CheckpointError):
        safetensors.load_file(_FILE)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()

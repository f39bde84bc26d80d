"""Downloads: from the first mirror that sends a file whole, renamed into place when complete."""

from __future__ import annotations

import contextlib
import hashlib
import os
import urllib.request
from collections.abc import Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO

_PIECE = 1 << 20


def fetch(folder: Path, name: str, checksum: str, mirrors: Sequence[str], largest: int) -> Path:
    """Fetch the file `name` into `folder`, unless it is there.

    checksum: such as 'sha256:…' or 'md5:…'. mirrors: addresses to which the name is added. largest: bytes
    after which a mirror is not believed. Of several processes one downloads and the others wait. OSError
    lists what went wrong with each mirror.
    """
    target = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    with _alone_in(folder):
        if target.is_file():
            return target
        reasons = []
        hidden = folder / f".{name}.{os.getpid()}"
        try:
            for mirror in mirrors:
                try:
                    found, size = _fetch(mirror + name, hidden, checksum.partition(":")[0], largest)
                except (OSError, HTTPException) as error:
                    reasons.append(f"{mirror}: {error}")
                    continue
                if found == checksum:
                    return hidden.replace(target)
                reasons.append(f"{mirror}: sent {size} bytes with {found}, expected {checksum}")
        finally:
            hidden.unlink(missing_ok=True)
    raise OSError(
        f"{name} could not be downloaded:\n  " + "\n  ".join(reasons) + "\n"
        f"Fetch it by other means, and put it into {folder}"
    )


def _fetch(address: str, path: Path, algorithm: str, largest: int) -> tuple[str, int]:
    """Write at most `largest` bytes of `address` to `path`; their checksum and number."""
    digest, size = hashlib.new(algorithm, usedforsecurity=False), 0
    with urllib.request.urlopen(address, timeout=30) as answer, path.open("wb") as file:
        while size < largest and (piece := answer.read(min(_PIECE, largest - size))):
            digest.update(piece)
            size += file.write(piece)
    return f"{algorithm}:{digest.hexdigest()}", size


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process downloads into `folder`. The lock goes with the process."""
    with (folder / ".lock").open("wb") as file:
        _lock(file)
        yield


def _lock(file: BinaryIO) -> None:
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
    except (ImportError, OSError):
        # This system, or network file system, has no such locks: several processes may download, and the last one's
        # file stays.
        return

"""The manifest of a checkpoint folder: which files belong to it, their sizes and their SHA-256."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from ddpgrad.errors import CheckpointError

MANIFEST = "MANIFEST.json"

_FORMAT = "ddpgrad checkpoint 1"
_BLANK = "0" * 64  # stands where the manifest's own digest goes while that is computed
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


@dataclass(frozen=True)
class Entry:
    """One object of a checkpoint. per_rank: the file holds a list with the state of every rank."""

    size: int
    sha256: str
    per_rank: bool


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds.

    step: the last finished one; world_size: number of ranks; metric: how good it is, if that was said.
    """

    step: int
    world_size: int
    objects: dict[str, Entry]
    metric: float | None = None


def check_name(name: str) -> None:
    """Refuse a name that could reach outside the checkpoint's folder or collide in it."""
    if not _NAME.fullmatch(name):
        raise CheckpointError(
            f"{name!r} cannot name an object of a checkpoint: use up to 100 letters, digits and underscores"
        )


def file_name(name: str) -> str:
    """The file that holds the object `name`."""
    check_name(name)
    return f"{name}.safetensors"


def write_file(path: Path, write: Callable[[IO[bytes]], None], *, per_rank: bool = False) -> Entry:
    """Make `path` with what `write` writes into it, on stable storage, and describe it."""
    with open(path, "xb") as raw:
        file = _HashingFile(raw)
        write(file)  # pyright: ignore[reportArgumentType]  # only `write` is used
        raw.flush()
        os.fsync(raw.fileno())
    return Entry(file.size, file.digest.hexdigest(), per_rank)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put `manifest` into `folder`, sealed by a digest of itself."""
    text = json.dumps({"format": _FORMAT, "sha256": _BLANK, **asdict(manifest)}, indent=1) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    sealed = text.replace(_BLANK, digest, 1).encode()
    write_file(folder / MANIFEST, lambda file: _write_all(file, sealed))


def verify(folder: Path) -> Manifest:
    """The manifest of `folder` after checking every byte of it; CheckpointError says what is wrong."""
    manifest = read_manifest(folder)
    expected = {file_name(name): entry for name, entry in manifest.objects.items()}
    found = set(os.listdir(folder)) - {MANIFEST}
    if missing := sorted(expected.keys() - found):
        raise _damaged(folder, f"{missing[0]} is missing")
    if extra := sorted(found - expected.keys()):
        raise _damaged(folder, f"{extra[0]} is extra: the manifest does not list it")
    for name, entry in expected.items():
        with open(folder / name, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != entry.size:
                what = "truncated" if size < entry.size else "too long"
                raise _damaged(folder, f"{name} is {what}: {size} bytes where {entry.size} were written")
            if hashlib.file_digest(file, "sha256").hexdigest() != entry.sha256:
                raise _damaged(folder, f"{name} has changed: its SHA-256 is not the one in the manifest")
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of `folder`; only it is checked, and not the files that it lists."""
    try:
        sealed = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise _damaged(folder, f"{MANIFEST} is missing") from None
    try:
        fields: dict[str, Any] = json.loads(sealed)
        digest = fields.pop("sha256")
        blank = sealed.replace(digest.encode(), _BLANK.encode(), 1)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise _damaged(folder, f"{MANIFEST} is not a manifest or is truncated") from None
    if hashlib.sha256(blank).hexdigest() != digest:
        raise _damaged(folder, f"{MANIFEST} has changed or is truncated: it does not match its own SHA-256")
    if fields.pop("format", None) != _FORMAT:
        raise CheckpointError(
            f"checkpoint {folder} has another format than {_FORMAT!r}, which this version reads"
        )
    objects = {name: Entry(**entry) for name, entry in fields.pop("objects").items()}
    return Manifest(**fields, objects=objects)


def _damaged(folder: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"checkpoint {folder} is damaged: {reason}")


def _write_all(file: IO[bytes], data: bytes) -> None:
    file.write(data)


class _HashingFile:
    """Passes bytes on to a file, counting and hashing them."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self.size = 0
        self.digest = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> int:
        self.size += len(data)
        self.digest.update(data)
        return self._raw.write(data)

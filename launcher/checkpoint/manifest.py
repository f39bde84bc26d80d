"""The manifest of a checkpoint: the names, sizes and SHA-256 of its files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from ddpgrad.core.errors import CheckpointError

MANIFEST = "MANIFEST.json"

_FORMAT = "ddpgrad checkpoint 2"
_LONGEST = 8_000_000  # bytes; a longer manifest is refused
_BLANK = "0" * 64  # the place of the manifest's own digest while that is computed
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


STEP = re.compile(r"step_(\d{8,})")
"""The name of a checkpoint's folder."""
REPLACED = re.compile(r"\.replaced-step_(\d{8,})-[0-9a-f]+")
"""The same of one that was set aside for another of the same step."""

_LAYOUTS = ("one", "list", "each", "split", "parts")
_FILE = re.compile(r"(-\d{5,}-of-\d{5,})?\.safetensors(\.index\.json)?")


@dataclass(frozen=True)
class File:
    """A file of a checkpoint."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Entry:
    """One object of a checkpoint, in `files` by name, those of several ranks in the order of ranks.

    layout: how its state lies in them.
        one     one file: the state that all ranks share
        list    one file: a list with the state of every rank
        each    a file for each rank: its state
        split   a file for each rank: some arrays of the state that all ranks share; the first says what
                they are parts of, and `NAME.safetensors.index.json` which file holds which
        parts   a file for each rank: a nested dict, which is part of one
    """

    layout: str
    files: dict[str, File]

    @property
    def per_rank(self) -> bool:
        """Whether every rank has a state of its own."""
        return self.layout in ("list", "each")

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())

    @property
    def tensor_files(self) -> list[str]:
        """The names of the files that hold arrays."""
        return [name for name in self.files if name.endswith(".safetensors")]


@dataclass(frozen=True)
class Manifest:
    """The contents of a checkpoint.

    step: the last finished one; world_size: the number of ranks; metric: the quality, if `save` got one.
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


def file_name(name: str, part: int = 0, parts: int = 1) -> str:
    """The file that holds the object `name`, or, from 0 on, the part of one that has several."""
    check_name(name)
    return f"{name}.safetensors" if parts == 1 else f"{name}-{part + 1:05d}-of-{parts:05d}.safetensors"


def write_file(path: Path, write: Callable[[IO[bytes]], object]) -> File:
    """Let `write` write a new file at `path`, put it on stable storage, and describe it.

    An OSError names the file and the number of bytes before it.
    """
    size = 0
    try:
        with open(path, "xb") as raw:
            file = _HashingFile(raw)
            try:
                write(file)  # pyright: ignore[reportArgumentType]  # only `write` is used
                raw.flush()
                os.fsync(raw.fileno())
            finally:
                size = file.size
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} (after {size} bytes)", str(path)) from error
    return File(file.size, file.digest.hexdigest())


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put `manifest` into `folder`, sealed by a digest of itself."""
    text = json.dumps({"format": _FORMAT, "sha256": _BLANK, **asdict(manifest)}, indent=1) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    sealed = text.replace(_BLANK, digest, 1).encode()
    write_file(folder / MANIFEST, lambda file: file.write(sealed))


def verify(folder: Path) -> Manifest:
    """The manifest of `folder` after a check of every byte there; CheckpointError if the folder is damaged."""
    manifest = read_manifest(folder)
    expected = {name: file for entry in manifest.objects.values() for name, file in entry.files.items()}
    found = set(os.listdir(folder)) - {MANIFEST}
    if missing := sorted(expected.keys() - found):
        raise _damaged(folder, f"{missing[0]} is missing")
    if extra := sorted(found - expected.keys()):
        raise _damaged(folder, f"{extra[0]} is extra: the manifest does not list it")
    for name, entry in expected.items():
        if not stat.S_ISREG(os.lstat(folder / name).st_mode):
            raise _damaged(folder, f"{name} is no regular file, but a link, a pipe or a folder")
        with open(folder / name, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != entry.size:
                what = "truncated" if size < entry.size else "too long"
                raise _damaged(folder, f"{name} is {what}: {size} bytes where {entry.size} were written")
            if hashlib.file_digest(file, "sha256").hexdigest() != entry.sha256:
                raise _damaged(folder, f"{name} has changed: its SHA-256 is not the one in the manifest")
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of `folder`. Only the manifest is checked, and not its files.

    A folder that is named for a step holds the checkpoint of that step.
    """
    try:
        found = os.lstat(folder / MANIFEST)
    except FileNotFoundError:
        raise _damaged(folder, f"{MANIFEST} is missing") from None
    if not stat.S_ISREG(found.st_mode) or found.st_size > _LONGEST:
        raise _damaged(folder, f"{MANIFEST} is no regular file of at most {_LONGEST} bytes")
    sealed = (folder / MANIFEST).read_bytes()
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
    try:
        manifest = _manifest(fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(folder, f"{MANIFEST} does not describe a checkpoint: {error}") from None
    named = STEP.fullmatch(folder.name) or REPLACED.fullmatch(folder.name)
    if named and int(named[1]) != manifest.step:
        raise _damaged(
            folder, f"it holds the checkpoint of step {manifest.step}: folders were renamed or exchanged"
        )
    return manifest


def _manifest(fields: dict[str, Any]) -> Manifest:
    """The manifest with `fields`, each of which is checked."""
    objects = {}
    for name, entry in fields.pop("objects").items():
        check_name(name)
        files = {file: File(**described) for file, described in entry["files"].items()}
        for file, described in files.items():
            # The name is opened below, and must not lead out of the folder.
            if not file.startswith(name) or not _FILE.fullmatch(file[len(name) :]):
                raise ValueError(f"{file!r} is no file of the object {name!r}")
            if not _whole(described.size, 0) or not re.fullmatch("[0-9a-f]{64}", described.sha256):
                raise ValueError(f"size or digest of {file!r}")
        objects[name] = Entry(entry["layout"], files)
        if objects[name].layout not in _LAYOUTS or not objects[name].tensor_files:
            raise ValueError(f"layout of {name!r}")
    step, world_size, metric = fields["step"], fields["world_size"], fields["metric"]
    if not _whole(step, 0) or not _whole(world_size, 1) or type(metric) not in (float, int, type(None)):
        raise ValueError("step, world_size or metric")
    return Manifest(step, world_size, objects, metric)


def _whole(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < 1 << 63


def _damaged(folder: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"checkpoint {folder} is damaged: {reason}")


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

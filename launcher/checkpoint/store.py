"""A folder of checkpoints: lists them, and makes a new one visible, whole, by one rename."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

from ddpgrad.core.errors import CheckpointError

from .. import folder_lock
from .manifest import REPLACED, STEP, Manifest, write_manifest
from .retention import Retention


class Store:
    """Checkpoints in `folder`, of which those stay that `retention` keeps."""

    def __init__(self, folder: Path, retention: Retention) -> None:
        self.folder = folder
        self.retention = retention
        self._lock: folder_lock.FolderLock | None = None  # since the first save

    def place(self, step: int) -> Path:
        """Where the checkpoint of `step` is, or will be."""
        return self.folder / f"step_{step:08d}"

    def found(self) -> list[tuple[int, Path]]:
        """(step, folder) of every complete checkpoint, the newest last."""
        found: dict[int, Path] = {}
        for pattern in (REPLACED, STEP):  # one that was set aside counts only while its place is empty
            for path in self.folder.iterdir() if self.folder.is_dir() else ():
                if (match := pattern.fullmatch(path.name)) and path.is_dir():
                    found[int(match[1])] = path
        return sorted(found.items())

    @contextlib.contextmanager
    def writing(self, step: int) -> Iterator[None]:
        """Turn any OSError into a CheckpointError that names the checkpoint."""
        try:
            yield
        except OSError as error:
            raise CheckpointError(
                f"cannot write checkpoint {self.place(step)}: {error}. The checkpoints before it are as they were"
            ) from error

    def begin(self, step: int) -> Path:
        """Make a hidden folder for the files of `step`; delete the rest of an interrupted save."""
        newer = [path for number, path in self.found() if number > step]
        if newer:
            raise CheckpointError(
                f"{newer[-1]} is newer than step {step}: a run that starts over needs a folder of its own. "
                "Resume from it, choose another folder, or move the newer checkpoints away"
            )
        with self.writing(step):
            if not self.folder.exists():
                self.folder.mkdir(parents=True)
                sync_folder(self.folder.parent)
            self._lock = folder_lock.of(self.folder)
            for path in self.folder.glob(".tmp-*"):
                shutil.rmtree(path)
            hidden = self.folder / f".tmp-{self.place(step).name}-{secrets.token_hex(4)}"
            hidden.mkdir()
        return hidden

    def commit(self, hidden: Path, manifest: Manifest) -> None:
        """Seal the folder `hidden`, whose files are on stable storage, make it visible, and delete old ones."""
        with self.writing(manifest.step):
            write_manifest(hidden, manifest)
            sync_folder(hidden)
            publish(hidden, self.place(manifest.step))
        self._prune(manifest.step)

    def discard(self, hidden: Path) -> None:
        """Delete `hidden` after a failure. Files that cannot be removed stay invisible, and the next save tries again."""
        shutil.rmtree(hidden, ignore_errors=True)

    def _prune(self, step: int) -> None:
        """Delete the checkpoint that `step` replaced, and those that `retention` does not keep."""
        found = [(number, path) for number, path in self.found() if number <= step]
        visible = [path for _, path in found]
        aside = [path for path in self.folder.glob(".replaced-*") if path not in visible]
        for path in (*self.retention.doomed(found), *aside):
            # First out of sight, so that no half of it is ever taken for a whole one.
            away = self.folder / f".tmp-deleted-{path.name.lstrip('.')}-{secrets.token_hex(4)}"
            try:
                os.replace(path, away)
                shutil.rmtree(away)
            except OSError as error:
                warnings.warn(f"the old checkpoint {path} could not be deleted: {error}", stacklevel=4)


def publish(hidden: Path, final: Path) -> None:
    """Make `hidden`, which lies beside `final` and is on stable storage, `final`; what was there is set aside."""
    # No rename replaces a folder: network file systems differ in that.
    replaced = final.with_name(f".replaced-{final.name}-{secrets.token_hex(4)}")
    if not final.exists():
        os.replace(hidden, final)
    else:
        # Between the two renames, and if the second fails, readers find the old one aside.
        os.replace(final, replaced)
        try:
            os.replace(hidden, final)
        except OSError:
            os.replace(replaced, final)
            raise
    sync_folder(final.parent)


def sync_folder(folder: Path) -> None:
    """Put the folder's entries on stable storage."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot, and have stored a rename when it returns.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)

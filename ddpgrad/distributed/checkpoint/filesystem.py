"""The folder of a checkpoint, which `launcher/checkpoint/manifest.py` describes: one object, of which each rank has a file.

It becomes visible whole, by a rename. Where a checkpoint is replaced the old one is set aside for that moment.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import CheckpointError
from ...core.tensor import Tensor
from ...files.tensor_file import read_layout
from ...launcher.checkpoint import shards
from ...launcher.checkpoint.manifest import MANIFEST, STEP, File, Manifest, verify, write_manifest
from ...launcher.checkpoint.shards import ROWS, Share, Stored
from ...launcher.checkpoint.store import publish, sync_folder
from . import metadata
from .api import telling_of
from .leaves import leaves
from .metadata import Metadata

STATE = "state"
"""The object of the manifest that holds the state dict."""
_OURS = re.compile(rf"{re.escape(MANIFEST)}|{STATE}(-\d+-of-\d+)?\.safetensors")


class FileSystemWriter:
    """Writes checkpoints to the folder `path`, which holds nothing else.

    overwrite: whether a checkpoint that is there may be replaced. The other arguments say how PyTorch lays out its files;
    here each rank writes one, in its own thread, onto stable storage.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
    ) -> None:
        self.path = Path(path)
        self.overwrite = overwrite

    def begin(self) -> Path:
        """A hidden folder for the files; what an interrupted save has left is deleted."""
        final = _absolute(self.path)
        if final.exists():
            found = sorted(os.listdir(final)) if final.is_dir() else [final.name]
            if other := [name for name in found if not _OURS.fullmatch(name)]:
                raise CheckpointError(
                    f"{final} holds {other[0]}, which is no file of a checkpoint: a checkpoint takes a folder of its own"
                )
            if found and not self.overwrite:
                raise CheckpointError(
                    f"{final} holds a checkpoint already, and the writer has overwrite=False: choose another folder"
                )
        if not final.parent.exists():
            final.parent.mkdir(parents=True)
            sync_folder(final.parent.parent)
        for path in _beside(final, "tmp"):
            shutil.rmtree(path)
        hidden = final.with_name(f".tmp-{final.name}-{secrets.token_hex(4)}")
        hidden.mkdir()
        return hidden

    def commit(self, hidden: Path, share: Share, written: Sequence[dict[str, File]]) -> None:
        """Make the folder `hidden` visible, whose files are `written` by rank; `share`: that of the first rank."""
        final = _absolute(self.path)
        named = STEP.fullmatch(final.name)  # a folder named for a step holds the checkpoint of that step
        entry = shards.entry(hidden, share, written)
        write_manifest(hidden, Manifest(int(named[1]) if named else 0, len(written), {STATE: entry}))
        sync_folder(hidden)
        publish(hidden, final)
        for path in _beside(final, "replaced"):
            away = path.with_name(f".tmp-{final.name}-{path.name[-8:]}")
            os.replace(path, away)  # first out of sight, so that no half of it is ever taken for a whole one
            shutil.rmtree(away)

    def discard(self, hidden: Path) -> None:
        """Delete `hidden`; files that cannot be removed stay invisible, and the next save tries again."""
        shutil.rmtree(hidden, ignore_errors=True)


class Saved:
    """A value in a checkpoint. value: plain data, or a tensor; rows: of a tensor, by the number of the first."""

    def __init__(self, file: str, value: Any) -> None:
        self.file = file
        self.value = value
        self.rows: dict[int, Tensor] = {0: value} if isinstance(value, Tensor) else {}
        if type(value) is dict and value.keys() == {ROWS}:
            self.rows = {int(first): rows for first, rows in value[ROWS].items()}

    @property
    def example(self) -> Any:
        """The value, or some rows of it."""
        return next(iter(self.rows.values()), self.value)

    @property
    def is_tensor(self) -> bool:
        return bool(self.rows)

    @property
    def shape(self) -> list[int]:
        """Of a tensor, the shape of the whole."""
        shape = list(self.example.shape)
        return [sum(map(len, self.rows.values())), *shape[1:]] if shape else shape

    def check(self, key: str) -> None:
        """CheckpointError where rows are missing."""
        end = 0
        for first, rows in sorted(self.rows.items()):
            if first != end or not isinstance(rows, Tensor):
                raise CheckpointError(f"{self.file}: rows {end} to {first - 1} of {key!r} are missing")
            end += rows.shape[0] if rows.ndim else 0


class FileSystemReader:
    """Reads the checkpoint in the folder `path`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def read_metadata(self) -> Metadata:
        """The keys of the checkpoint, with types and shapes of tensors."""
        folder, manifest = self.verified()
        contents = self.contents(folder, manifest).items()
        return Metadata(
            {
                key: metadata.of(s.example.dtype, s.shape) if s.is_tensor else metadata.of()
                for key, s in contents
            }
        )

    def verified(self) -> tuple[Path, Manifest]:
        """The folder and its manifest, after a check of every byte; CheckpointError if it is damaged."""
        final = _absolute(self.path)
        folder = final
        if not final.exists():  # it was being replaced when its job ended
            folder = next(iter(_beside(final, "replaced")), final)
        if not folder.is_dir():
            raise CheckpointError(f"there is no checkpoint {final}: no such folder")
        manifest = verify(folder)
        if STATE not in manifest.objects:
            raise CheckpointError(
                f"checkpoint {folder} holds {', '.join(manifest.objects)}, and was made by a Checkpointer: "
                "load it by Checkpointer.resume or Checkpointer.read"
            )
        return folder, manifest

    def contents(self, folder: Path, manifest: Manifest) -> dict[str, Saved]:
        """What the checkpoint holds, by key. Tensors are read when they are used."""
        found: dict[str, Saved] = {}
        for name in manifest.objects[STATE].tensor_files:
            file = folder / name
            with telling_of(f"{file} holds no state dict"):
                for key, leaf in leaves(_mapped(file).state()).items():
                    saved = Saved(str(file), leaf.value)
                    found.setdefault(key, saved).rows.update(saved.rows)
        for key, saved in found.items():
            saved.check(key)
        return found


def place_of(checkpoint_id: str | os.PathLike[str] | None, given: Any, kind: type[Any]) -> Any:
    """The writer or reader of a call: the one that is `given`, of class `kind`, or one for the folder `checkpoint_id`."""
    if given is None:
        if checkpoint_id is None:
            raise ValueError(
                f"a checkpoint needs a place: pass checkpoint_id, a folder, or a {kind.__name__}"
            )
        return kind(checkpoint_id)
    if not isinstance(given, kind):
        raise TypeError(
            f"expected a {kind.__name__}, got {type(given).__name__}: checkpoints lie in folders here"
        )
    if checkpoint_id is not None:
        given.path = Path(checkpoint_id)  # as in PyTorch
    return given


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))


def _beside(final: Path, kind: str) -> list[Path]:
    """The hidden folders of a `kind` that lie beside `final` and belong to it."""
    form = re.compile(rf"\.{kind}-{re.escape(final.name)}-[0-9a-f]{{8}}")
    return sorted(path for path in final.parent.iterdir() if form.fullmatch(path.name))


def _mapped(path: Path) -> Stored:
    """The file of a share, whose bytes are checked already; arrays are mapped, not read."""
    with open(path, "rb") as file:
        layout, metadata = read_layout(file, str(path))
        memory = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    arrays = {
        name: memory[entry.offset : entry.offset + entry.nbytes].view(entry.dtype).reshape(entry.shape)
        for name, entry in layout.items()
    }
    return Stored(arrays, metadata, str(path))

"""The storage of a call, by its name or as it is given."""

from __future__ import annotations

import os
from typing import Any

from .storage import StorageReader


def _storage_setup(storage: Any, checkpoint_id: str | os.PathLike[str] | None, kind: Any) -> Any:
    """`storage`, for the checkpoint of that name if there is one, or a `kind` for the folder `checkpoint_id`."""
    if storage is not None:
        if checkpoint_id is not None:
            storage.reset(checkpoint_id)
        return storage
    if not checkpoint_id:
        raise RuntimeError(
            "`checkpoint_id` must be specified if storage_reader/storage_writer is None: a folder for the checkpoint"
        )
    if not kind.validate_checkpoint_id(checkpoint_id):
        kind = _for_stores(kind, checkpoint_id)
    return kind(checkpoint_id)


def _for_stores(kind: Any, checkpoint_id: str | os.PathLike[str]) -> Any:
    """What reads or writes, as `kind` does in folders, in the store that `checkpoint_id` names."""
    known = "folders of the host are known, and stores of fsspec where it is installed"
    try:
        from . import _fsspec_filesystem as stores
    except ModuleNotFoundError as error:
        if error.name != "fsspec":
            raise
        known = "folders of the host are known; fsspec, which knows others, is not installed"
    else:
        found = stores.FsspecReader if issubclass(kind, StorageReader) else stores.FsspecWriter
        if found.validate_checkpoint_id(checkpoint_id):
            return found
    raise RuntimeError(
        f"Cannot detect which StorageReader or StorageWriter to use for {checkpoint_id}. Please specify the "
        f"storage_reader/storage_writer: {known}"
    )

"""The storage of a call, by its name or as it is given."""

from __future__ import annotations

import os
from typing import Any


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
        raise RuntimeError(
            f"Cannot detect which StorageReader or StorageWriter to use for {checkpoint_id}. Please specify the "
            "storage_reader/storage_writer: folders of the host are known"
        )
    return kind(checkpoint_id)

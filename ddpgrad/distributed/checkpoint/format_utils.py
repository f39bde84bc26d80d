"""A checkpoint as one file of `torch.save`, and such a file as a checkpoint."""

from __future__ import annotations

import os

from ...files.serialization import load, save
from ...launcher.checkpoint import shards
from .filesystem import STATE, FileSystemReader
from .state_dict_saver import save as save_checkpoint


def dcp_to_torch_save(
    dcp_checkpoint_dir: str | os.PathLike[str], torch_save_path: str | os.PathLike[str]
) -> None:
    """Write the nested state dict of a checkpoint, with whole tensors, by `torch.save`. One process calls it."""
    folder, manifest = FileSystemReader(dcp_checkpoint_dir).verified()
    save(shards.in_folder(folder, manifest).load(STATE), torch_save_path)


def torch_save_to_dcp(
    torch_save_path: str | os.PathLike[str], dcp_checkpoint_dir: str | os.PathLike[str]
) -> None:
    """Write the state dict in a file of `torch.save` as a checkpoint. One process calls it."""
    save_checkpoint(load(torch_save_path, map_location="cpu"), checkpoint_id=dcp_checkpoint_dir, no_dist=True)

"""`ddprun ckpt`: look at checkpoints without running the program that made them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ddpgrad import Tensor
from ddpgrad.core.errors import CheckpointError, LaunchError
from ddpgrad.distributed.failure import exit_codes

from ..checkpoint.checkpointer import Checkpointer
from ..checkpoint.manifest import Entry, read_manifest, verify
from ..checkpoint.shards import in_folder
from . import convert
from .convert import leaves

_DESCRIPTION = """\
Look at checkpoints. PATH is the folder of one (step_00000099), of all of a run, or of the run.
"""


def main(argv: Sequence[str]) -> int:
    """Run `ddprun ckpt` with `argv`; its exit code is 5 where a checkpoint is damaged."""
    parser = argparse.ArgumentParser(prog="ddprun ckpt", description=_DESCRIPTION)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in _COMMANDS.items():
        command = commands.add_parser(name, help=what, description=what)
        command.add_argument("path", type=Path, metavar="PATH")
        if name == "convert":
            command.add_argument(
                "object", nargs="?", help="an object of the checkpoint, or a key of the file: model"
            )
            command.add_argument("output", type=Path, metavar="FILE")
            command.add_argument(
                "--to", choices=convert.FORMS, help="the form of FILE (default: by its suffix)"
            )
    chosen = parser.parse_args(argv)
    try:
        if chosen.command == "convert" and chosen.path.is_file():
            _convert(convert.read_file(chosen.path), chosen.path, chosen)
            return exit_codes.FINISHED
        checkpoints = _checkpoints(chosen.path)
        if chosen.command == "ls":
            return _ls(checkpoints)
        if chosen.command == "verify":
            return _verify(checkpoints)
        if len({path.parent for path in checkpoints}) > 1:
            folders = ", ".join(dict.fromkeys(str(path.parent) for path in checkpoints))
            raise LaunchError(f"{chosen.path} holds several runs; give one of {folders}")
        newest = checkpoints[-1]
        if chosen.command == "show":
            _show(newest)
        else:
            _convert(convert.read_checkpoint(newest, chosen.object), newest, chosen)
    except CheckpointError as error:
        print(f"ddprun: error: {error}", file=sys.stderr)
        return exit_codes.BAD_CHECKPOINT
    return exit_codes.FINISHED


_COMMANDS = {
    "ls": "list the checkpoints with step, ranks, size and metric",
    "verify": "check every byte of the checkpoints",
    "show": "list the tensors and values of a checkpoint (of a run: of the newest)",
    "convert": "write a .pt, safetensors or ddpgrad file, or a checkpoint, into FILE: .pt (which PyTorch opens), "
    ".safetensors (tensors, named as in the state_dict) or .ddpgrad (all that ddpgrad.save writes without pickle)",
}


def _checkpoints(path: Path) -> list[Path]:
    if (path / "MANIFEST.json").exists():
        return [path]
    below = sorted(sub for sub in path.iterdir() if sub.is_dir()) if path.is_dir() else []
    # A run's own folder has them in a folder of their own.
    found = Checkpointer(path).paths() or [one for sub in below for one in Checkpointer(sub).paths()]
    if not found:
        raise LaunchError(f"{path} holds no checkpoint, nor does a folder in it")
    return found


def _ls(checkpoints: Sequence[Path]) -> int:
    code = exit_codes.FINISHED
    for path in checkpoints:
        try:
            manifest = read_manifest(path)
        except CheckpointError as error:
            print(f"{path.name}  {error}")
            code = exit_codes.BAD_CHECKPOINT
            continue
        size = sum(entry.size for entry in manifest.objects.values())
        metric = "" if manifest.metric is None else f"  metric {manifest.metric:g}"
        ranks = f"{manifest.world_size} rank{'s' * (manifest.world_size != 1)}"
        print(f"{path.name}  {ranks}  {size:,} bytes  {', '.join(manifest.objects)}{metric}")
    return code


def _verify(checkpoints: Sequence[Path]) -> int:
    code = exit_codes.FINISHED
    for path in checkpoints:
        try:
            verify(path)
            print(f"{path.name}  whole")
        except (CheckpointError, OSError) as error:
            print(f"{path.name}  {error}")
            code = exit_codes.BAD_CHECKPOINT
    return code


def _show(path: Path) -> None:
    manifest = verify(path)
    source = in_folder(path, manifest)
    print(f"{path}: step {manifest.step}, {manifest.world_size} rank{'s' * (manifest.world_size != 1)}")
    for name, entry in manifest.objects.items():
        print(f"{name}{_spread(entry)}")
        for place, value in leaves(source.load(name), ""):
            print(f"  {place or 'value'}: {_in_words(value)}")


def _spread(entry: Entry) -> str:
    whose = " of every rank" if entry.per_rank else ""
    parts = len(entry.tensor_files)
    return f" ({parts} files{whose})" if parts > 1 else f" ({whose[1:]})" if whose else ""


def _convert(state: Any, source: Path, chosen: argparse.Namespace) -> None:
    count = convert.convert(state, str(source), chosen.object, chosen.output, chosen.to)
    print(f"{chosen.output}: {count} tensors")


def _in_words(value: Any) -> str:
    if isinstance(value, (Tensor, np.ndarray)):
        kind = str(value.dtype).removeprefix("torch.")
        return f"{kind}{list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

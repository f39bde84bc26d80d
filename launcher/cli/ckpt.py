"""`ddprun ckpt`: look at checkpoints without running the program that made them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ddpgrad import Tensor
from ddpgrad.core.errors import CheckpointError, LaunchError
from ddpgrad.distributed.failure import exit_codes
from ddpgrad.files.tensor_file import write

from ..checkpoint.checkpointer import Checkpointer
from ..checkpoint.manifest import Entry, read_manifest, verify
from ..checkpoint.shards import load_object

_DESCRIPTION = """\
Look at checkpoints. PATH is the folder of one (step_00000099) or of all of a run.
"""


def main(argv: Sequence[str]) -> int:
    """Run `ddprun ckpt` with `argv`; its exit code is 5 where a checkpoint is damaged."""
    parser = argparse.ArgumentParser(prog="ddprun ckpt", description=_DESCRIPTION)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in _COMMANDS.items():
        command = commands.add_parser(name, help=what, description=what)
        command.add_argument("path", type=Path, metavar="PATH")
        if name == "convert":
            command.add_argument("object", help="which object of the checkpoint, such as model")
            command.add_argument("output", type=Path, metavar="FILE.safetensors")
    chosen = parser.parse_args(argv)
    checkpoints = _checkpoints(chosen.path)
    try:
        if chosen.command == "ls":
            return _ls(checkpoints)
        if chosen.command == "verify":
            return _verify(checkpoints)
        if chosen.command == "show":
            _show(checkpoints[-1])
        else:
            _convert(checkpoints[-1], chosen.object, chosen.output)
    except CheckpointError as error:
        print(f"ddprun: error: {error}", file=sys.stderr)
        return exit_codes.BAD_CHECKPOINT
    return exit_codes.FINISHED


_COMMANDS = {
    "ls": "list the checkpoints with step, ranks, size and metric",
    "verify": "check every byte of the checkpoints",
    "show": "list the tensors and values of a checkpoint (of a run: of the newest)",
    "convert": "write the tensors of one object into a plain safetensors file, named as in the state_dict",
}


def _checkpoints(path: Path) -> list[Path]:
    if (path / "MANIFEST.json").exists():
        return [path]
    found = Checkpointer(path).paths()
    if not found:
        raise LaunchError(f"{path} holds no checkpoint")
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
    print(f"{path}: step {manifest.step}, {manifest.world_size} rank{'s' * (manifest.world_size != 1)}")
    for name, entry in manifest.objects.items():
        print(f"{name}{_spread(entry)}")
        for place, value in _leaves(load_object(path, name, entry), ""):
            print(f"  {place or 'value'}: {_in_words(value)}")


def _spread(entry: Entry) -> str:
    whose = " of every rank" if entry.per_rank else ""
    parts = len(entry.tensor_files)
    return f" ({parts} files{whose})" if parts > 1 else f" ({whose[1:]})" if whose else ""


def _convert(path: Path, name: str, output: Path) -> None:
    manifest = verify(path)
    if name not in manifest.objects:
        raise LaunchError(f"{path} holds no {name!r}; it holds {', '.join(manifest.objects)}")
    state = load_object(path, name, manifest.objects[name])
    arrays = {
        place: np.ascontiguousarray(value.detach().numpy() if isinstance(value, Tensor) else value)
        for place, value in _leaves(state, "")
        if isinstance(value, (Tensor, np.ndarray))
    }
    if not arrays:
        raise LaunchError(f"{name!r} holds no tensors")
    try:
        with open(output, "xb") as file:
            write(file, arrays, {"format": "pt"})
    except FileExistsError:
        raise LaunchError(f"{output} exists; give another name") from None
    print(f"{output}: {len(arrays)} tensors")


def _leaves(state: Any, place: str) -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of each leaf of `state`."""
    pairs: Any = ()
    if isinstance(state, dict):
        pairs = state.items()
    elif isinstance(state, (list, tuple)):
        pairs = enumerate(state)
    else:
        yield place, state
    for key, value in pairs:
        yield from _leaves(value, f"{place}.{key}" if place else str(key))


def _in_words(value: Any) -> str:
    if isinstance(value, (Tensor, np.ndarray)):
        kind = str(value.dtype).removeprefix("torch.")
        return f"{kind}{list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

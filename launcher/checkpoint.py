"""Checkpointer: checkpoints that are whole or invisible, of a run over any number of ranks.

A checkpoint is written into a hidden folder, every file and the folder are put on stable
storage, and one rename makes it visible. A crash at any moment leaves the checkpoints
that were there. Files hold no pickles: loading one runs no code from it.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddpgrad import distributed
from ddpgrad.errors import CheckpointError
from ddpgrad.random import get_rng_state, set_rng_state
from ddpgrad.serialization import load, save

from .manifest import Entry, Manifest, check_name, file_name, verify, write_file, write_manifest

_GENERATORS = "generators"  # the object that holds every rank's default generator
_STEP = re.compile(r"step_(\d{8,})")
_REPLACED = re.compile(r"\.replaced-step_(\d{8,})-[0-9a-f]+")


class Checkpointer:
    """Checkpoints in `folder`, of which the newest `keep` stay (None: all).

        checkpoints = Checkpointer("run/checkpoints")
        first = checkpoints.resume(model=model, optimizer=optimizer, loader=loader) or 0
        for step in range(first, steps):
            ...
            checkpoints.save(step, model=model, optimizer=optimizer, loader=loader)

    All ranks call every method except `latest` and `read`; rank 0 writes. An object is
    stored as its `state_dict()`, or as it is when it has none. It is rank 0's state that
    is stored, except for objects with a true `state_is_per_rank`, such as a DataLoader.
    The default generators of all ranks are always included.

    One job writes into a folder at a time. Errors are CheckpointErrors on all ranks.
    """

    def __init__(self, folder: str | os.PathLike[str], keep: int | None = 2) -> None:
        if keep is not None and keep < 1:
            raise ValueError(f"keep must be at least 1, or None to keep all checkpoints; got {keep}")
        self.folder = Path(folder)
        self.keep = keep

    # -- writing -----------------------------------------------------------------------

    def save(self, step: int, **objects: Any) -> Path:
        """Commit a checkpoint after `step`, and delete the oldest beyond `keep`; its folder.

        A checkpoint of the same step is replaced. If anything fails, what was there stays.
        """
        if not isinstance(step, int) or step < 0:
            raise ValueError(f"step must be an integer >= 0, got {step!r}")
        for name in objects:
            check_name(name)
        if len({name.casefold() for name in (*objects, _GENERATORS)}) < len(objects) + 1:
            raise CheckpointError(
                f"the names {sorted(objects)} collide with each other or with {_GENERATORS!r} on a file "
                "system that ignores case"
            )
        shared: dict[str, Any] = {}
        own: dict[str, Any] = {_GENERATORS: get_rng_state()}
        for name, obj in objects.items():
            state = obj.state_dict() if hasattr(obj, "state_dict") else obj
            (own if getattr(obj, "state_is_per_rank", False) else shared)[name] = state
        gathered = _on_all_ranks(lambda: _to_bytes(own))
        final = self.folder / f"step_{step:08d}"
        _on_rank_0(lambda: self._commit(final, step, shared, [_from_bytes(data) for data in gathered]))
        return final

    def _commit(self, final: Path, step: int, shared: dict[str, Any], own: list[dict[str, Any]]) -> None:
        newer = [path for number, path in self._checkpoints() if number > step]
        if newer:
            raise CheckpointError(
                f"{newer[-1]} is newer than step {step}: a run that starts over needs a folder of its own. "
                "Resume from it, choose another folder, or move the newer checkpoints away"
            )
        token = secrets.token_hex(4)
        hidden = self.folder / f".tmp-{final.name}-{token}"
        try:
            self._prepare()
            hidden.mkdir()
            _fill(hidden, step, shared, own)
            self._publish(hidden, final, token)
        except OSError as error:
            raise CheckpointError(
                f"cannot write checkpoint {final}: {error}. The checkpoints before it are as they were"
            ) from error
        finally:
            # After a failure; what cannot be removed stays invisible, and the next save tries again.
            shutil.rmtree(hidden, ignore_errors=True)
        self._prune(step)

    def _prepare(self) -> None:
        """Make the folder, and clear it of what an interrupted save left behind."""
        if not self.folder.exists():
            self.folder.mkdir(parents=True)
            _sync_folder(self.folder.parent)
        for path in self.folder.glob(".tmp-*"):
            shutil.rmtree(path)

    def _publish(self, hidden: Path, final: Path, token: str) -> None:
        """Make the complete folder `hidden` visible as `final`."""
        replaced = self.folder / f".replaced-{final.name}-{token}"
        if not final.exists():
            os.replace(hidden, final)
        else:
            # Between the two renames, and if the second fails, `_checkpoints` finds the old one aside.
            os.replace(final, replaced)
            try:
                os.replace(hidden, final)
            except OSError:
                os.replace(replaced, final)
                raise
        _sync_folder(self.folder)

    def _prune(self, step: int) -> None:
        """Delete what `step` replaced, and the oldest checkpoints beyond `keep`."""
        visible = [path for number, path in self._checkpoints() if number <= step]
        doomed = [] if self.keep is None else visible[: -self.keep]
        aside = [path for path in self.folder.glob(".replaced-*") if path not in visible]
        for path in (*doomed, *aside):
            away = self.folder / f".tmp-deleted-{path.name.lstrip('.')}-{secrets.token_hex(4)}"
            try:
                os.replace(
                    path, away
                )  # first out of sight, so that no half of it is ever taken for a whole one
                shutil.rmtree(away)
            except OSError as error:
                warnings.warn(f"the old checkpoint {path} could not be deleted: {error}", stacklevel=4)

    # -- reading -----------------------------------------------------------------------

    def latest(self) -> Path | None:
        """The folder of the newest checkpoint, or None. Its bytes are not checked here."""
        found = self._checkpoints()
        return found[-1][1] if found else None

    def resume(self, **objects: Any) -> int | None:
        """Load the newest checkpoint into `objects`; the step to go on with, or None if there is none.

        An object gets its state by `load_state_dict`; a dict or list is refilled in place.
        This rank's default generator continues where it was. Before anything is changed,
        every byte of the checkpoint is checked, on every rank. CheckpointError if it is
        damaged, lacks one of the objects, or was made by another number of ranks.
        """
        for name, obj in objects.items():
            if not hasattr(obj, "load_state_dict") and not isinstance(obj, (dict, list)):
                raise TypeError(
                    f"resume({name}=…): {type(obj).__name__} has no load_state_dict and cannot be refilled; "
                    f"use `read({name!r})`"
                )
        outcomes = _on_all_ranks(lambda: str(path) if (path := self.latest()) else None)
        if len(set(outcomes)) > 1:
            seen = ", ".join(f"rank {rank}: {path}" for rank, path in enumerate(outcomes))
            raise CheckpointError(
                f"the ranks see different checkpoints ({seen}): {self.folder} must be shared"
            )
        if outcomes[0] is None:
            return None
        newest = Path(outcomes[0])
        loaded: dict[str, Any] = {}
        steps = _on_all_ranks(lambda: self._load(newest, objects, loaded))
        for name, obj in objects.items():
            _restore(obj, loaded[name])
        set_rng_state(loaded[_GENERATORS])
        return steps[0] + 1

    def read(self, name: str) -> Any:
        """What the newest checkpoint holds under `name`, on the CPU; of per-rank objects, a list by rank."""
        newest = self.latest()
        if newest is None:
            raise CheckpointError(f"{self.folder} holds no checkpoint")
        _find(self._verify(newest), name, newest)
        return load(newest / file_name(name), map_location="cpu")

    def _load(self, path: Path, names: Any, into: dict[str, Any]) -> int:
        """Fill `into` with this rank's states from the checkpoint at `path`; its step."""
        manifest = self._verify(path)
        rank, world_size = _rank_and_world_size()
        if manifest.world_size != world_size:
            raise CheckpointError(
                f"checkpoint {path} holds the generators of {manifest.world_size} ranks, this job has "
                f"{world_size}: start it with {manifest.world_size} ranks, on any number of processes. "
                "To take over some objects only: `obj.load_state_dict(checkpointer.read(name))`"
            )
        for name in (*names, _GENERATORS):
            entry = _find(manifest, name, path)
            state = load(path / file_name(name), map_location="cpu")
            into[name] = state[rank] if entry.per_rank else state
        return manifest.step

    def _verify(self, path: Path) -> Manifest:
        """Check every byte at `path`; the error tells whether an older checkpoint is whole."""
        try:
            return verify(path)
        except (CheckpointError, OSError) as error:
            raise CheckpointError(f"{error}. {self._advice(path)}") from error

    def _advice(self, damaged: Path) -> str:
        paths = [path for _, path in self._checkpoints()]
        for path in reversed(paths[: paths.index(damaged)]):
            try:
                verify(path)
            except (CheckpointError, OSError):
                continue
            return f"The older checkpoint {path} is whole: to go on from it, move {damaged} away and resume"
        return f"There is no older checkpoint in {self.folder} that is whole"

    def _checkpoints(self) -> list[tuple[int, Path]]:
        """(step, folder) of every complete checkpoint, the newest last."""
        found: dict[int, Path] = {}
        for pattern in (_REPLACED, _STEP):  # one that was set aside counts only while its place is empty
            for path in self.folder.iterdir() if self.folder.is_dir() else ():
                if (match := pattern.fullmatch(path.name)) and path.is_dir():
                    found[int(match[1])] = path
        return sorted(found.items())


def _fill(folder: Path, step: int, shared: dict[str, Any], own: list[dict[str, Any]]) -> None:
    """Write every object and the manifest into the new folder, on stable storage."""
    objects: dict[str, Entry] = {}
    for name, state in shared.items():
        objects[name] = _write_object(folder, name, state, per_rank=False)
    for name in own[0]:
        objects[name] = _write_object(folder, name, [states[name] for states in own], per_rank=True)
    write_manifest(folder, Manifest(step, len(own), objects))
    _sync_folder(folder)


def _write_object(folder: Path, name: str, state: Any, *, per_rank: bool) -> Entry:
    try:
        return write_file(folder / file_name(name), lambda file: save(state, file), per_rank=per_rank)
    except CheckpointError as error:
        raise CheckpointError(f"{name}: {error}") from error


def _find(manifest: Manifest, name: str, path: Path) -> Entry:
    if name not in manifest.objects:
        raise CheckpointError(f"checkpoint {path} holds no {name!r}; it holds {', '.join(manifest.objects)}")
    return manifest.objects[name]


def _restore(obj: Any, state: Any) -> None:
    if hasattr(obj, "load_state_dict"):
        obj.load_state_dict(state)
    else:
        obj.clear()
        obj.update(state) if isinstance(obj, dict) else obj.extend(state)


def _sync_folder(folder: Path) -> None:
    """Put the folder's entries on stable storage."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _to_bytes(state: Any) -> bytes:
    buffer = io.BytesIO()
    save(state, buffer)
    return buffer.getvalue()


def _from_bytes(data: bytes) -> Any:
    return load(io.BytesIO(data), map_location="cpu")


# -- what ranks do together ------------------------------------------------------------


def _rank_and_world_size() -> tuple[int, int]:
    if not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def _on_rank_0(action: Callable[[], None]) -> None:
    """Run `action` on rank 0; all ranks wait for it and learn whether it failed."""
    rank, _ = _rank_and_world_size()
    _on_all_ranks(action if rank == 0 else lambda: None)


def _on_all_ranks(action: Callable[[], Any]) -> list[Any]:
    """The results of `action` by rank. When it fails on one rank it raises on all, so that none waits."""
    rank, world_size = _rank_and_world_size()
    result, failure, cause = None, None, None
    try:
        result = action()
    except (CheckpointError, OSError) as error:
        failure, cause = str(error), error
    outcomes: list[Any] = [[result, failure]]
    if world_size > 1:
        outcomes = [None] * world_size
        distributed.all_gather_object(outcomes, [result, failure])
    for failed, (_, reason) in enumerate(outcomes):
        if reason is not None:
            where = f"rank {failed}: " if world_size > 1 else ""
            raise CheckpointError(f"{where}{reason}") from (cause if failed == rank else None)
    return [result for result, _ in outcomes]

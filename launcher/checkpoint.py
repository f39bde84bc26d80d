"""Checkpointer: checkpoints that are whole or invisible, of a run over any number of ranks.

A checkpoint is written into a hidden folder, every file and the folder are put on stable
storage, and one rename makes it visible. A crash at any moment leaves the checkpoints
that were there. Files hold no pickles: loading one runs no code from it.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import shutil
import warnings
from pathlib import Path
from typing import Any

from ddpgrad import environment
from ddpgrad.errors import CheckpointError
from ddpgrad.random import Generator, get_rng_state, set_rng_state
from ddpgrad.serialization import load, save

from . import preemption
from .agreement import any_rank, on_all_ranks, on_rank_0, rank_and_world_size
from .background import Writer, snapshot
from .manifest import (
    Entry,
    Manifest,
    check_name,
    file_name,
    read_manifest,
    verify,
    write_file,
    write_manifest,
)

_GENERATORS = "generators"  # the object that holds every rank's default generator
_STEP = re.compile(r"step_(\d{8,})")
_REPLACED = re.compile(r"\.replaced-step_(\d{8,})-[0-9a-f]+")


class Checkpointer:
    """Checkpoints in `folder`.

        checkpoints = Checkpointer("run/checkpoints", every=100)
        first = checkpoints.resume(model=model, optimizer=optimizer, loader=loader) or 0
        for step in range(first, steps):
            ...
            checkpoints.step(step, model=model, optimizer=optimizer, loader=loader)

    All ranks call every method except `latest` and `read`; rank 0 writes. An object is
    stored as its `state_dict()`, or as it is when it has none. It is rank 0's state that
    is stored, except for objects with a true `state_is_per_rank`, such as a DataLoader.
    The default generators of all ranks are always included.

    keep         how many of the newest stay (None: all)
    keep_every   those of a step that this divides stay, too
    best         'min' or 'max': the one with the lowest or highest metric stays, too
    every        how many steps lie between the checkpoints that `step` saves
    background   save only copies the state; a thread of rank 0 writes it while training goes on
    fall_back    resume from an older checkpoint, with a warning, if the newest is damaged. So it is
                 always when ddprun has restarted the job.

    One job writes into a folder at a time. Errors are CheckpointErrors on all ranks.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        keep: int | None = 2,
        *,
        keep_every: int | None = None,
        best: str | None = None,
        every: int | None = None,
        background: bool = False,
        fall_back: bool = False,
    ) -> None:
        for name, number in (("keep", keep), ("keep_every", keep_every), ("every", every)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, or None; got {number}")
        if best not in (None, "min", "max"):
            raise ValueError(f"best must be 'min', 'max' or None; got {best!r}")
        self.folder = Path(folder)
        self.keep, self.keep_every, self.best, self.every = keep, keep_every, best, every
        self.fall_back = fall_back
        self._writer = Writer() if background else None

    # -- writing -----------------------------------------------------------------------

    def step(self, step: int, metric: float | None = None, /, **objects: Any) -> None:
        """Call this after every step: it saves when a checkpoint is due.

        When a signal asks the job to end (see preemption.py), all ranks agree on the step, save
        and leave the script by SystemExit. Costs one small all-reduce.
        """
        asked = any_rank(preemption.requested())
        if asked or (self.every is not None and (step + 1) % self.every == 0):
            self.save(step, metric, **objects)
        if asked:
            self.wait()
            preemption.end(step)

    def save(self, step: int, metric: float | None = None, /, **objects: Any) -> Path:
        """Commit a checkpoint after `step`, and delete what need not be kept; its folder.

        A checkpoint of the same step is replaced. If anything fails, what was there stays. With
        `background`, an error of the last save is raised by the next, or by `wait`.
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
        self.wait()
        shared: dict[str, Any] = {}
        own: dict[str, Any] = {_GENERATORS: get_rng_state()}
        for name, obj in objects.items():
            state = obj.state_dict() if hasattr(obj, "state_dict") else obj
            (own if getattr(obj, "state_is_per_rank", False) else shared)[name] = state
        gathered = on_all_ranks(lambda: _to_bytes(own))
        final = self.folder / f"step_{step:08d}"

        def commit() -> None:
            self._commit(final, step, metric, shared, [_from_bytes(data) for data in gathered])

        if self._writer is None:
            on_rank_0(commit)
        elif rank_and_world_size()[0] == 0:
            shared = snapshot(shared)
            self._writer.start(commit)
        return final

    def wait(self) -> None:
        """Return when the last save with `background` is on stable storage; raises its error."""
        if self._writer is not None:
            on_rank_0(self._writer.wait)

    def _commit(
        self, final: Path, step: int, metric: float | None, shared: dict[str, Any], own: list[dict[str, Any]]
    ) -> None:
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
            _fill(hidden, step, metric, shared, own)
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
        found = [(number, path) for number, path in self._checkpoints() if number <= step]
        visible = [path for _, path in found]
        doomed = self._doomed(found)
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

    def _doomed(self, found: list[tuple[int, Path]]) -> list[Path]:
        """Those of the checkpoints, the newest last, that nothing keeps."""
        if self.keep is None:
            return []
        doomed = found[: -self.keep]
        if self.keep_every is not None:
            doomed = [(step, path) for step, path in doomed if step % self.keep_every]
        best = self._best([path for _, path in found]) if self.best is not None and doomed else None
        return [path for _, path in doomed if path != best]

    def _best(self, paths: list[Path]) -> Path | None:
        metrics = {path: metric for path in paths if (metric := _metric(path)) is not None}
        if not metrics:
            return None
        return (min if self.best == "min" else max)(metrics, key=metrics.__getitem__)

    # -- reading -----------------------------------------------------------------------

    def latest(self) -> Path | None:
        """The folder of the newest checkpoint, or None. Its bytes are not checked here."""
        found = self._checkpoints()
        return found[-1][1] if found else None

    def paths(self) -> list[Path]:
        """The folders of all checkpoints, the newest last. Their bytes are not checked here."""
        return [path for _, path in self._checkpoints()]

    def resume(self, **objects: Any) -> int | None:
        """Load the newest checkpoint into `objects`; the step to go on with, or None if there is none.

        An object gets its state by `load_state_dict`; a dict or list is refilled in place.
        This rank's default generator continues where it was. Before anything is changed,
        every byte of the checkpoint is checked, on every rank. CheckpointError if it is
        damaged or lacks one of the objects.

        With another number of ranks than the checkpoint was made by, a rank that was not there
        gets a generator derived from rank 0's, and rank 0's state of an object whose state is per
        rank. Whether that can be taken over is the object's to say (a DataLoader's position can
        where its sampler's is global).
        """
        for name, obj in objects.items():
            if not hasattr(obj, "load_state_dict") and not isinstance(obj, (dict, list)):
                raise TypeError(
                    f"resume({name}=…): {type(obj).__name__} has no load_state_dict and cannot be refilled; "
                    f"use `read({name!r})`"
                )
        outcomes = on_all_ranks(self._newest)
        if len(set(outcomes)) > 1:
            seen = ", ".join(f"rank {rank}: {path}" for rank, path in enumerate(outcomes))
            raise CheckpointError(
                f"the ranks see different checkpoints ({seen}): {self.folder} must be shared"
            )
        if outcomes[0] is None:
            return None
        newest = Path(outcomes[0])
        loaded: dict[str, Any] = {}
        steps = on_all_ranks(lambda: self._load(newest, objects, loaded))
        for name, obj in objects.items():
            _restore(obj, loaded[name])
        set_rng_state(loaded[_GENERATORS])
        return steps[0] + 1

    def _newest(self) -> str | None:
        """The checkpoint to resume from: the newest, or the newest that is whole."""
        found = [path for _, path in self._checkpoints()]
        if not found:
            return None
        if not (self.fall_back or environment.restart_count()):
            return str(found[-1])
        for path in reversed(found):
            try:
                verify(path)
            except (CheckpointError, OSError) as error:
                warnings.warn(f"{error}. Going back to the checkpoint before it", stacklevel=2)
                continue
            return str(path)
        raise CheckpointError(f"no checkpoint in {self.folder} is whole; the newest is {found[-1]}")

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
        rank, _ = rank_and_world_size()
        for name in (*names, _GENERATORS):
            entry = _find(manifest, name, path)
            state = load(path / file_name(name), map_location="cpu")
            if not entry.per_rank:
                into[name] = state
            elif rank < len(state):
                into[name] = state[rank]
            else:
                into[name] = _derived(state[0], rank) if name == _GENERATORS else state[0]
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


def _derived(state: Any, rank: int) -> Any:
    """A generator's state for a rank that the checkpoint does not know, different from all others'."""
    seed = hashlib.sha256(state.numpy().tobytes() + rank.to_bytes(8, "little")).digest()[:7]
    return Generator().manual_seed(int.from_bytes(seed, "little")).get_state()


def _metric(path: Path) -> float | None:
    """The metric that a checkpoint was saved with; None also for a damaged one."""
    try:
        return read_manifest(path).metric
    except (CheckpointError, OSError):
        return None


def _fill(
    folder: Path, step: int, metric: float | None, shared: dict[str, Any], own: list[dict[str, Any]]
) -> None:
    """Write every object and the manifest into the new folder, on stable storage."""
    objects: dict[str, Entry] = {}
    for name, state in shared.items():
        objects[name] = _write_object(folder, name, state, per_rank=False)
    for name in own[0]:
        objects[name] = _write_object(folder, name, [states[name] for states in own], per_rank=True)
    write_manifest(folder, Manifest(step, len(own), objects, metric))
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

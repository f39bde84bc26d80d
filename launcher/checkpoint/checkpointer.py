"""Checkpointer: checkpoints that are whole or invisible, of a run over any number of ranks.

A checkpoint is written into a hidden folder, every file and the folder are put on stable
storage, and one rename makes it visible. A crash at any moment leaves the checkpoints
that were there. Files hold no pickles: loading one runs no code from it.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ddpgrad.core import environment
from ddpgrad.core.errors import CheckpointError
from ddpgrad.files.plain import PlainFile, load_plain

from .. import preemption
from . import generators, shards
from .agreement import (
    answer_of_rank_0,
    any_rank,
    gathered,
    on_all_ranks,
    on_rank_0,
    rank_and_world_size,
    settled,
)
from .background import Writer, report
from .manifest import File, Manifest, verify
from .objects import GENERATORS, check_names, own_shares, restore_all, small_states
from .retention import Retention
from .shards import Share, Source
from .snapshots import Snapshots
from .store import Store


class Checkpointer:
    """Checkpoints in `folder`.

        checkpoints = Checkpointer("run/checkpoints", every=100)
        first = checkpoints.resume(model=model, optimizer=optimizer, loader=loader) or 0
        for step in range(first, steps):
            ...
            checkpoints.step(step, model=model, optimizer=optimizer, loader=loader)

    All ranks call every method except `latest`, `paths` and `read`. An object is stored as its
    `state_dict()`, or as it is when it has none. It is rank 0's state that is stored, except for
    objects with a true `state_is_per_rank`, such as a DataLoader, or a PostLocalSGDOptimizer and with it the
    model that it trains, of which each rank writes its own, and for those whose state is spread
    over the ranks: what their `sharded_state_dict()` gives on each rank is a part of one nested dict,
    which any number of ranks gets whole by `load_state_dict`. The random generators of all ranks
    (ddpgrad's, Python's, NumPy's) are always included.

    keep         how many of the newest stay (None: all)
    keep_every   those of a step that this divides stay, too
    best         'min' or 'max': the one with the lowest or highest metric stays, too
    every        how many steps lie between the checkpoints that `step` saves
    sharded      all ranks write, each its part of the parameters and of the optimizer's state; without
                 it rank 0 writes all, except for objects that are spread over the ranks
    background   save only copies the state; threads write it while training goes on
    memory_every how many steps lie between the snapshots that `step` leaves in memory of ddprun. When ddprun has
                 restarted the job (--max-restarts), `resume` goes on from the newest that all ranks have whole,
                 if no checkpoint is newer: at most so many steps are lost, and no file is read. A snapshot is
                 dealt to the ranks as with `sharded`; a rank takes twice the memory of its share, none of
                 it in /dev/shm, and over several hosts twice more on the next host, for the loss of its own.
                 On Linux; where the memory cannot be reached, a warning tells that none are kept. Of one
                 Checkpointer at a time. Without --max-restarts nothing would read them, and none are kept.
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
        sharded: bool = False,
        background: bool = False,
        memory_every: int | None = None,
        fall_back: bool = False,
    ) -> None:
        for name, steps in (("every", every), ("memory_every", memory_every)):
            if steps is not None and steps < 1:
                raise ValueError(f"{name} must be at least 1, or None; got {steps}")
        self.folder = Path(folder).absolute()  # which the program may leave while the job runs
        if not _may_be_folder(self.folder):
            raise CheckpointError(
                f"checkpoints need a folder, and {self.folder} is a file, or a link to nothing"
            )
        self.every, self.memory_every = every, memory_every
        self.sharded, self.fall_back = sharded, fall_back
        self._store = Store(self.folder, Retention(keep, keep_every, best))
        self._room: dict[tuple[str, str], np.ndarray] = {}  # for copies of the state
        self._writer = Writer() if background else None
        self._snapshots: Snapshots | None = None  # since the first use, if they can be kept
        self._keeps = memory_every is not None and environment.snapshot_memory() is not None

    # -- writing -----------------------------------------------------------------------

    def step(self, step: int, metric: float | None = None, /, **objects: Any) -> None:
        """Call this after every step: it saves when a checkpoint is due, and keeps the state in memory.

        When a signal asks the job to end (see preemption.py), all ranks agree on the step, save
        and leave the script by SystemExit. Costs one small all-reduce.
        """
        snapshots = self._in_memory()
        if snapshots is not None:
            # Before the ranks meet, so that afterwards all have the last one whole, and may write the next.
            snapshots.wait()
        asked = any_rank(preemption.requested())
        if asked or (self.every is not None and (step + 1) % self.every == 0):
            self.save(step, metric, **objects)
        if snapshots is not None and (asked or (step + 1) % (self.memory_every or 1) == 0):
            check_names(objects)
            rank, ranks = rank_and_world_size()
            snapshots.keep(step, own_shares(objects, rank, ranks, sharded=True))
        if asked:
            self.wait()
            if snapshots is not None:
                snapshots.wait()
            preemption.end(step)

    def save(self, step: int, metric: float | None = None, /, **objects: Any) -> Path:
        """Commit a checkpoint after `step`, delete those that need not be kept, and return its folder.

        A checkpoint of the same step is replaced. If anything fails, the checkpoints before it stay. With
        `background`, an error of the last save is raised by the next, or by `wait`.
        """
        if not isinstance(step, int) or step < 0:
            raise ValueError(f"step must be an integer >= 0, got {step!r}")
        check_names(objects)
        self.wait()
        rank, ranks = rank_and_world_size()
        mine: list[Share] = []

        def take() -> list[Any]:
            mine.extend(own_shares(objects, rank, ranks, self.sharded))
            together = b"" if self.sharded or ranks == 1 else _to_bytes(small_states(objects))
            said = {"step": step, "folder": str(self.folder), "names": sorted(objects)}
            return [together, {share.name: share.digest for share in mine if share.digest}, said]

        taken = gathered(take)

        def begin() -> str:
            _check_alike([digests for _, digests, _ in taken], [said for *_, said in taken])
            return str(self._store.begin(step))

        begun = answer_of_rank_0(begin)
        if rank == 0 and taken[0][0]:
            states = [_from_bytes(data) for data, *_ in taken]
            mine += [shards.whole(name, [s[name] for s in states], "list") for name in states[0]]
        self._write(_PendingCheckpoint(self._store, Path(begun), step, metric, ranks, mine), rank)
        return self._store.place(step)

    def _write(self, pending: _PendingCheckpoint, rank: int) -> None:
        if self._writer is not None:
            pending.shares = [share.snapshot(self._room) for share in pending.shares]
            writer = self._writer
            if rank:
                writer.start(lambda: report(pending.hidden, rank, pending.write))
            settled(lambda: None)  # rank 0 waits for the others, at the end of its program, too
            if rank == 0:
                writer.start(lambda: pending.finish(lambda: writer.collect(pending.hidden, pending.ranks)))
            return
        try:
            written = gathered(pending.write)
        except BaseException:
            if rank == 0:
                pending.store.discard(pending.hidden)
            raise
        on_rank_0(lambda: pending.finish(lambda: written[1:], written[0]))

    def wait(self) -> None:
        """Return when the last save with `background` is on stable storage; raises its error."""
        writer = self._writer
        if writer is None:
            return
        rank, _ = rank_and_world_size()
        try:
            settled(lambda: writer.wait() if rank else None)
        except CheckpointError:
            writer.give_up()
            with contextlib.suppress(CheckpointError):  # about a missing part: the error above is its reason
                writer.wait()
            raise
        on_rank_0(writer.wait)

    # -- reading -----------------------------------------------------------------------

    def latest(self) -> Path | None:
        """The folder of the newest checkpoint, or None. Its bytes are not checked here."""
        found = self._store.found()
        return found[-1][1] if found else None

    def paths(self) -> list[Path]:
        """The folders of all checkpoints, the newest last. Their bytes are not checked here."""
        return [path for _, path in self._store.found()]

    def resume(self, **objects: Any) -> int | None:
        """Load the newest checkpoint into `objects`; the step to go on with, or None if there is none.

        An object gets its state by `load_state_dict`; a dict or list is refilled in place.
        This rank's random generators continue where they were. Before anything is changed,
        every byte of the checkpoint is checked, on every rank. CheckpointError if it is
        damaged or lacks one of the objects.

        With another number of ranks than the checkpoint was made by, a rank that was not there
        gets generators derived from rank 0's, and rank 0's state of an object whose state is per
        rank. Whether that can be taken over is the object's to say (a DataLoader's position can
        where its sampler's is global: see `launcher.prepare`).
        """
        for name, obj in objects.items():
            if not hasattr(obj, "load_state_dict") and not isinstance(obj, (dict, list)):
                raise TypeError(
                    f"resume({name}=…): {type(obj).__name__} has no load_state_dict and cannot be refilled; "
                    f"use `read({name!r})`"
                )
        source = self._snapshot() or self._checkpoint()
        if source is None:
            return None
        rank, _ = rank_and_world_size()
        loaded: dict[str, Any] = {}
        settled(lambda: loaded.update({name: source.load(name, rank) for name in (*objects, GENERATORS)}))
        settled(lambda: restore_all(objects, loaded, source))
        if rank < source.world_size:
            generators.restore(loaded[GENERATORS])
        else:
            generators.restore_derived(loaded[GENERATORS], rank)
        return source.step + 1

    def _snapshot(self) -> Source | None:
        """What all ranks have in memory and are to go on from: in a job that was started again, if no file is newer."""
        if self._snapshots is not None:
            return None  # this attempt keeps its own already
        snapshots = self._in_memory()
        if snapshots is None:
            return None
        source = snapshots.newest() if environment.restart_count() else None
        files = self._store.found()
        if source is not None and files and files[-1][0] > source.step:
            source = None
        step = None if source is None else source.step
        return None if len(set(on_all_ranks(lambda: step))) > 1 else source

    def _in_memory(self) -> Snapshots | None:
        """The snapshots, where they are wanted and all ranks reach the launcher's memory."""
        address = environment.snapshot_memory()
        if not self._keeps or self._snapshots is not None or address is None:
            return self._snapshots
        rank, ranks = rank_and_world_size()
        try:
            found = Snapshots(address, self.folder, rank, ranks, environment.restart_count())
            reason, place = None, found.place
        except CheckpointError as error:
            found, reason, place = None, str(error), ""
        reasons, places = zip(*on_all_ranks(lambda: (reason, place)), strict=True)
        first = next((other for other, why in enumerate(reasons) if why is not None), None)
        if found is None or first is not None:
            self._keeps = False
            if rank == first:
                warnings.warn(f"no snapshots are kept in memory: rank {rank}: {reason}", stacklevel=3)
            return None
        found.meet(places)
        self._snapshots = found
        return found

    def _checkpoint(self) -> Source | None:
        """The checkpoint to resume from, every byte of which was checked on every rank."""
        outcomes = on_all_ranks(self._newest)
        if len(set(outcomes)) > 1:
            seen = ", ".join(f"rank {rank}: {path}" for rank, path in enumerate(outcomes))
            raise CheckpointError(
                f"the ranks see different checkpoints ({seen}): {self.folder} must be shared"
            )
        if outcomes[0] is None:
            return None
        newest = Path(outcomes[0])
        sources: list[Source] = []
        settled(lambda: sources.append(shards.in_folder(newest, self._verify(newest))))
        return sources[0]

    def _newest(self) -> str | None:
        """The checkpoint to resume from: the newest, or the newest that is whole."""
        found = [path for _, path in self._store.found()]
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
        """The object `name` of the newest checkpoint, on the CPU; of a per-rank object, a list by rank."""
        newest = self.latest()
        if newest is None:
            raise CheckpointError(f"{self.folder} holds no checkpoint")
        return shards.in_folder(newest, self._verify(newest)).load(name)

    def _verify(self, path: Path) -> Manifest:
        """Check every byte at `path`; the error names an older checkpoint that is whole, if there is one."""
        try:
            return verify(path)
        except (CheckpointError, OSError) as error:
            raise CheckpointError(f"{error}. {self._advice(path)}") from error

    def _advice(self, damaged: Path) -> str:
        paths = [path for _, path in self._store.found()]
        for path in reversed(paths[: paths.index(damaged)]):
            try:
                verify(path)
            except (CheckpointError, OSError):
                continue
            return f"The older checkpoint {path} is whole: to go on from it, move {damaged} away and resume"
        return f"There is no older checkpoint in {self.folder} that is whole"


class _PendingCheckpoint:
    """A checkpoint that is being written: this rank's share, and on rank 0 the commit."""

    def __init__(
        self, store: Store, hidden: Path, step: int, metric: float | None, ranks: int, shares: list[Share]
    ) -> None:
        self.store, self.hidden, self.ranks, self.shares = store, hidden, ranks, shares
        self._step, self._metric = step, metric

    def write(self) -> dict[str, Any]:
        """Write this rank's files; their descriptions by object, as plain data."""
        with self.store.writing(self._step):
            return {share.name: asdict(share.write(self.hidden)) for share in self.shares}

    def finish(self, others: Callable[[], Sequence[Any]], own: dict[str, Any] | None = None) -> None:
        """On rank 0: write its files, unless `own` describes them already, and commit when all `others` are written."""
        try:
            try:
                mine = self.write() if own is None else own
            finally:
                parts = others()  # which write in this folder until then
            written = [mine, *parts]
            files = [{name: File(**file) for name, file in part.items()} for part in written]
            with self.store.writing(self._step):
                entries = {share.name: shards.entry(self.hidden, share, files) for share in self.shares}
            self.store.commit(self.hidden, Manifest(self._step, self.ranks, entries, self._metric))
        finally:
            self.store.discard(self.hidden)


def _may_be_folder(path: Path) -> bool:
    """Whether `path` is a folder or can become one. It is looked at once: another rank may make it or move it meanwhile."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return not path.is_symlink()


def _check_alike(digests: Sequence[dict[str, str]], said: Sequence[dict[str, Any]]) -> None:
    for rank, there in enumerate(said):
        for what, value in said[0].items():
            if there[what] != value:
                raise CheckpointError(
                    f"rank {rank} saves {what} {there[what]}, and rank 0 {what} {value}: all ranks save the same"
                )
    for rank, found in enumerate(digests):
        for name, digest in digests[0].items():
            if found.get(name) != digest:
                raise CheckpointError(
                    f"the state of {name!r} has other tensors on rank {rank} than on rank 0: the names and "
                    "sizes of tensors that all ranks write must be the same on all"
                )


def _to_bytes(state: Any) -> bytes:
    buffer = io.BytesIO()
    PlainFile(state).write(buffer)
    return buffer.getvalue()


def _from_bytes(data: bytes) -> Any:
    return load_plain(io.BytesIO(data), "the state of a rank", "cpu")

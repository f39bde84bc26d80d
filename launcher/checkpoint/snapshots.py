"""Snapshots: checkpoints in memory that the launcher owns, for the next attempt of a job that failed.

Every rank has two slots, each for one snapshot of its share of the state: files as a checkpoint has them, one after
another, and before them a description, which is deleted first and written last. So one slot is whole while
the other is written, and a rank that dies in between leaves none that looks whole. All bytes are under a checksum.
"""

from __future__ import annotations

import mmap
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ddpgrad.core.errors import CheckpointError
from ddpgrad.files import tensor_file
from ddpgrad.files.plain import PlainFile, load_plain

from ..job import snapshot_memory
from .background import Writer
from .shards import Share, Source, Stored

_SLOTS = 2
# Places in the memory, which takes only what is written: a slot's first byte, and that of its first file.
_SLOT_BYTES = 1 << 40
_FILES = 1 << 24
_BLANK = bytes(8)  # a description begins with its length


class Snapshots:
    """The snapshots, at `address`, of the run with checkpoints in `folder`, as `rank` of `ranks` sees them.

    CheckpointError where the memory cannot be reached.
    """

    def __init__(self, address: str, folder: Path, rank: int, ranks: int) -> None:
        self._file = snapshot_memory.opened(address)
        self._run = {"folder": str(folder.absolute()), "ranks": ranks}
        self._rank, self._ranks = rank, ranks
        self._room: dict[tuple[str, str], np.ndarray] = {}  # for copies of the state
        self._mapped: dict[int, mmap.mmap] = {}  # by slot, what this rank writes
        self._slot: int | None = None  # the one to be written next
        self._full = False
        self._writer = Writer()

    def keep(self, step: int, shares: Sequence[Share]) -> None:
        """Begin to keep `shares`, the state after `step`; they may change once this has returned.

        Where the memory does not suffice a warning says so, and this rank keeps none from then on.
        """
        self.wait()
        if self._full:
            return
        copies = [share.snapshot(self._room) for share in shares]
        self._writer.start(lambda: self._write(step, copies))

    def wait(self) -> None:
        """Return when the last snapshot is whole."""
        self._writer.wait()

    def go_on_from(self, step: int | None) -> None:
        """Forget this rank's snapshots, but for that of `step`, which stays until the next one is whole."""
        self._slot = 0
        for slot in range(_SLOTS):
            description = self._description(self._rank, slot)
            if description is None:
                continue
            if description["step"] == step:
                self._slot = (slot + 1) % _SLOTS
            else:
                self._forget(slot)

    def newest(self) -> Source | None:
        """The newest snapshot that all ranks have whole; a warning tells of one with other bytes than were written."""
        found: list[dict[int, tuple[int, Any]]] = []
        for rank in range(self._ranks):
            slots = ((slot, self._description(rank, slot)) for slot in range(_SLOTS))
            found.append(
                {text["step"]: (_place(rank, slot), text) for slot, text in slots if text is not None}
            )
        for step in sorted(set.intersection(*map(set, found)), reverse=True):
            try:
                return self._verified(step, [snapshots[step] for snapshots in found])
            except CheckpointError as error:
                warnings.warn(f"{error}. Going back to the one before it", stacklevel=2)
        return None

    def _write(self, step: int, shares: Sequence[Share]) -> None:
        if self._slot is None:
            self.go_on_from(None)
        slot = self._slot or 0
        try:
            self._forget(slot)
            size = 2 * max(_FILES, sum(share.nbytes for share in shares))
            while not self._fits(step, shares, self._map(slot, size)):
                size *= 2  # there are more words than numbers
        except OSError as error:
            self._full = True
            warnings.warn(
                f"rank {self._rank} cannot keep the state after step {step} in memory, nor any later one: {error}. After "
                "a failure the job goes on from a file",
                stacklevel=2,
            )
            return
        self._slot = (slot + 1) % _SLOTS

    def _fits(self, step: int, shares: Sequence[Share], memory: mmap.mmap) -> bool:
        """Write a snapshot; False where `memory` ends before."""
        objects = {}
        memory.seek(_FILES)
        for share in shares:
            objects[share.name] = [share.layout, share.file, memory.tell(), share.digest]
            try:
                tensor_file.write(memory, share.arrays, share.metadata, checksum="crc32")  # pyright: ignore[reportArgumentType]
            except ValueError as error:
                if "out of range" not in str(error):  # which mmap says at its end
                    raise
                return False
        memory.seek(0)
        PlainFile({**self._run, "step": step, "objects": objects}).write(memory)  # pyright: ignore[reportArgumentType]
        return True

    def _map(self, slot: int, size: int) -> mmap.mmap:
        """At least `size` bytes of a slot. What has been written once is written several times as fast."""
        if slot not in self._mapped or len(self._mapped[slot]) < size:
            begin = _place(self._rank, slot)
            # Another rank may have made the file longer; this makes it no shorter.
            os.pwrite(self._file.fileno(), b"\0", begin + size - 1)
            self._mapped[slot] = mmap.mmap(self._file.fileno(), size, offset=begin)
        return self._mapped[slot]

    def _forget(self, slot: int) -> None:
        os.pwrite(self._file.fileno(), _BLANK, _place(self._rank, slot))

    def _description(self, rank: int, slot: int) -> Any:
        """What the slot holds; None if there is no whole snapshot of this run."""
        self._file.seek(_place(rank, slot))
        try:
            description = load_plain(self._file, "a snapshot", "cpu", to_end=False)
        except CheckpointError:
            return None  # it is empty, or was being written
        return description if self._run.items() <= description.items() else None

    def _verified(self, step: int, descriptions: Sequence[tuple[int, Any]]) -> Source:
        """The snapshot with these descriptions by rank, after a check of every byte."""
        objects: dict[str, tuple[str, list[str]]] = {}
        places: dict[str, int] = {}
        digests: dict[str, str] = {}
        for slot, description in descriptions:
            for name, (layout, file, begin, digest) in description["objects"].items():
                objects.setdefault(name, (layout, []))[1].append(file)
                places[file] = slot + begin
                if digests.setdefault(name, digest) != digest:
                    raise CheckpointError(
                        f"the snapshot of step {step} has other tensors of {name!r} by rank"
                    )

        def stored(file: str) -> Stored:
            name = f"{file} in the snapshot of step {step}"
            self._file.seek(places[file])
            return Stored(*tensor_file.read(self._file, name, to_end=False, checksum="crc32"), name)

        for file in places:
            stored(file)
        return Source(f"the snapshot of step {step}", step, self._ranks, objects, stored)


def _place(rank: int, slot: int) -> int:
    return (_SLOTS * rank + slot) * _SLOT_BYTES

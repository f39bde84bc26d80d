"""Snapshots: checkpoints in memory that outlives the ranks, for the next attempt of a job that failed.

Every rank has two slots, each for one snapshot of its share of the state: files as a checkpoint has them, one after
another, and before them a description, which is deleted first and written last. So one slot is whole while
the other is written, and a rank that dies in between leaves none that looks whole. The description has a checksum of the
files, and one of its own.

In a job over several hosts each has such a memory, and a rank's share lies in the same slot of its own host's and of the
next one's. What a host lacks of the snapshot to go on from is copied to it, and then read as on one host.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import mmap
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ddpgrad.core.errors import CheckpointError
from ddpgrad.files import tensor_file
from ddpgrad.files.plain import PlainFile, load_plain

from ..job import snapshot_memory
from ..job.keeper import Remote
from .agreement import on_all_ranks
from .background import Writer
from .checksum import checksum_of
from .shards import Share, Source, Stored

_SLOTS = 2
# Places in the memory, which takes only what is written: a slot's first byte, and that of its first file.
_SLOT_BYTES = 1 << 40
_FILES = 1 << 24
_BLANK = bytes(8)  # a description begins with its length


class _Held(NamedTuple):
    """A rank's share of a snapshot in the memory of a host. Of two shares of one step, that of the later attempt is newer."""

    attempt: int
    step: int
    rank: int
    slot: int
    head: int
    """The bytes of its description."""
    end: int
    """Those of the slot, up to the end of its last file."""
    leader: int = 0
    """The first rank on that host."""

    @property
    def begin(self) -> int:
        return _place(self.rank, self.slot)


class Snapshots:
    """The snapshots, at `address`, of the run with checkpoints in `folder`, as `rank` of `ranks` sees them.

    All ranks call `meet` before anything else. CheckpointError where the memory cannot be reached.
    """

    def __init__(self, address: str, folder: Path, rank: int, ranks: int, attempt: int) -> None:
        self._memory = snapshot_memory.opened(address)
        self._file = self._memory.file
        self._run = {"folder": str(folder.absolute()), "ranks": ranks}
        self._rank, self._ranks, self._attempt = rank, ranks, attempt
        self._places: Sequence[str] = ()
        self._copies_to = ""
        self._remote: Remote | None = None
        self._mapped: dict[int, mmap.mmap] = {}  # by slot, what this rank writes
        self._slot = 0  # the one to be written next
        self._full = False
        self._writer = Writer()

    @property
    def place(self) -> str:
        """Where ranks of other hosts find the memory of this one."""
        return self._memory.place

    def meet(self, places: Sequence[str]) -> None:
        """places: by rank."""
        hosts = list(dict.fromkeys(places))
        following = hosts[(hosts.index(self.place) + 1) % len(hosts)]
        self._places, self._copies_to = places, "" if following == self.place else following

    def keep(self, step: int, shares: Sequence[Share]) -> None:
        """Begin to keep `shares`, the state after `step`; they may change once this has returned.

        Where the memory does not suffice a warning says so, and this rank keeps none from then on.
        """
        self.wait()
        if self._full:
            return
        slot = self._slot
        try:
            os.pwrite(self._file.fileno(), _BLANK, _place(self._rank, slot))
            size = 2 * max(_FILES, sum(share.nbytes for share in shares))
            while (written := self._written(shares, self._map(slot, size))) is None:
                size *= 2  # there are more words than numbers
        except OSError as error:
            self._full = True
            warnings.warn(
                f"rank {self._rank} cannot keep the state after step {step} in memory, nor any later one: {error}. After "
                "a failure the job goes on from a file",
                stacklevel=3,
            )
            return
        objects, end = written
        said = {**self._run, "attempt": self._attempt, "step": step, "objects": objects, "end": end}
        self._slot = (slot + 1) % _SLOTS
        self._writer.start(lambda: self._finish(slot, said))

    def wait(self) -> None:
        """Return when the last snapshot is whole."""
        self._writer.wait()

    def newest(self) -> Source | None:
        """The newest snapshot that all ranks have whole, on whichever hosts. All ranks call it.

        A warning tells of one that cannot be had, or has other bytes than were written.
        """
        leads = self._places.index(self.place) == self._rank
        found: dict[tuple[int, int], dict[int, _Held]] = {}
        for rows in on_all_ranks(lambda: [list(held) for held in self._held()] if leads else []):
            for held in itertools.starmap(_Held, rows):
                found.setdefault((held.attempt, held.step), {}).setdefault(held.rank, held)
        for (_, step), shares in sorted(found.items(), reverse=True):
            if len(shares) < self._ranks:
                continue
            sources: list[Source] = []
            fetch = functools.partial(self._fetch, shares.values() if leads else ())
            verify = functools.partial(self._verify, step, shares, sources)
            if self._all_succeed(fetch) and self._all_succeed(verify):
                self._slot = (shares[self._rank].slot + 1) % _SLOTS
                return sources[0]
        return None

    def _all_succeed(self, action: Callable[[], object]) -> bool:
        problem = None
        try:
            action()
        except (CheckpointError, OSError) as error:
            problem = str(error)
            warnings.warn(f"{problem}. Going back to the snapshot before it", stacklevel=3)
        return not any(on_all_ranks(lambda: problem))

    def _held(self) -> Iterator[_Held]:
        """What the memory of this host holds of this run."""
        for rank, slot in itertools.product(range(self._ranks), range(_SLOTS)):
            description = self._description(rank, slot)
            if description is not None:
                head = self._file.tell() - _place(rank, slot)
                yield _Held(
                    description["attempt"],
                    description["step"],
                    rank,
                    slot,
                    head,
                    description["end"],
                    self._rank,
                )

    def _fetch(self, shares: Iterable[_Held]) -> None:
        """Copy those of `shares` to this host's memory that are elsewhere only."""
        for held in shares:
            place = self._places[held.leader]
            mine = self._description(held.rank, held.slot)
            if place == self.place or (mine and (mine["attempt"], mine["step"]) == held[:2]):
                continue
            with contextlib.closing(Remote(place)) as remote:
                os.pwrite(self._file.fileno(), _BLANK, held.begin)
                remote.read_into(held.begin + _FILES, held.end - _FILES, self._file)
                remote.read_into(held.begin, held.head, self._file)

    def _written(self, shares: Sequence[Share], memory: mmap.mmap) -> tuple[dict[str, Any], int] | None:
        """Write the files of a snapshot; what they are and where the last ends, or None where `memory` ends before."""
        objects = {}
        memory.seek(_FILES)
        for share in shares:
            objects[share.name] = [share.layout, share.file, memory.tell(), share.digest]
            try:
                tensor_file.write(memory, share.arrays, share.metadata, checksum=False)  # pyright: ignore[reportArgumentType]
            except ValueError as error:
                if "out of range" not in str(error):  # which mmap says at its end
                    raise
                return None
        return objects, memory.tell()

    def _finish(self, slot: int, said: Mapping[str, Any]) -> None:
        """Make the snapshot in `slot` whole by its description."""
        memory, end = self._mapped[slot], said["end"]
        with memoryview(memory) as view, view[_FILES:end] as files:
            checksum = checksum_of(files)
        memory.seek(0)
        PlainFile({**said, "checksum": checksum}).write(memory)  # pyright: ignore[reportArgumentType]
        if self._copies_to:
            self._copy(slot, memory.tell(), end)

    def _copy(self, slot: int, head: int, end: int) -> None:
        """Copy what has just been written to the memory of the next host."""
        begin = _place(self._rank, slot)
        try:
            self._remote = remote = self._remote or Remote(self._copies_to)
            with memoryview(self._mapped[slot]) as memory:
                remote.write(begin, _BLANK)
                remote.write(begin + _FILES, memory[_FILES:end])
                remote.write(begin, memory[:head])
                remote.sync()
        except OSError as error:
            where, self._copies_to = self._copies_to.rpartition("@")[2], ""
            warnings.warn(
                f"rank {self._rank} keeps no copy of its state on {where} any more: {error}. If this host is lost, the job "
                "goes on from a file",
                stacklevel=2,
            )

    def _map(self, slot: int, size: int) -> mmap.mmap:
        """At least `size` bytes of a slot. What has been written once is written several times as fast."""
        if slot not in self._mapped or len(self._mapped[slot]) < size:
            begin = _place(self._rank, slot)
            # Another rank may have made the file longer; this makes it no shorter.
            os.pwrite(self._file.fileno(), b"\0", begin + size - 1)
            self._mapped[slot] = mmap.mmap(self._file.fileno(), size, offset=begin)
        return self._mapped[slot]

    def _description(self, rank: int, slot: int) -> Any:
        """What the slot holds; None if there is no whole snapshot of this run."""
        self._file.seek(_place(rank, slot))
        try:
            description = load_plain(self._file, "a snapshot", "cpu", to_end=False)
        except CheckpointError:
            return None  # it is empty, or was being written
        return description if self._run.items() <= description.items() else None

    def _verify(self, step: int, shares: Mapping[int, _Held], sources: list[Source]) -> None:
        """Add the snapshot of `step`, whose `shares` are all in the memory of this host, after a check of every byte."""
        objects: dict[str, tuple[str, list[str]]] = {}
        places: dict[str, int] = {}
        digests: dict[str, str] = {}
        for _, held in sorted(shares.items()):
            description = self._description(held.rank, held.slot)
            memory = mmap.mmap(self._file.fileno(), held.end, offset=held.begin, prot=mmap.PROT_READ)
            with memory, memoryview(memory) as view, view[_FILES:] as files:
                found = checksum_of(files)
            if found != description["checksum"]:
                raise CheckpointError(
                    f"rank {held.rank}'s share in the snapshot of step {step} is damaged: its bytes do not match its checksum"
                )
            for name, (layout, file, begin, digest) in description["objects"].items():
                objects.setdefault(name, (layout, []))[1].append(file)
                places[file] = held.begin + begin
                if digests.setdefault(name, digest) != digest:
                    raise CheckpointError(
                        f"the snapshot of step {step} has other tensors of {name!r} by rank"
                    )

        def stored(file: str) -> Stored:
            name = f"{file} in the snapshot of step {step}"
            self._file.seek(places[file])
            return Stored(*tensor_file.read(self._file, name, to_end=False, checksum=False), name)

        for file in places:
            stored(file)
        sources.append(Source(f"the snapshot of step {step}", step, self._ranks, objects, stored))


def _place(rank: int, slot: int) -> int:
    return (_SLOTS * rank + slot) * _SLOT_BYTES

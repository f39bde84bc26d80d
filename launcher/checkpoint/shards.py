"""Splits the objects of a checkpoint into a share for each rank, and joins them again on any number of ranks."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ddpgrad
from ddpgrad import nn
from ddpgrad.core.errors import CheckpointError
from ddpgrad.distributed.tensor import DTensor
from ddpgrad.files.plain import pack, unpack
from ddpgrad.files.tensor_file import read, write
from ddpgrad.nn.parallel import DistributedDataParallel
from ddpgrad.optim import Optimizer

from .manifest import Entry, File, Manifest, file_name, write_file

ROWS = "rows of a DTensor, by the number of the first"
"""The only key of a dict that stands for a tensor, of which several files have rows."""


@dataclass(frozen=True)
class Share:
    """One rank's share of the object `name`: a file with `arrays`, named by their places in the state.

    layout: see `manifest.Entry`; dealt: by the name of each array of a 'split' object, the rank that writes it.
    """

    name: str
    layout: str
    file: str
    arrays: Mapping[str, np.ndarray]
    metadata: Mapping[str, str]
    dealt: Mapping[str, int]
    digest: str = ""
    """Of a 'split' object: the same on all ranks where they agree on names, types and shapes."""

    def snapshot(self, room: dict[tuple[str, str], np.ndarray]) -> Share:
        """The same with arrays of its own, so that it stays as it is while the original changes.

        room: by object and array, the arrays of the last snapshot, which is no longer needed. A copy into
        memory that the process already has is several times as fast.
        """
        arrays = {}
        for name, array in self.arrays.items():
            to = room.get((self.name, name))
            if to is None or (to.shape, to.dtype) != (array.shape, array.dtype):
                to = room[self.name, name] = np.empty(array.shape, array.dtype)
            np.copyto(to, array)
            arrays[name] = to
        return replace(self, arrays=arrays)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def write(self, folder: Path) -> File:
        """Make the file, on stable storage."""
        return write_file(folder / self.file, lambda file: write(file, self.arrays, self.metadata))


def whole(name: str, state: Any, layout: str) -> Share:
    """The share of the one rank that writes all of an object."""
    arrays, metadata = _pack(name, state)
    return Share(name, layout, file_name(name), arrays, metadata, {})


def shares(
    objects: Mapping[str, Any], own: Mapping[str, Any], rank: int, ranks: int, sharded: bool
) -> list[Share]:
    """The shares of `rank` of `ranks`: of `objects`, and of those per-rank states that every rank writes, `own`.

    An object that is spread over the ranks (it has a `sharded_state_dict`, or DTensors) is always written by all.
    With `sharded`, every rank writes about as much of the parameters and optimizer states, which are the same
    on all ranks. Rank 0 writes all else (buffers, plain data).
    """
    found = []
    for name, obj in objects.items():
        large = isinstance(obj, (nn.Module, Optimizer))
        if hasattr(obj, "sharded_state_dict"):
            state, spread = obj.sharded_state_dict(), True
        else:
            state = obj.state_dict() if large else None
            if spread := _has_dtensors(state):
                state = _by_rows(state, rank == 0)
        if spread:
            alone = ranks == 1
            found.append(
                whole(name, _whole_rows(state), "one") if alone else part(name, "parts", state, rank, ranks)
            )
        elif sharded and ranks > 1 and large:
            found.append(_split(name, obj, state, rank, ranks))
        elif rank == 0:
            if not large:
                state = obj.state_dict() if hasattr(obj, "state_dict") else obj
            found.append(whole(name, state, "one"))
    if ranks == 1:
        found += [whole(name, [state], "list") for name, state in own.items()]
    else:
        found += [part(name, "each", state, rank, ranks) for name, state in own.items()]
    return found


def _has_dtensors(state: Any) -> bool:
    if isinstance(state, dict):
        return any(map(_has_dtensors, state.values()))
    return isinstance(state, DTensor)


def _by_rows(state: Any, first: bool) -> Any:
    """A nested dict with {ROWS: {number of the first: rows}} for each DTensor. first: with all else, too."""
    if isinstance(state, DTensor):
        state = state.by_rows()
        rows = state.local_rows
        mine = first or (rows and state.is_first_replica)
        return {ROWS: {str(rows.start): state.part()} if mine else {}}
    if not isinstance(state, dict):
        return state
    kept = {k: _by_rows(v, first) for k, v in state.items() if first or isinstance(v, (dict, DTensor))}
    return type(state)(kept)


def _whole_rows(state: Any) -> Any:
    """The inverse of `_by_rows`, once the parts of all ranks are merged."""
    if not isinstance(state, dict):
        return state
    if state.keys() == {ROWS}:
        rows = state[ROWS]
        return ddpgrad.cat([rows[start] for start in sorted(rows, key=int)])
    return type(state)({key: _whole_rows(value) for key, value in state.items()})


def part(name: str, layout: str, state: Any, rank: int, ranks: int) -> Share:
    """The share of `rank` in an object of which every rank writes a file."""
    arrays, metadata = _pack(name, state)
    return Share(name, layout, file_name(name, rank, ranks), arrays, metadata, {})


def _split(name: str, obj: Any, state: Any, rank: int, ranks: int) -> Share:
    arrays, metadata = _pack(name, state)
    described = tuple((key, array.dtype.char, array.shape, array.nbytes) for key, array in arrays.items())
    dealt, digest = _dealt(described, frozenset(_differing(obj, arrays)), ranks)
    mine = {key: array for key, array in arrays.items() if dealt[key] == rank}
    if rank:
        metadata = {"format": "ddpgrad part"}
    return Share(name, "split", file_name(name, rank, ranks), mine, metadata, dealt, digest)


@functools.lru_cache(maxsize=8)  # a job has few objects, and deals them alike in every snapshot
def _dealt(
    described: tuple[tuple[str, str, tuple[int, ...], int], ...], differing: frozenset[str], ranks: int
) -> tuple[Mapping[str, int], str]:
    """`_deal` of arrays with (name, type, shape, bytes), and a digest of these."""
    digest = hashlib.sha256(repr(sorted(described)).encode()).hexdigest()
    return _deal({key: size for key, _, _, size in described}, differing, ranks), digest


def _differing(obj: Any, names: Iterable[str]) -> set[str]:
    """The arrays among `names`, in the state of `obj`, that may differ between ranks.

    These are a module's buffers: until the next forward every rank has its own, and rank 0's count.
    """
    if isinstance(obj, Optimizer):
        return set()
    inner = obj.module if isinstance(obj, DistributedDataParallel) else obj
    return set(names) - {name for name, _ in inner.named_parameters()}


def _deal(sizes: Mapping[str, int], differing: Set[str], ranks: int) -> dict[str, int]:
    """By array, the rank that writes it: rank 0 for `differing`; for others, the largest first, the one with the least."""
    dealt = {name: 0 for name in sizes if name in differing}
    load = [sum(sizes[name] for name in dealt)] + [0] * (ranks - 1)
    for name in sorted(sizes.keys() - differing, key=lambda name: (-sizes[name], name)):
        rank = load.index(min(load))
        dealt[name] = rank
        load[rank] += sizes[name]
    return dealt


def entry(folder: Path, share: Share, written: Sequence[Mapping[str, File]]) -> Entry:
    """The manifest's entry for the object of rank 0's `share`, given the files of each rank; writes its index."""
    if share.layout in ("one", "list"):
        return Entry(share.layout, {share.file: written[0][share.name]})
    ranks = len(written)
    files = {file_name(share.name, rank, ranks): written[rank][share.name] for rank in range(ranks)}
    for rank, name in enumerate(files):
        if not (folder / name).exists():
            raise CheckpointError(
                f"rank 0 does not see {folder / name}, which rank {rank} wrote: the folder must be shared"
            )
    if share.layout == "split":
        parts = list(files)
        table = {name: parts[rank] for name, rank in share.dealt.items()}
        size = {"total_size": sum(file.size for file in files.values())}
        # As files in several parts have it on the Hub, so that other programs find the arrays.
        text = json.dumps({"metadata": size, "weight_map": table}, indent=1) + "\n"
        name = f"{share.name}.safetensors.index.json"
        files[name] = write_file(folder / name, lambda file: file.write(text.encode()))
    return Entry(share.layout, files)


class Stored(NamedTuple):
    """What a file of a share holds, with the name that errors call the file."""

    arrays: dict[str, np.ndarray]
    metadata: dict[str, str]
    name: str

    def state(self) -> Any:
        """The share, on the CPU."""
        return unpack(self.arrays, self.metadata, self.name, "cpu")


@dataclass(frozen=True)
class Source:
    """A whole checkpoint to read from, wherever it lies. It is of the time after `step`, of `world_size` ranks.

    objects: by name the layout (see `manifest.Entry`) and the files, those of several ranks in the order of ranks.
    """

    name: str
    step: int
    world_size: int
    objects: Mapping[str, tuple[str, Sequence[str]]]
    read: Callable[[str], Stored]

    def load(self, name: str, rank: int | None = None) -> Any:
        """The state of an object, on the CPU; of one with a state for every rank those by rank, or that of `rank`.

        A rank that was not there gets rank 0's.
        """
        if name not in self.objects:
            raise CheckpointError(f"{self.name} holds no {name!r}; it holds {', '.join(self.objects)}")
        layout, files = self.objects[name]
        if layout == "split":
            return _join([self.read(file) for file in files])
        if layout == "parts":
            state = self.read(files[0]).state()
            for file in files[1:]:
                state = _merged(state, self.read(file).state())
            return _whole_rows(state)
        if layout == "each":
            if rank is not None:
                return self.read(files[rank if rank < len(files) else 0]).state()
            return [self.read(file).state() for file in files]
        stored = self.read(files[0])
        state = stored.state()
        if layout == "list":
            if not isinstance(state, list) or not state:
                raise CheckpointError(f"{stored.name} holds no list of the states of ranks")
            if rank is not None:
                return state[rank if rank < len(state) else 0]
        return state


def in_folder(folder: Path, manifest: Manifest) -> Source:
    """The checkpoint in `folder`."""
    objects = {name: (entry.layout, entry.tensor_files) for name, entry in manifest.objects.items()}

    def stored(name: str) -> Stored:
        with open(folder / name, "rb") as file:
            return Stored(*read(file, str(folder / name), to_end=True), str(folder / name))

    return Source(f"checkpoint {folder}", manifest.step, manifest.world_size, objects, stored)


def _join(parts: Sequence[Stored]) -> Any:
    arrays: dict[str, np.ndarray] = {}
    for part in parts:
        arrays |= part.arrays
    return parts[0]._replace(arrays=arrays).state()


def _merged(first: Any, second: Any) -> Any:
    """The union of two nested dicts; where both hold the same, the first counts."""
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return first
    both = {key: _merged(value, second[key]) if key in second else value for key, value in first.items()}
    return type(first)({**both, **{key: value for key, value in second.items() if key not in first}})


def _pack(name: str, state: Any) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    try:
        return pack(state)
    except CheckpointError as error:
        raise CheckpointError(f"{name}: {error}") from error

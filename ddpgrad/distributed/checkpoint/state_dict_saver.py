"""`save` and `async_save`: each rank writes its rows of what is divided, the first that has it writes all else."""

from __future__ import annotations

import copy
import os
import sys
import threading
import warnings
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from ...backend.dtype import BY_NAME
from ...core.errors import CheckpointError
from ...core.rank_local import RankLocal
from ...core.tensor import Tensor
from ...launcher.checkpoint import shards
from ...launcher.checkpoint.manifest import File
from ...launcher.checkpoint.shards import ROWS, Share
from ..process_group import ProcessGroup, get_process_group_ranks, new_group, resolve
from . import metadata
from .api import CheckpointException, Crew
from .default_planner import DefaultSavePlanner, checked
from .filesystem import STATE, FileSystemWriter, place_of
from .leaves import describe, is_divided, leaves, local, states, written
from .metadata import Metadata


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: FileSystemWriter | None = None,
    planner: DefaultSavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Write `state_dict` into the folder `checkpoint_id`, which holds nothing else, and return what it holds.

    All ranks of `process_group` call it; with no_dist this rank acts alone. A state dict nests dicts with tensors, numbers,
    strings and lists; at its top objects with `state_dict` and `load_state_dict` may stand as they are. Of a DTensor each
    rank writes its rows; what several ranks have counts as alike, and the first of them writes it. The folder becomes visible
    whole; a checkpoint that was there is replaced. CheckpointException on all ranks if one fails.
    """
    crew = Crew.of(process_group, no_dist)
    begun = _Save(crew, state_dict, checkpoint_id, storage_writer, planner)
    _wait_for(_last.get())
    return begun.finish(crew)


def save_state_dict(
    state_dict: dict[str, Any],
    storage_writer: FileSystemWriter,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: DefaultSavePlanner | None = None,
) -> Metadata:
    """`save`, as older programs call it."""
    warnings.warn("`save_state_dict` is deprecated. Please use `save` instead.", FutureWarning, stacklevel=2)
    return save(
        state_dict,
        storage_writer=storage_writer,
        planner=planner,
        process_group=process_group,
        no_dist=no_dist,
    )


def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: FileSystemWriter | None = None,
    planner: DefaultSavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    async_checkpointer_type: Any = None,
    async_stager: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future[Metadata]:
    """As `save`, in a thread of each rank; returns when the tensors are copied, and training may go on.

    `result()` of the Future returns when the checkpoint is visible, and raises the error of any rank. One checkpoint is
    written after the other.
    """
    if async_stager is not None or str(getattr(async_checkpointer_type, "value", "thread")) != "thread":
        raise NotImplementedError(
            "async_save: expected async_stager=None and a checkpointer that is a thread: copies are kept in this process's memory"
        )
    crew = Crew.of(process_group, no_dist)
    begun = _Save(crew, state_dict, checkpoint_id, storage_writer, planner)
    begun.share = begun.share.snapshot({})
    beside = crew._replace(group=_group_of_threads(process_group)) if crew.size > 1 else crew
    before, future = _last.get(), Future[Metadata]()

    def write() -> None:
        _wait_for(before)
        try:
            future.set_result(begun.finish(beside))
        except CheckpointError as error:
            # The program may never ask.
            print(f"async_save: {error}", file=sys.stderr)
            future.set_exception(error)
        except BaseException as error:  # of the collectives: the rank fails, whoever asks
            future.set_exception(error)
            raise

    thread = threading.Thread(target=write, name="checkpoint writer")
    _last.set(thread)
    thread.start()
    return future


class _Save:
    """A checkpoint that is being written: this rank's share of it."""

    def __init__(
        self,
        crew: Crew,
        state_dict: dict[str, Any],
        checkpoint_id: str | os.PathLike[str] | None,
        writer: FileSystemWriter | None,
        planner: DefaultSavePlanner | None,
    ) -> None:
        checked(planner, DefaultSavePlanner)
        # A copy, which stays when the program gives its writer another path.
        self._writer: FileSystemWriter = copy.copy(place_of(checkpoint_id, writer, FileSystemWriter))
        state: dict[str, Any] = {}

        def take() -> Any:
            state.update(states(state_dict))
            return {key: describe(leaf.value) for key, leaf in leaves(state).items()}

        described = crew.all(take)
        first = _first_owners(described)
        self._metadata = _metadata(described)
        shares: list[Share] = []
        crew.all(lambda: shares.append(_share(state, first, crew)))
        self.share = shares[0]

    def finish(self, crew: Crew) -> Metadata:
        """Write the files of all ranks, and make the checkpoint visible."""
        writer = self._writer
        hidden = Path(crew.first(lambda: str(writer.begin())))
        try:
            files = crew.all(lambda: asdict(self.share.write(hidden)))
        except BaseException:
            if crew.rank == 0:
                writer.discard(hidden)
            raise

        def commit() -> None:
            try:
                writer.commit(hidden, self.share, [{STATE: File(**file)} for file in files])
            finally:
                writer.discard(hidden)

        crew.first(commit)
        return self._metadata


def _first_owners(described: list[dict[str, list[Any]]]) -> dict[str, int]:
    """By key, the first rank that has it; CheckpointException where ranks differ in the type or the shape."""
    first: dict[str, int] = {}
    for rank, found in enumerate(described):
        for key, words in found.items():
            other = first.setdefault(key, rank)
            if described[other][key] != words:
                raise CheckpointException(
                    f"the state dict has {key!r} as {_in_words(described[other][key])} on rank {other}, and as "
                    f"{_in_words(words)} on rank {rank}: what all ranks save must be alike on all"
                )
    return first


def _in_words(words: list[Any]) -> str:
    return "plain data" if len(words) == 1 else f"{words[0]} of {words[1]} with shape {words[2]}"


def _share(state: dict[str, Any], first: dict[str, int], crew: Crew) -> Share:
    """What this rank writes: its rows, and what it is the first to have."""

    def write(key: str, value: Any) -> tuple[bool, Any]:
        mine = first.get(key, 0) == crew.rank
        if not isinstance(value, Tensor):
            return mine, value
        tensor, rows = local(value)
        if is_divided(value):
            return mine or (len(rows) > 0 and value.is_first_replica), {ROWS: {str(rows.start): tensor}}
        return mine, tensor

    return shards.part(STATE, "parts", written(state, write), crew.rank, crew.size)


def _metadata(described: list[dict[str, list[Any]]]) -> Metadata:
    words = {key: value for found in reversed(described) for key, value in found.items()}
    return Metadata(
        {key: metadata.of(BY_NAME[w[1]], w[2]) if len(w) > 1 else metadata.of() for key, w in words.items()}
    )


_last: RankLocal[threading.Thread | None] = RankLocal(lambda: None)
"""The thread that writes, or has written, the last checkpoint of a rank."""
_groups: RankLocal[WeakKeyDictionary[ProcessGroup, ProcessGroup]] = RankLocal(WeakKeyDictionary)
"""By a group of ranks, the one in which their threads meet, so that they come between no collectives of the training."""


def _wait_for(thread: threading.Thread | None) -> None:
    if thread is not None:
        thread.join()


def _group_of_threads(group: ProcessGroup | None) -> ProcessGroup:
    group = resolve(group)
    if group not in _groups.get():
        ranks = get_process_group_ranks(group)
        _groups.get()[group] = new_group(ranks, use_local_synchronization=True)
    return _groups.get()[group]

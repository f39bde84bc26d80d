"""`save` and `async_save`: a state dict, of which each rank has a part, into a storage."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any, overload
from weakref import WeakKeyDictionary

from ...core.errors import CheckpointError
from ...core.rank_local import RankLocal
from ..process_group import ProcessGroup, get_process_group_ranks, is_initialized, new_group, resolve
from ..ranks import world
from ._storage_utils import _storage_setup
from .default_planner import DefaultSavePlanner
from .filesystem import FileSystemWriter
from .metadata import Metadata
from .planner import SavePlan, SavePlanner
from .staging import AsyncStager, BlockingAsyncStager
from .stateful import Stateful
from .storage import StorageWriter, WriteResult
from .utils import _DistWrapper


class AsyncCheckpointerType(Enum):
    """What writes while training goes on."""

    THREAD = "thread"
    PROCESS = "process"


@dataclass
class AsyncSaveResponse:
    """What `async_save` returns where the stager copies in a thread of its own."""

    staging_completion: Future[None]
    upload_completion: Future[Metadata]


def save(
    state_dict: dict[str, Any],
    *args: Any,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Write `state_dict` into the folder `checkpoint_id`, or by `storage_writer`, and return what it holds.

    All ranks of `process_group` call it; with no_dist this rank acts alone. A state dict nests dicts and lists with tensors
    and other objects; at its top objects with `state_dict` and `load_state_dict` may stand as they are. Of a DTensor each
    rank writes its part; what several ranks have counts as alike, and one of them writes it. PyTorch reads the files. A
    checkpoint that was there is replaced when the new one is whole. With use_collectives=False each rank describes what it
    writes itself. CheckpointException on all ranks if one fails.
    """
    _wait_for(_last.get())
    if args:  # as older programs call it
        (storage_writer,) = args
    return _save(state_dict, checkpoint_id, storage_writer, planner, process_group, no_dist, use_collectives)


def _save(
    state_dict: Mapping[str, Any],
    checkpoint_id: str | os.PathLike[str] | None,
    storage_writer: StorageWriter | None,
    planner: SavePlanner | None,
    process_group: ProcessGroup | None,
    no_dist: bool,
    use_collectives: bool,
) -> Metadata:
    writer = _storage_setup(storage_writer, checkpoint_id, FileSystemWriter)
    ranks = _DistWrapper(process_group, is_initialized() and not no_dist, 0)
    states: dict[str, Any] = {}
    ranks.all_gather("state", lambda: states.update(_stateful_to_state_dict(state_dict)))
    return _save_by(ranks, states, writer, planner, use_collectives)


def save_state_dict(
    state_dict: dict[str, Any],
    storage_writer: StorageWriter,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
) -> Metadata:
    """`save`, as older programs call it."""
    warnings.warn("`save_state_dict` is deprecated. Please use `save` instead.", FutureWarning, stacklevel=2)
    storage_writer.reset()
    return _save_state_dict(state_dict, storage_writer, process_group, coordinator_rank, no_dist, planner)


@overload
def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: FileSystemWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future[Metadata]: ...
@overload
def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: AsyncStager | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future[Metadata] | AsyncSaveResponse: ...
def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: AsyncStager | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future[Metadata] | AsyncSaveResponse:
    """As `save`, in a thread of each rank; returns when the tensors are copied, and training may go on.

    async_stager: what copies them, by default `storage_writer`, if it is one. `result()` of the Future returns when the
    checkpoint is visible, and raises the error of any rank. One checkpoint is written after the other.
    """
    if async_checkpointer_type is not AsyncCheckpointerType.THREAD:
        raise NotImplementedError(
            "async_save: expected async_checkpointer_type=AsyncCheckpointerType.THREAD: copies are kept in this process's memory"
        )
    stager = async_stager or (
        storage_writer if isinstance(storage_writer, AsyncStager) else BlockingAsyncStager()
    )
    ranks = _DistWrapper(process_group, is_initialized() and not no_dist, 0)
    states: dict[str, Any] = {}
    ranks.all_gather("state", lambda: states.update(_stateful_to_state_dict(state_dict)))
    before = _last.get()
    if getattr(stager, "cache_staged_state_dict", False):
        _wait_for(before)  # which writes out of the memory that is copied into
    copied = stager.stage(states)
    group = _group_of_threads(process_group) if ranks.get_world_size() > 1 else process_group
    upload = _Upload()

    def write() -> None:
        _wait_for(before)
        try:
            staged = copied.result() if isinstance(copied, Future) else copied
            upload.set_result(
                _save(staged, checkpoint_id, storage_writer, planner, group, no_dist, use_collectives)
            )
        except CheckpointError as error:
            # At once: the program may not ask before its end.
            print(f"async_save: {error}", file=sys.stderr)
            upload.unasked.append(error)
            upload.set_exception(error)
        except BaseException as error:  # of the collectives: the rank fails, whoever asks
            upload.set_exception(error)
            raise

    thread = threading.Thread(target=write, name="checkpoint writer")
    _last.set(thread)
    world.current().last_checks.add(functools.partial(_unasked, upload.unasked, thread), upload)
    thread.start()
    if isinstance(copied, Future):
        return AsyncSaveResponse(_without_result(copied), upload)
    if stager.should_synchronize_after_execute:
        stager.synchronize_staging()
    return upload


class _Upload(Future[Metadata]):
    """What `async_save` returns. unasked: its error, as long as nobody has asked for it."""

    def __init__(self) -> None:
        super().__init__()
        self.unasked: list[CheckpointError] = []

    def result(self, timeout: float | None = None) -> Metadata:
        error = self.exception(timeout)
        if error is not None:
            raise error
        return super().result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        error = super().exception(timeout)
        self.unasked.clear()
        return error


def _unasked(errors: list[CheckpointError], thread: threading.Thread) -> CheckpointError | None:
    """The error that nobody has asked for."""
    if thread is not threading.current_thread():
        thread.join()
    return errors[0] if errors else None


def _without_result(copied: Future[Any]) -> Future[None]:
    done = Future[None]()

    def settle(future: Future[Any]) -> None:
        error = future.exception()
        done.set_result(None) if error is None else done.set_exception(error)

    copied.add_done_callback(settle)
    return done


def _stateful_to_state_dict(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """`state_dict` with the states of its Stateful objects in their places."""
    found: dict[str, Any] = {}
    for key, value in state_dict.items():
        found[key] = value
        if isinstance(value, Stateful) and not isinstance(value, type):
            try:
                found[key] = value.state_dict()
            except Exception as error:
                raise CheckpointError(
                    f"the state_dict() of {key!r}, a {type(value).__name__}, failed: {type(error).__name__}: {error}"
                ) from error
    return found


def _save_state_dict(
    state_dict: dict[str, Any],
    storage_writer: StorageWriter,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
    use_collectives: bool = True,
) -> Metadata:
    ranks = _DistWrapper(process_group, is_initialized() and not no_dist, coordinator_rank)
    return _save_by(ranks, state_dict, storage_writer, planner, use_collectives)


def _save_by(
    ranks: _DistWrapper,
    state_dict: dict[str, Any],
    writer: StorageWriter,
    planner: SavePlanner | None,
    use_collectives: bool,
) -> Metadata:
    plans = planner or DefaultSavePlanner()
    described: list[Metadata] = []

    def local() -> SavePlan:
        if takes(plans.set_up_planner, "storage_meta"):
            plans.set_up_planner(
                state_dict=state_dict, storage_meta=writer.storage_meta(), is_coordinator=ranks.is_coordinator
            )
        else:  # of programs for older versions
            plans.set_up_planner(state_dict, ranks.is_coordinator)  # type: ignore[arg-type]
        options = {"rank": ranks.rank, "use_collectives": use_collectives}
        writer.set_up_storage_writer(
            ranks.is_coordinator, **(options if takes(writer.set_up_storage_writer, "kwargs") else {})
        )
        return writer.prepare_local_plan(plans.create_local_plan())

    def together(found: list[SavePlan]) -> list[SavePlan]:
        made, metadata = plans.create_global_plan(found)
        described.append(metadata)
        return writer.prepare_global_plan(made)

    def write() -> list[WriteResult]:
        writes = writer.write_data(plans.finish_plan(plan), plans)
        writes.wait()
        return writes.value()

    def finish(results: list[list[WriteResult]]) -> Metadata:
        writer.finish(metadata=described[0], results=results)
        return described[0]

    if not use_collectives:
        alone = _DistWrapper(None, False, 0)
        plan = alone.reduce_scatter("plan", local, together)
        return _discarding(
            writer, lambda: ranks.all_gather("write", lambda: alone.all_reduce("write", write, finish))
        )[ranks.rank]
    plan = ranks.reduce_scatter("plan", local, together)
    return _discarding(writer, lambda: ranks.all_reduce("write", write, finish))


def _discarding(writer: StorageWriter, write: Callable[[], Any]) -> Any:
    """What `write` returns; where it fails, files of a checkpoint that did not come about are deleted."""
    try:
        return write()
    except BaseException:
        if isinstance(writer, FileSystemWriter):
            writer.discard()
        raise


def takes(method: Callable[..., Any], name: str) -> bool:
    """Whether a method, of a class of the program perhaps, has the parameter `name`."""
    return name in inspect.signature(method).parameters


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

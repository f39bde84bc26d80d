"""`load`: a checkpoint into the tensors of a state dict, whoever has which parts."""

from __future__ import annotations

import os
import warnings
from typing import Any

from ...core.errors import CheckpointError
from ..process_group import ProcessGroup, is_initialized
from ._storage_utils import _storage_setup
from .default_planner import DefaultLoadPlanner, _EmptyStateDictLoadPlanner
from .filesystem import FileSystemReader
from .metadata import Metadata
from .planner import LoadPlan, LoadPlanner
from .state_dict_saver import _stateful_to_state_dict, takes
from .storage import StorageReader
from .utils import _DistWrapper


def load(
    state_dict: dict[str, Any],
    *args: Any,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: StorageReader | None = None,
    planner: LoadPlanner | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
) -> None:
    """Load the checkpoint in the folder `checkpoint_id`, or of `storage_reader`, into `state_dict`, in place.

    Tensors are overwritten, other objects are replaced, those with `load_state_dict` get their state by that. Each rank
    reads the parts that it has, in whatever parts they were written, by PyTorch or by `save`. What the checkpoint holds
    besides is left out. Every shape is checked, and every byte that `save` wrote, on all ranks, before anything is
    changed. CheckpointException on all ranks if the checkpoint is damaged, or does not fit on one.
    """
    if args:  # as older programs call it
        (storage_reader,) = args
    reader = _storage_setup(storage_reader, checkpoint_id, FileSystemReader)
    ranks = _DistWrapper(process_group, is_initialized() and not no_dist, 0)
    states: dict[str, Any] = {}
    ordered = {key: state_dict[key] for key in sorted(state_dict, key=str)}
    ranks.all_gather("state", lambda: states.update(_stateful_to_state_dict(ordered)))
    asked = [key for key in states if states[key] is not state_dict[key]]
    _load_by(ranks, states, reader, planner)

    def give() -> None:
        for key in asked:
            try:
                state_dict[key].load_state_dict(states[key])
            except Exception as error:
                raise CheckpointError(
                    f"the load_state_dict() of {key!r}, a {type(state_dict[key]).__name__}, failed: {type(error).__name__}: {error}"
                ) from error

    state_dict.update({key: value for key, value in states.items() if key not in asked})
    if any(ranks.all_gather("state", lambda: bool(asked))):
        ranks.all_gather("state", give)


def load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: StorageReader,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    """`load`, as older programs call it."""
    warnings.warn("`load_state_dict` is deprecated. Please use `load` instead.", FutureWarning, stacklevel=2)
    storage_reader.reset()
    _load_state_dict(state_dict, storage_reader, process_group, coordinator_rank, no_dist, planner)


def _load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: StorageReader,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    ranks = _DistWrapper(process_group, is_initialized() and not no_dist, coordinator_rank)
    _load_by(ranks, state_dict, storage_reader, planner)


def _load_by(
    ranks: _DistWrapper, state_dict: dict[str, Any], reader: StorageReader, planner: LoadPlanner | None
) -> None:
    plans = planner or DefaultLoadPlanner()
    each: list[bool] = []  # whether each rank described what it wrote itself

    def local() -> LoadPlan:
        metadata = _described(reader, ranks.rank, each)
        plans.set_up_planner(state_dict, metadata, ranks.is_coordinator)
        options = {"rank": ranks.rank, "use_collectives": not each}
        reader.set_up_storage_reader(
            metadata,
            ranks.is_coordinator,
            **(options if takes(reader.set_up_storage_reader, "kwargs") else {}),
        )
        return reader.prepare_local_plan(plans.create_local_plan())

    def together(found: list[LoadPlan]) -> list[LoadPlan]:
        return reader.prepare_global_plan(plans.create_global_plan(found))

    def read() -> None:
        reader.read_data(plans.finish_plan(plan), plans).wait()

    plan = ranks.reduce_scatter("plan", local, together)
    ranks.all_gather("read", read)


def _described(reader: StorageReader, rank: int, each: list[bool]) -> Metadata:
    """The description of the checkpoint, or of this rank's part, where there is none of the whole."""
    try:
        return reader.read_metadata()
    except Exception as error:
        if not takes(reader.read_metadata, "kwargs"):
            raise
        try:
            own = reader.read_metadata(rank=rank)
        except Exception:
            raise error from None
        each.append(True)
        return own


def _load_state_dict_from_keys(
    keys: set[str] | str | None = None,
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: StorageReader | None = None,
    process_group: ProcessGroup | None = None,
) -> dict[str, Any]:
    """The state dict in a checkpoint, with whole tensors, or the part of it that `keys` name."""
    found: dict[str, Any] = {}
    planner = _EmptyStateDictLoadPlanner({keys} if isinstance(keys, str) else keys)
    reader = _storage_setup(storage_reader, checkpoint_id, FileSystemReader)
    _load_state_dict(found, reader, process_group, planner=planner)
    return found

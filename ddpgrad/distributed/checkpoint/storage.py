"""Where a checkpoint lies: the classes whose methods write and read it.

`save` and `load` call the methods of one storage on each rank, in the order in which they stand here.
"""

from __future__ import annotations

import abc
import os
from dataclasses import dataclass
from typing import Any

from ...futures import Future
from .metadata import Metadata, MetadataIndex, StorageMeta
from .planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner


@dataclass(frozen=True)
class WriteResult:
    """What became of an item; storage_data: where it lies."""

    index: MetadataIndex
    size_in_bytes: int
    storage_data: Any


class StorageWriter(abc.ABC):
    """Writes a checkpoint."""

    @abc.abstractmethod
    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """On all ranks: another checkpoint begins, with a name or in the place of the last."""

    @abc.abstractmethod
    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """On all ranks. kwargs: `rank` and `use_collectives`, for those whose parameters have that name."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """On all ranks: what the storage has to say of this one's plan."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """On the first rank: the same of all plans."""

    @abc.abstractmethod
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """On all ranks: write the items, whose tensors and bytes `planner.resolve_data` gives."""

    @abc.abstractmethod
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the first rank: all is written; make the checkpoint visible."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this is a storage for checkpoints of that name."""

    def storage_meta(self) -> StorageMeta | None:
        """What the planner is told of the storage."""
        return None


class StorageReader(abc.ABC):
    """Reads a checkpoint."""

    @abc.abstractmethod
    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """On all ranks: a checkpoint is to be read, by its name or from the place of the last."""

    @abc.abstractmethod
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """On all ranks: the description of the checkpoint."""

    @abc.abstractmethod
    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """On all ranks. kwargs: `rank` and `use_collectives`, for those whose parameters have that name."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """On all ranks: what the storage has to say of this one's plan."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """On the first rank: the same of all plans."""

    @abc.abstractmethod
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """On all ranks: read the items, into the tensors of `planner.resolve_tensor` and by `planner.load_bytes`."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this is a storage for checkpoints of that name."""

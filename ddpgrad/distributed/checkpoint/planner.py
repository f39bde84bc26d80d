"""How a checkpoint is planned: what each rank writes or reads, and the classes whose methods decide it.

`save` and `load` call the methods of one planner on each rank, in the order in which they stand here. Those that make plans for
all ranks are called on the first one.
"""

from __future__ import annotations

import abc
import io
from dataclasses import dataclass
from enum import Enum, auto
from math import prod
from typing import Any

from ...core.size import Size
from ...core.tensor import Tensor
from .metadata import (
    STATE_DICT_TYPE,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
)


class WriteItemType(Enum):
    """TENSOR: a whole tensor; SHARD: a block of one; BYTE_IO: another object, as bytes."""

    TENSOR = auto()
    SHARD = auto()
    BYTE_IO = auto()


class LoadItemType(Enum):
    """TENSOR: a block of a tensor; BYTE_IO: another object, as bytes."""

    TENSOR = auto()
    BYTE_IO = auto()


@dataclass(frozen=True)
class BytesIOWriteData:
    """The size of an object in bytes."""

    nbytes: int


@dataclass(frozen=True)
class TensorWriteData:
    """A block of a tensor; size: the shape of the whole."""

    chunk: ChunkStorageMetadata
    properties: TensorProperties
    size: Size


@dataclass(frozen=True)
class WriteItem:
    """Something to be written."""

    index: MetadataIndex
    type: WriteItemType
    bytes_io_data: BytesIOWriteData | None = None
    tensor_data: TensorWriteData | None = None

    def tensor_storage_size(self) -> int | None:
        """The bytes of the whole tensor; None for another object."""
        if self.tensor_data is None:
            return None
        return prod(self.tensor_data.size) * self.tensor_data.properties.dtype.itemsize


@dataclass(frozen=True)
class ReadItem:
    """A block of `lengths` to be copied, from `storage_offsets` in what is stored to `dest_offsets` in what is there."""

    type: LoadItemType
    dest_index: MetadataIndex
    dest_offsets: Size
    storage_index: MetadataIndex
    storage_offsets: Size
    lengths: Size


@dataclass(frozen=True)
class SavePlan:
    """What a rank writes, with what the storage and the planner say of it."""

    items: list[WriteItem]
    storage_data: Any = None
    planner_data: Any = None
    usable: bool = True


@dataclass
class LoadPlan:
    """What a rank reads, with what the storage and the planner say of it."""

    items: list[ReadItem]
    storage_data: Any = None
    planner_data: Any = None


class SavePlanner(abc.ABC):
    """Decides what is written. Most programs override methods of `DefaultSavePlanner`."""

    @abc.abstractmethod
    def set_up_planner(
        self,
        state_dict: STATE_DICT_TYPE,
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """On all ranks: take `state_dict`."""

    @abc.abstractmethod
    def create_local_plan(self) -> SavePlan:
        """On all ranks: what this one could write."""

    @abc.abstractmethod
    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """On the first rank: what each one writes, and the description of the checkpoint."""

    @abc.abstractmethod
    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """On all ranks: the last change to what this one writes."""

    @abc.abstractmethod
    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """The tensor or the bytes of an item; several threads may call it."""


class LoadPlanner:
    """Decides what is read. Most programs override methods of `DefaultLoadPlanner`."""

    @abc.abstractmethod
    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """On all ranks: take the `state_dict` to be filled."""

    @abc.abstractmethod
    def create_local_plan(self) -> LoadPlan:
        """On all ranks: what this one reads."""

    @abc.abstractmethod
    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """On the first rank: what each one reads."""

    @abc.abstractmethod
    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """On all ranks: the last change to what this one reads."""

    @abc.abstractmethod
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Take an object that is no tensor."""

    def resolve_bytes(self, read_item: ReadItem) -> io.BytesIO:
        """Where bytes may be put instead of `load_bytes`."""
        raise NotImplementedError("LoadPlanner.resolve_bytes is not implemented")

    @abc.abstractmethod
    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """The tensor, of the shape `read_item.lengths`, into which a block is copied."""

    @abc.abstractmethod
    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """Called when `tensor`, which `resolve_tensor` returned, is filled."""

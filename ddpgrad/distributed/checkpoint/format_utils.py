"""A checkpoint as one file of `torch.save`, and such a file as a checkpoint; `python -m` converts the one into the other."""

from __future__ import annotations

import argparse
import os
from typing import Any

from ...core import environment
from ...core.errors import CheckpointError
from ...core.size import Size
from ...core.tensor import Tensor
from ...files.serialization import load, save
from ...futures import Future, finished
from ...ops.creation.factories import empty
from ..collectives import broadcast
from ..messages import all_gather_object, broadcast_object_list
from ..process_group import get_rank, get_world_size
from .blocks import narrow_tensor_by_index
from .default_planner import DefaultLoadPlanner, _EmptyStateDictLoadPlanner
from .filesystem import FileSystemReader, FileSystemWriter
from .metadata import ChunkStorageMetadata, Metadata, TensorProperties, TensorStorageMetadata
from .nested import flatten_state_dict
from .planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from .planner_helpers import fill
from .state_dict_loader import _load_state_dict
from .state_dict_saver import _save_state_dict
from .storage import StorageReader

Name = str | os.PathLike[str]


class BroadcastingTorchSaveReader(StorageReader):
    """Reads a file of `torch.save` on one rank and gives each its part. It goes with `DynamicMetaLoadPlanner`, for tensors only."""

    def __init__(self, checkpoint_id: Name | None = None, coordinator_rank: int = 0) -> None:
        self.checkpoint_id, self.coordinator_rank = checkpoint_id, coordinator_rank

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return Metadata({})  # the planner makes it of the state dict

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        if self.checkpoint_id is None:
            raise AssertionError("BroadcastingTorchSaveReader needs checkpoint_id, the file that is read")
        if is_coordinator and get_rank() != self.coordinator_rank:
            raise AssertionError(
                f"Coordinator rank mismatch: expected {self.coordinator_rank}, got {get_rank()}"
            )
        self.is_coordinator = is_coordinator

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        state: dict[str, Any] = {}
        if self.is_coordinator:
            assert self.checkpoint_id is not None
            state = load(self.checkpoint_id, map_location="cpu", weights_only=not environment.as_torch())
            if getattr(planner, "flatten_state_dict", True):
                state, _ = flatten_state_dict(state)
        wanted: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            if item.type is LoadItemType.BYTE_IO:
                raise RuntimeError(
                    f"Non-tensor value identified at {item.storage_index.fqn}. BroadcastingTorchSaveReader only supports loading "
                    "Tensors."
                )
            wanted.setdefault(item.storage_index.fqn, []).append(item)
        keys: list[Any] = [None] * get_world_size()
        all_gather_object(keys, sorted(wanted))  # a rank may have no part of a tensor
        for key in sorted({key for each in keys for key in each}):
            whole = self._given(key, state)
            for item in wanted.get(key, ()):
                block = narrow_tensor_by_index(whole, item.storage_offsets, item.lengths)
                fill(planner, item, block, self.checkpoint_id)
        return finished(None)

    def _given(self, key: str, state: dict[str, Any]) -> Tensor:
        """The tensor `key` in the `state` that the coordinator has, on all ranks."""
        found = [(state[key].shape, state[key].dtype) if key in state else None]
        broadcast_object_list(found, src=self.coordinator_rank)
        if found[0] is None:
            raise CheckpointError(f"{self.checkpoint_id} has no {key!r}")
        shape, dtype = found[0]
        whole = state[key] if self.is_coordinator else empty(shape, dtype=dtype)
        broadcast(whole, src=self.coordinator_rank)
        return whole

    def reset(self, checkpoint_id: Name | None = None) -> None:
        self.checkpoint_id = checkpoint_id

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Name) -> bool:
        return os.path.isfile(checkpoint_id)


class DynamicMetaLoadPlanner(DefaultLoadPlanner):
    """Describes what is to be read by the state dict itself, for files without a description."""

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        super().set_up_planner(state_dict, metadata, is_coordinator)
        found: dict[str, Any] = {}
        for key, tensor in self.state_dict.items():
            if not isinstance(tensor, Tensor):
                raise RuntimeError(
                    f"Non-tensor value identified at {key}. DynamicMetaLoadPlanner only supports loading Tensors."
                )
            properties = TensorProperties(dtype=tensor.dtype)
            block = ChunkStorageMetadata(Size([0] * tensor.ndim), tensor.size())
            found[key] = TensorStorageMetadata(properties, tensor.size(), [block])
        self.metadata = Metadata(found)


def dcp_to_torch_save(dcp_checkpoint_dir: Name, torch_save_path: Name) -> None:
    """Write the nested state dict of a checkpoint, with whole tensors, by `torch.save`. One process calls it."""
    state: dict[str, Any] = {}
    _load_state_dict(
        state,
        storage_reader=FileSystemReader(dcp_checkpoint_dir),
        planner=_EmptyStateDictLoadPlanner(),
        no_dist=True,
    )
    save(state, torch_save_path)


def torch_save_to_dcp(torch_save_path: Name, dcp_checkpoint_dir: Name) -> None:
    """Write the state dict in a file of `torch.save` as a checkpoint. One process calls it."""
    state = load(torch_save_path, map_location="cpu", weights_only=not environment.as_torch())
    _save_state_dict(state, storage_writer=FileSystemWriter(dcp_checkpoint_dir), no_dist=True)


def _convert() -> None:
    modes = {"torch_to_dcp": torch_save_to_dcp, "dcp_to_torch": dcp_to_torch_save}
    parser = argparse.ArgumentParser(
        description="Convert a checkpoint into a file of torch.save, or the other way round."
    )
    parser.add_argument("mode", choices=modes)
    parser.add_argument("src", help="what is read")
    parser.add_argument("dst", help="what is written")
    given = parser.parse_args()
    modes[given.mode](given.src, given.dst)


if __name__ == "__main__":
    _convert()

"""The planners of `save` and `load`. Programs override their methods, as PyTorch's."""

from __future__ import annotations

import dataclasses
import difflib
import io
import warnings
from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from ...core import environment
from ...core.tensor import Tensor
from ...files.serialization import load
from ...ops.creation.factories import empty
from .blocks import narrow_tensor_by_index
from .global_plan import _validate_global_plan, create_default_global_save_plan, dedup_save_plans
from .metadata import Metadata, MetadataIndex, StorageMeta, TensorStorageMetadata
from .nested import FLATTEN_MAPPING, Leaf, by_key, flatten_state_dict, former_leaves, leaves, set_element
from .planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem, WriteItemType
from .planner_helpers import _create_read_items, _create_write_items, _init_state_dict, bytes_of, takes_part
from .utils import find_state_dict_object


class DefaultSavePlanner(SavePlanner):
    """Each rank writes its blocks of DTensors; what several have is written by the one that has least to write.

    flatten_state_dict: nested dicts and lists become keys that are joined by dots. dedup_save_to_lowest_rank: the first rank
    that has it writes it. The other arguments are PyTorch's: plans are made anew for each checkpoint.
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        if dedup_replicated_tensors is not None:
            warnings.warn(
                "DefaultSavePlanner's `dedup_replicated_tensors` argument has no effect: remove it",
                stacklevel=2,
            )
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        self.mappings: FLATTEN_MAPPING = {}

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict = state_dict
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> SavePlan:
        plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        if self.flatten_state_dict:
            plan = dataclasses.replace(plan, planner_data=self.mappings)
        self.plan = plan
        return plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        plans, metadata = create_default_global_save_plan(
            dedup_save_plans(all_plans, self.dedup_save_to_lowest_rank)
        )
        if self.flatten_state_dict:
            metadata.planner_data = dict(ChainMap(*[plan.planner_data for plan in plans]))
        if faults := _validate_global_plan(plans, metadata):
            raise ValueError(f"Failed to validate global plan: {'; '.join(faults)[:500]}")
        self.global_plan, self.metadata = plans, metadata
        return plans, metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        return self.transform_object(write_item, self.lookup_object(write_item.index))

    def lookup_object(self, index: MetadataIndex) -> Any:
        """What the state dict has by that name."""
        return find_state_dict_object(self.state_dict, index)

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """What is written for `object`: itself, if it is a tensor, or its bytes."""
        return bytes_of(object) if write_item.type is WriteItemType.BYTE_IO else object


class DefaultLoadPlanner(LoadPlanner):
    """Each rank reads what it has of a tensor. allow_partial_load: keys that the checkpoint does not hold stay as they are."""

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.allow_partial_load = allow_partial_load
        self.original_state_dict: dict[str, Any] = {}
        self.mappings: FLATTEN_MAPPING = {}
        self._leaves: dict[str, Leaf] = {}

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        _init_state_dict(state_dict)
        self.original_state_dict = self.state_dict = state_dict
        if self.flatten_state_dict:
            self._flatten(by_key(leaves(state_dict)))
        self.metadata = metadata
        self.is_coordinator = is_coordinator

    def _flatten(self, found: dict[str, Leaf]) -> None:
        self._leaves = found
        self.state_dict = {key: leaf.value for key, leaf in found.items()}
        self.mappings = {key: leaf.path for key, leaf in found.items()}

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None, (
            "set_up_planner comes before create_local_plan, and is given metadata"
        )
        others = self.metadata.state_dict_metadata.keys() - self.state_dict.keys()
        if others and self.flatten_state_dict:
            # PyTorch before 2.4 did not walk through dicts without tensors.
            former = by_key(former_leaves(self.original_state_dict))
            if others & former.keys():
                self._flatten(former)
        return create_default_local_load_plan(self.state_dict, self.metadata, not self.allow_partial_load)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return create_default_global_load_plan(global_plan)

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        key = read_item.dest_index.fqn
        # As PyTorch, which lets a checkpoint name any class; without --as-torch those of the program are to be allowed.
        loaded = load(value, weights_only=not environment.as_torch())
        if not self.flatten_state_dict:
            self.state_dict[key] = loaded
        elif key in self._leaves:  # its key may be none that is a text, as its path has it
            self._leaves[key].owner[self._leaves[key].name] = loaded
        else:
            set_element(self.original_state_dict, self.mappings[key], loaded)

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        pass

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """The tensor of that name, of a DTensor this rank's part."""
        return find_state_dict_object(self.state_dict, index)

    def transform_tensor(self, read_item: ReadItem, tensor: Tensor) -> Tensor:
        """The block of `tensor` that the item fills."""
        return narrow_tensor_by_index(tensor, read_item.dest_offsets, read_item.lengths)


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Fills an empty dict with whole tensors, and what else there is. keys: those to load, or of dicts that hold them."""

    def __init__(self, keys: set[str] | None = None, *args: Any, **kwargs: Any) -> None:
        self.keys = keys
        super().__init__(*args, **kwargs)

    def _should_include_key(self, key: str, metadata: Metadata) -> bool:
        if self.keys is None or key in self.keys:
            return True
        path = [str(step) for step in (metadata.planner_data or {}).get(key, ())]
        return any(".".join(path[: i + 1]) in self.keys for i in range(len(path)))

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        if state_dict or metadata is None:
            raise AssertionError("_EmptyStateDictLoadPlanner takes an empty state_dict, and metadata")
        for key, stored in metadata.state_dict_metadata.items():
            if not self._should_include_key(key, metadata):
                continue
            value: Any = stored
            if isinstance(stored, TensorStorageMetadata):
                value = empty(stored.size, dtype=stored.properties.dtype)
            set_element(state_dict, (metadata.planner_data or {}).get(key, (key,)), value)
        super().set_up_planner(state_dict, metadata, is_coordinator)


def create_default_local_save_plan(state_dict: Mapping[str, Any], is_coordinator: bool) -> SavePlan:
    """All that this rank has a part of."""
    found = (_create_write_items(key, value) for key, value in state_dict.items() if takes_part(value))
    return SavePlan([item for items in found for item in items])


def create_default_local_load_plan(
    state_dict: Mapping[str, Any], metadata: Metadata, strict: bool = True
) -> LoadPlan:
    """What fills `state_dict`. RuntimeError for a key that the checkpoint does not hold, or with strict=False nothing."""
    items = []
    for key, value in state_dict.items():
        stored = metadata.state_dict_metadata.get(key)
        if stored is None:
            if strict:
                raise RuntimeError(_missing(key, metadata))
            continue
        size = getattr(value, "size", None)
        if isinstance(stored, TensorStorageMetadata) and size is not None and stored.size != value.size():
            raise ValueError(
                f"Size mismatch between saved {stored.size} and current: {value.size()} for {key}"
            )
        if takes_part(value):
            items += _create_read_items(key, stored, value)
    return LoadPlan(items)


def create_default_global_load_plan(all_plans: list[LoadPlan]) -> list[LoadPlan]:
    """The plans as they are."""
    return all_plans


def _create_default_local_metadata(state_dict: Mapping[str, Any]) -> Metadata:
    """The description of a checkpoint of what this rank has of `state_dict`."""
    return create_default_global_save_plan([create_default_local_save_plan(state_dict, True)])[1]


def _missing(key: str, metadata: Metadata) -> str:
    others = list(metadata.state_dict_metadata)
    near = difflib.get_close_matches(key, others, 3) or others[:3]
    return (
        f"Missing key in checkpoint state_dict: {key}. The checkpoint holds {len(others)} others, such as "
        f"{', '.join(map(repr, near))}; DefaultLoadPlanner(allow_partial_load=True) leaves such keys as they are"
    )


__all__ = [
    "DefaultLoadPlanner", "DefaultSavePlanner", "create_default_global_load_plan",
    "create_default_global_save_plan", "create_default_local_load_plan", "create_default_local_save_plan",
]  # fmt: skip

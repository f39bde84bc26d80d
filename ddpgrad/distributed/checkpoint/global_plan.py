"""The plan of all ranks: who writes what several have, and the description of the whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ...core.errors import CheckpointError
from .blocks import faults
from .metadata import STORAGE_TYPES, BytesStorageMetadata, Metadata, MetadataIndex, TensorStorageMetadata
from .planner import SavePlan, WriteItem, WriteItemType


def dedup_save_plans(all_plans: Sequence[SavePlan], save_to_lowest_rank: bool = False) -> list[SavePlan]:
    """Plans in which each item is in one only: in the shortest until then, or that of the first rank that has it.

    CheckpointError where ranks have tensors of one name that differ in type or shape.
    """
    holders: dict[MetadataIndex, list[int]] = {}
    items: dict[MetadataIndex, WriteItem] = {}
    for rank, plan in enumerate(all_plans):
        for item in plan.items:
            holders.setdefault(item.index, []).append(rank)
            _require_alike(items.setdefault(item.index, item), item, holders[item.index])
    load = [0] * len(all_plans)
    writer: dict[MetadataIndex, int] = {}
    for index, ranks in holders.items():
        rank = min(ranks) if save_to_lowest_rank else min(ranks, key=load.__getitem__)
        load[rank] += items[index].tensor_storage_size() or 1
        writer[index] = rank
    return [
        dataclasses.replace(plan, items=[item for item in plan.items if writer[item.index] == rank])
        for rank, plan in enumerate(all_plans)
    ]


def _require_alike(one: WriteItem, other: WriteItem, ranks: list[int]) -> None:
    if _in_words(one) != _in_words(other):
        raise CheckpointError(
            f"the state dict has {one.index.fqn!r} as {_in_words(one)} on rank {ranks[0]}, and as {_in_words(other)} on rank "
            f"{ranks[-1]}: what all ranks save must be alike on all"
        )


def _in_words(item: WriteItem) -> str:
    data = item.tensor_data
    if data is None:
        return "plain data"
    return f"tensor of {data.properties.dtype.name} with shape {list(data.size)}"


def create_default_global_save_plan(
    all_plans: Sequence[SavePlan], rewrite_index_hints: bool = True
) -> tuple[list[SavePlan], Metadata]:
    """The plans, whose items are numbered within their tensors, and the description of what they write."""
    found: dict[str, STORAGE_TYPES] = {}
    plans = []
    for plan in all_plans:
        items = []
        for item in plan.items:
            name = item.index.fqn
            if item.type is not WriteItemType.SHARD and name in found:
                raise CheckpointError(f"two values are to be written for the key {name!r}")
            data = item.tensor_data
            if item.type is WriteItemType.BYTE_IO or data is None:
                found[name] = BytesStorageMetadata()
                items.append(item)
                continue
            tensor = found.setdefault(name, TensorStorageMetadata(data.properties, data.size, []))
            if not isinstance(tensor, TensorStorageMetadata):
                raise CheckpointError(f"{name!r} is to be written as a tensor, and as plain data")
            if rewrite_index_hints:
                index = dataclasses.replace(item.index, index=len(tensor.chunks))
                item = dataclasses.replace(item, index=index)
            items.append(item)
            tensor.chunks.append(data.chunk)
        plans.append(dataclasses.replace(plan, items=items))
    return plans, Metadata(found)


def _validate_global_plan(global_plan: Sequence[Any], metadata: Metadata) -> list[str]:
    """What is wrong with the blocks of tensors; of one rank's plan alone they need not fill the whole."""
    return [
        f"key:{key} has {fault}"
        for key, value in metadata.state_dict_metadata.items()
        if isinstance(value, TensorStorageMetadata) and len(value.size)
        for fault in faults(value.size, value.chunks, len(global_plan) > 1)
    ]

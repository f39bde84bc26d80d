"""The items of plans: what of an object is written, and which stored blocks fill it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from ...autograd.grad_mode import no_grad
from ...core.errors import CheckpointError
from ...core.size import Size
from ...core.tensor import Tensor
from ...ops.creation.factories import empty_like
from ..tensor import DTensor
from .blocks import meeting, overlap
from .metadata import (
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from .planner import LoadItemType, LoadPlanner, ReadItem, TensorWriteData, WriteItem, WriteItemType


def _create_write_items(fqn: str, object: Any) -> list[WriteItem]:
    """What this rank has of `object` to write: of a DTensor its block. Classes of a program may have `__create_write_items__`."""
    if hasattr(object, "__create_write_items__"):
        return object.__create_write_items__(fqn, object)
    if not isinstance(object, Tensor):
        return [WriteItem(MetadataIndex(fqn), WriteItemType.BYTE_IO)]
    kind = WriteItemType.SHARD if isinstance(object, DTensor) else WriteItemType.TENSOR
    return [
        WriteItem(
            MetadataIndex(fqn, block.offsets),
            kind,
            tensor_data=TensorWriteData(
                block, TensorProperties.create_from_tensor(part_of(object)), object.size()
            ),
        )
        for block in _create_chunk_list(object)
    ]


def _create_chunk_list(tensor: Any) -> list[ChunkStorageMetadata]:
    """The blocks of `tensor` that this rank has. Classes of a program may have `__create_chunk_list__`."""
    if hasattr(tensor, "__create_chunk_list__"):
        return tensor.__create_chunk_list__()
    if isinstance(tensor, DTensor):
        if any(placement.is_partial() for placement in tensor.placements):
            raise ValueError(
                f"a DTensor with placements {tensor.placements} is a sum over ranks, and has no blocks: redistribute() it before"
            )
        spans = tensor._layout.spans
        return [ChunkStorageMetadata(Size([a for a, _ in spans]), Size([b - a for a, b in spans]))]
    if isinstance(tensor, Tensor):
        return [ChunkStorageMetadata(Size([0] * tensor.ndim), tensor.size())]
    raise ValueError(f"Unsupported Type, expecting one of [Tensor, DTensor], but got {type(tensor)}")


def part_of(tensor: Tensor) -> Tensor:
    """What this rank has of `tensor`, in the same memory."""
    return tensor.part() if isinstance(tensor, DTensor) else tensor


def takes_part(value: Any) -> bool:
    """Whether this rank has a part of `value`."""
    return not isinstance(value, DTensor) or value.device_mesh.get_coordinate() is not None


def _create_read_items(fqn: str, md: STORAGE_TYPES, obj: Any) -> list[ReadItem]:
    """What is to be read for `obj`, of which the checkpoint has `md`."""
    if isinstance(md, BytesStorageMetadata):
        index, none = MetadataIndex(fqn), Size((0,))
        return [ReadItem(LoadItemType.BYTE_IO, index, none, index, none, none)]
    try:
        blocks = _create_chunk_list(obj)
    except ValueError as error:
        raise ValueError(
            f"Invalid checkpoint metadata for {fqn}, expected BytesStorageMetadata but found {type(md)}: {error}"
        ) from error
    return create_read_items_for_chunk_list(fqn, md, blocks)


def create_read_items_for_chunk_list(
    fqn: str, checkpoint_md: TensorStorageMetadata, local_chunks: Sequence[ChunkStorageMetadata]
) -> list[ReadItem]:
    """What is to be read so that `local_chunks` of a tensor are filled, which is stored in other blocks."""
    items = []
    for i, j in meeting(local_chunks, checkpoint_md.chunks):
        mine, stored = local_chunks[i], checkpoint_md.chunks[j]
        spans = overlap(mine, stored)
        if spans is not None:
            items.append(
                ReadItem(
                    LoadItemType.TENSOR,
                    MetadataIndex(fqn, mine.offsets, i),
                    Size([a - at for (a, _), at in zip(spans, mine.offsets, strict=True)]),
                    MetadataIndex(fqn, stored.offsets, j),
                    Size([a - at for (a, _), at in zip(spans, stored.offsets, strict=True)]),
                    Size([b - a for a, b in spans]),
                )
            )
    return items


def _init_state_dict(state_dict: dict[str, Any]) -> None:
    """Put tensors with memory into the places of those on the device meta."""
    for key, value in state_dict.items():
        state_dict[key] = _with_memory(value)


def _with_memory(value: Any) -> Any:
    if isinstance(value, DTensor):
        return empty_like(value, device=value.device_mesh.device_type) if value.is_meta else value
    if isinstance(value, Tensor):
        return empty_like(value, device="cpu") if value.is_meta else value
    if isinstance(value, dict):
        _init_state_dict(value)
    elif type(value) is list:
        value[:] = map(_with_memory, value)
    elif type(value) is tuple:
        return tuple(map(_with_memory, value))
    return value


def bytes_of(value: Any) -> io.BytesIO:
    """An object that is no tensor, as files have it."""
    from ...files.serialization import save

    written = io.BytesIO()
    save(value, written)
    return written


@no_grad()
def fill(planner: LoadPlanner, item: ReadItem, block: Tensor, where: Any) -> None:
    """Copy `block`, which was read of `where`, into the tensor that the planner has for it."""
    target = planner.resolve_tensor(item).detach()
    if target.size() != block.size():
        raise CheckpointError(
            f"{item.storage_index} of {where} has the shape {list(block.shape)} there; the planner gave a tensor of "
            f"{list(target.shape)} for it"
        )
    target.copy_(block)
    planner.commit_tensor(item, target)

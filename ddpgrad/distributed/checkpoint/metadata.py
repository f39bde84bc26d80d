"""What a checkpoint holds, without its bytes: `FileSystemReader(path).read_metadata()`. Files have these as PyTorch has them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ...backend.dtype import DType, get_default_dtype
from ...core.size import (
    Layout,
    MemoryFormat,
    Size,
    channels_last,
    contiguous_format,
    preserve_format,
    strided,
)
from ...core.tensor import Tensor
from .stateful import StatefulT


@dataclass
class ChunkStorageMetadata:
    """A block of a tensor: where it begins in the whole, and its shape."""

    offsets: Size
    sizes: Size


class _MEM_FORMAT_ENCODING(Enum):
    """The order of dimensions, as files have it."""

    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


_FORMATS = {
    _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT: contiguous_format,
    _MEM_FORMAT_ENCODING.TORCH_CHANNELS_LAST: channels_last,
    _MEM_FORMAT_ENCODING.TORCH_PRESERVE_FORMAT: preserve_format,
}


@dataclass
class TensorProperties:
    """What a tensor is made with."""

    dtype: DType = field(default_factory=get_default_dtype)
    layout: Layout = strided
    requires_grad: bool = False
    memory_format: MemoryFormat = contiguous_format
    pin_memory: bool = False

    def __getstate__(self) -> tuple[Any, ...]:
        for encoding, memory_format in _FORMATS.items():
            if memory_format is self.memory_format:
                return self.dtype, self.layout, self.requires_grad, encoding, self.pin_memory
        raise RuntimeError(f"Invalid torch.memory_format: {self.memory_format}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype, self.layout, self.requires_grad, encoding, self.pin_memory = state
        self.memory_format = _FORMATS[encoding]

    @staticmethod
    def create_from_tensor(tensor: Tensor) -> TensorProperties:
        return TensorProperties(
            tensor.dtype, tensor.layout, tensor.requires_grad, contiguous_format, tensor.is_pinned()
        )


@dataclass
class TensorStorageMetadata:
    """A tensor; size: the shape of the whole, which lies in `chunks`."""

    properties: TensorProperties
    size: Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """An object that is no tensor."""


STORAGE_TYPES = TensorStorageMetadata | BytesStorageMetadata
STATE_DICT_TYPE = dict[str, StatefulT | Any]


@dataclass
class StorageMeta:
    """Which checkpoint it is, and by which call it was written or is read."""

    checkpoint_id: str | os.PathLike[str] | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """The contents of a checkpoint, by key; the keys of nested dicts are joined by dots.

    planner_data: what the planner kept, the path of each key in the nested dict; storage_data: where the storage has each item.
    """

    state_dict_metadata: dict[str, STORAGE_TYPES]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass(frozen=True)
class MetadataIndex:
    """The name of an object, or of the block of a tensor that begins at `offset`. index: where to look for it first."""

    fqn: str
    offset: Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __init__(self, fqn: str, offset: Sequence[int] | None = None, index: int | None = None) -> None:
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "offset", None if offset is None else Size(offset))

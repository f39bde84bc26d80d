"""What a checkpoint holds, without its bytes: `FileSystemReader(path).read_metadata()`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...backend.dtype import DType
from ...core.size import Size


@dataclass
class TensorProperties:
    """The type of a tensor."""

    dtype: DType


@dataclass
class TensorStorageMetadata:
    """A tensor; size: the shape of the whole."""

    properties: TensorProperties
    size: Size


@dataclass
class BytesStorageMetadata:
    """A number, a string, or other plain data."""


def of(dtype: DType | None = None, shape: Sequence[int] = ()) -> TensorStorageMetadata | BytesStorageMetadata:
    """The description of a tensor, or, without a dtype, of plain data."""
    if dtype is None:
        return BytesStorageMetadata()
    return TensorStorageMetadata(TensorProperties(dtype), Size(shape))


@dataclass
class Metadata:
    """The contents of a checkpoint, by key; the keys of nested dicts are joined by dots."""

    state_dict_metadata: dict[str, TensorStorageMetadata | BytesStorageMetadata] = field(default_factory=dict)

"""Files and folders of checkpoints, and what descriptions say of where items lie."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from . import exchange, metadata_file

CURRENT_DCP_VERSION = "1.0.0"
DEFAULT_SUFFIX = ".distcp"
_metadata_fn = metadata_file.NAME
PLAIN = re.compile(r"__\d+_\d+\.distcp")
"""The names that PyTorch gives; a checkpoint that replaces one with such names has others."""
Name = str | os.PathLike[str]


@dataclass
class _StorageInfo:
    """Where an item lies. sha256: of its bytes; PyTorch writes none, and does not look at it."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Sequence[str] | None = None
    sha256: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass
class _StoragePrefix:
    """How the names of a rank's files begin."""

    prefix: str


class SerializationFormat(Enum):
    """How tensors are written."""

    TORCH_SAVE = "torch_save"
    SAFETENSORS = "safetensors"


exchange.register(_StorageInfo, _StoragePrefix)
metadata_file.declare("filesystem", _StorageInfo, _StoragePrefix, SerializationFormat)


class FileSystemBase(ABC):
    """What files and folders are reached by; programs have classes of their own for other stores."""

    @contextmanager
    @abstractmethod
    def create_stream(self, path: Name, mode: str) -> Iterator[Any]:
        yield

    @abstractmethod
    def concat_path(self, path: Name, suffix: str) -> Name: ...

    @abstractmethod
    def rename(self, path: Name, new_path: Name) -> None: ...

    @abstractmethod
    def init_path(self, path: Name) -> Name: ...

    @abstractmethod
    def mkdir(self, path: Name) -> None: ...

    @classmethod
    @abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: Name) -> bool: ...

    @abstractmethod
    def exists(self, path: Name) -> bool: ...

    @abstractmethod
    def rm_file(self, path: Name) -> None: ...


class FileSystem(FileSystemBase):
    """The file system of the host."""

    @contextmanager
    def create_stream(self, path: Name, mode: str) -> Iterator[Any]:
        with open(path, mode) as stream:
            yield stream

    def concat_path(self, path: Name, suffix: str) -> Name:
        return Path(path) / suffix

    def init_path(self, path: Name) -> Name:
        return Path(path)

    def rename(self, path: Name, new_path: Name) -> None:
        os.replace(path, new_path)

    def mkdir(self, path: Name) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Name) -> bool:
        if isinstance(checkpoint_id, Path):
            return True
        above = Path(checkpoint_id).absolute().parents
        return "://" not in str(checkpoint_id) and any(p.exists() and os.access(p, os.W_OK) for p in above)

    def exists(self, path: Name) -> bool:
        return Path(path).exists()

    def rm_file(self, path: Name) -> None:
        Path(path).unlink()

    def ls(self, path: Name) -> list[str]:
        return [str(p) for p in Path(path).iterdir()]


class InFolder:
    """A storage whose checkpoint lies in the folder `path` of `fs`, a file system of the class `kind`."""

    kind: ClassVar[Any] = FileSystem
    fs: Any
    path: Any

    def _open(self, path: Name, **options: Any) -> None:
        """Lie in the folder `path`. options: of the file system."""
        self.fs = self.kind()
        self.path = self.fs.init_path(path, **options)

    def _get_metadata_path(self, rank: int | None = None) -> Any:
        return self.fs.concat_path(self.path, _metadata_fn if rank is None else f"__{rank}{_metadata_fn}")

    @property
    def checkpoint_id(self) -> Name:
        """The folder."""
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Name) -> bool:
        return cls.kind.validate_checkpoint_id(checkpoint_id)

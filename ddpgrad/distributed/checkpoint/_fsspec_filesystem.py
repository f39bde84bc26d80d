"""Checkpoints in stores that fsspec knows, such as s3:// and memory://. Source of names: torch.distributed.checkpoint."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .filesystem import FileSystemWriter
from .filesystem_reader import FileSystemReader
from .folder import FileSystemBase, Name

__all__ = ["FsspecReader", "FsspecWriter"]

url_to_fs: Any = importlib.import_module("fsspec.core").url_to_fs


class FileSystem(FileSystemBase):
    """The store that an address such as `s3://bucket/run` names."""

    fs: Any = None

    def init_path(self, path: Name, **kwargs: Any) -> str:
        """`path`, in whose store this is from then on. kwargs: for that store."""
        self.fs, _ = url_to_fs(os.fspath(path), **kwargs)
        return os.fspath(path)

    @contextmanager
    def create_stream(self, path: Name, mode: str) -> Iterator[Any]:
        with self.fs.open(os.fspath(path), mode) as stream:
            yield stream

    def concat_path(self, path: Name, suffix: str) -> str:
        return os.path.join(path, suffix)

    def rename(self, path: Name, new_path: Name) -> None:
        self.fs.mv(path, new_path)

    def mkdir(self, path: Name) -> None:
        self.fs.makedirs(path, exist_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Name) -> bool:
        if isinstance(checkpoint_id, Path):
            return False
        try:
            url_to_fs(os.fspath(checkpoint_id))
        except ValueError:
            return False
        return True

    def exists(self, path: Name) -> bool:
        return self.fs.exists(path)

    def rm_file(self, path: Name) -> None:
        self.fs.rm(path)

    def ls(self, path: Name) -> list[str]:
        return self.fs.ls(path, detail=False)


class FsspecWriter(FileSystemWriter):
    """As `FileSystemWriter`, into a store. Further arguments by name are those of `fsspec.core.url_to_fs`."""

    kind = FileSystem

    def __init__(self, path: Name, *args: Any, **kwargs: Any) -> None:
        own = {name: kwargs.pop(name) for name in list(kwargs) if name in _WRITER}
        super().__init__(path, *args, **own)
        if kwargs:
            self._open(path, **kwargs)


_WRITER = FileSystemWriter.__init__.__code__.co_varnames


class FsspecReader(FileSystemReader):
    """As `FileSystemReader`, from a store. Further arguments are those of `fsspec.core.url_to_fs`."""

    kind = FileSystem

    def __init__(self, path: Name, **kwargs: Any) -> None:
        super().__init__(path)
        if kwargs:
            self._open(path, **kwargs)

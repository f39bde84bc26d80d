"""A checkpoint in a folder, as PyTorch lays it out: one or more files of each rank, and `.metadata`, which says where all lies.

The checkpoint is visible when `.metadata` is, by a rename. Another that is written into the same folder has files of other
names until then, so that at any moment the folder holds the one or the other, whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import os
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ...core.errors import CheckpointError
from ...core.tensor import Tensor
from ...files.serialization import save
from ...futures import Future, finished
from ...launcher.checkpoint.store import sync_folder
from . import metadata_file
from .filesystem_reader import FileSystemReader
from .folder import (
    CURRENT_DCP_VERSION,
    DEFAULT_SUFFIX,
    PLAIN,
    FileSystem,
    FileSystemBase,
    InFolder,
    Name,
    SerializationFormat,
    _metadata_fn,  # noqa: F401 - which libraries import from here
    _StorageInfo,
    _StoragePrefix,
)
from .metadata import Metadata, StorageMeta
from .planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from .staging import BlockingAsyncStager
from .storage import StorageWriter, WriteResult


class _Counting:
    """Passes bytes on to a file. size, digest: of those since `begin`."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.end = 0
        self.begin()

    def begin(self) -> None:
        self.start, self.digest = self.end, hashlib.sha256()

    def write(self, data: Any) -> int:
        data = memoryview(data).cast("B")
        self.end += len(data)
        self.digest.update(data)
        self._file.write(data)
        return len(data)


class FileSystemWriter(InFolder, StorageWriter, BlockingAsyncStager):
    """Writes a checkpoint into the folder `path`.

    single_file_per_rank: else each item has a file of its own. sync_files: wait until all is on stable storage. thread_count:
    how many files a rank writes at a time. cache_staged_state_dict: `async_save` copies into the memory of the last copy.
    overwrite: whether a checkpoint that is there may be replaced.
    """

    def __init__(
        self,
        path: Name,
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        _extensions: Sequence[Any] | None = None,
        serialization_format: SerializationFormat = SerializationFormat.TORCH_SAVE,
    ) -> None:
        if _extensions:
            raise NotImplementedError(
                "FileSystemWriter(_extensions=...): bytes are written as they are here; leave it out"
            )
        BlockingAsyncStager.__init__(self, cache_staged_state_dict)
        self._open(path)
        self.single_file_per_rank, self.sync_files = single_file_per_rank, sync_files
        self.thread_count, self.per_thread_copy_ahead = thread_count, per_thread_copy_ahead
        self.overwrite, self.serialization_format = overwrite, serialization_format
        self.save_id = str(uuid.uuid4())
        self.rank: int | None = None
        self.use_collectives = True
        self._begun: list[str] = []  # the names of this rank's files

    def reset(self, checkpoint_id: Name | None = None) -> None:
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.save_id = str(uuid.uuid4())

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.rank = kwargs.get("rank")
        self.use_collectives = kwargs.get("use_collectives", True)
        self._begun = []

    @property
    def _own(self) -> int | None:
        """The rank whose description this one writes, where each has its own."""
        return None if self.use_collectives else self.rank

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.fs.mkdir(self.path)
        if not self.overwrite and self.fs.exists(self._get_metadata_path(self._own)):
            raise RuntimeError(
                f"Checkpoint already exists and self.overwrite=False. {self.path} holds it: choose another folder"
            )
        if self._own is not None:
            plan = dataclasses.replace(plan, storage_data=self._prefix(self._own))
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return [
            plan
            if plan.storage_data is not None
            else dataclasses.replace(plan, storage_data=self._prefix(rank))
            for rank, plan in enumerate(plans)
        ]

    def _prefix(self, rank: int) -> _StoragePrefix:
        replaces = any(map(PLAIN.fullmatch, self._held()))
        return _StoragePrefix(f"__{rank}_next_" if replaces else f"__{rank}_")

    def _held(self) -> set[str]:
        """The files of the checkpoint that is in the folder."""
        path = self._get_metadata_path(self._own)
        if not self.fs.exists(path):
            return set()
        with self.fs.create_stream(path, "rb") as file:
            content = file.read()
        try:
            found = metadata_file.loaded(content, str(path)).storage_data
        except CheckpointError:
            return set()  # nobody can read it, whatever becomes of its files
        return {str(info.relative_path) for info in (found or {}).values()}

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        buckets = [[item] for item in plan.items]
        if self.single_file_per_rank:
            buckets = _split_by_size_and_type(self.thread_count, plan.items)
        names = [f"{plan.storage_data.prefix}{i}{DEFAULT_SUFFIX}" for i in range(len(buckets))]
        return self._write_files(planner, list(zip(names, buckets, strict=True)))

    def _write_files(
        self, planner: SavePlanner, files: Sequence[tuple[str, Sequence[WriteItem]]]
    ) -> Future[list[WriteResult]]:
        if self.thread_count > 1:
            with ThreadPoolExecutor(self.thread_count) as pool:
                written = list(pool.map(lambda file: self._write_file(planner, *file), files))
        else:
            written = [self._write_file(planner, *file) for file in files]
        return finished([result for results in written for result in results])

    def _write_file(self, planner: SavePlanner, name: str, items: Sequence[WriteItem]) -> list[WriteResult]:
        path = self.fs.concat_path(self.path, name)
        self._begun.append(name)
        ordered = sorted(items, key=lambda item: item.type is not WriteItemType.BYTE_IO)
        with self.fs.create_stream(path, "wb") as stream:
            counting = _Counting(stream)
            results = self._write_items(counting, name, ordered, planner)
            _settle(stream, self.sync_files)
        return results

    def _write_items(
        self, file: _Counting, name: str, items: Sequence[WriteItem], planner: SavePlanner
    ) -> list[WriteResult]:
        results = []
        for item in items:
            file.begin()
            data = planner.resolve_data(item)
            if isinstance(data, Tensor):
                save(on_host(data), file)  # type: ignore[arg-type]  # only `write` is used
            else:
                file.write(data.getbuffer())
            length = file.end - file.start
            info = _StorageInfo(name, file.start, length, sha256=file.digest.hexdigest())
            results.append(WriteResult(item.index, length, info))
        return results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        held = self._held()
        metadata.version = CURRENT_DCP_VERSION
        metadata.storage_data = {one.index: one.storage_data for written in results for one in written}
        metadata.storage_meta = self.storage_meta()
        files = {info.relative_path for info in metadata.storage_data.values()}
        for name in sorted(files):
            if not self.fs.exists(self.fs.concat_path(self.path, name)):
                raise CheckpointError(
                    f"{self.path} has no {name}, which another rank wrote there: the folder must be shared"
                )
        path = self._get_metadata_path(self._own)
        content = metadata_file.dumped(metadata)
        with self.fs.create_stream(f"{path}.tmp", "wb") as file:
            file.write(content)
            _settle(file, self.sync_files)
        local = isinstance(self.fs, FileSystem) and self.sync_files
        if local:
            sync_folder(Path(self.path))
        self.fs.rename(f"{path}.tmp", path)
        if local:
            sync_folder(Path(self.path))
        for name in held - files:
            with contextlib.suppress(FileNotFoundError):  # another writer has removed it
                self.fs.rm_file(self.fs.concat_path(self.path, name))

    def discard(self) -> None:
        """Delete the files of this rank: the checkpoint did not come about."""
        held = self._held()  # those that are visible were not what failed
        for name in self._begun:
            path = self.fs.concat_path(self.path, name)
            if name not in held and self.fs.exists(path):
                self.fs.rm_file(path)

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self.save_id)


def on_host(tensor: Tensor) -> Tensor:
    """`tensor` without history on the CPU, in memory that holds nothing else."""
    tensor = tensor.detach().cpu()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _settle(stream: Any, sync: bool) -> None:
    """Put what was written on stable storage, where the stream is a file of the host."""
    stream.flush()
    if sync:
        try:
            descriptor = stream.fileno()
        except (AttributeError, io.UnsupportedOperation):
            return
        os.fsync(descriptor)


def _split_by_size_and_type(bins: int, items: Sequence[WriteItem]) -> list[list[WriteItem]]:
    """`items` in as many parts of about one size."""
    parts: list[list[WriteItem]] = [[] for _ in range(bins)]
    others = [item for item in items if item.type is WriteItemType.BYTE_IO]
    for i, item in enumerate(others):
        parts[i % bins].append(item)
    load = [0] * bins
    sizes = {id(item): item.tensor_storage_size() or 0 for item in items}
    tensors = [item for item in items if item.type is not WriteItemType.BYTE_IO]
    for item in tensors if bins == 1 else sorted(tensors, key=lambda item: -sizes[id(item)]):
        least = load.index(min(load))
        parts[least].append(item)
        load[least] += sizes[id(item)]
    return parts


__all__ = ["FileSystem", "FileSystemBase", "FileSystemReader", "FileSystemWriter", "SerializationFormat"]

"""Reads a checkpoint in a folder, whoever wrote it."""

from __future__ import annotations

import hashlib
import io
import os
import uuid
from collections.abc import Iterator
from typing import Any

from ...core.errors import CheckpointError
from ...files.serialization import load
from ...futures import Future, finished
from ...launcher.checkpoint.manifest import MANIFEST
from . import metadata_file
from .blocks import narrow_tensor_by_index
from .folder import InFolder, Name, _StorageInfo
from .metadata import Metadata, StorageMeta
from .planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from .planner_helpers import fill
from .storage import StorageReader
from .utils import _create_file_view


class FileSystemReader(InFolder, StorageReader):
    """Reads the checkpoint in the folder `path`. What ddpgrad wrote is checked, every byte that is read, before it is used."""

    def __init__(self, path: Name, _extension_registry: Any = None) -> None:
        self._open(path)
        self.storage_data: dict[Any, Any] = {}
        self.load_id = str(uuid.uuid4())
        self.rank: int | None = None
        self.use_collectives = True
        self._save_id: str | None = None

    def reset(self, checkpoint_id: Name | None = None) -> None:
        self.storage_data = {}
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.load_id = str(uuid.uuid4())

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        path = self._get_metadata_path(kwargs.get("rank"))
        if not self.fs.exists(path):
            what = f"{os.path.basename(path)} is missing" if self.fs.exists(self.path) else "no such folder"
            if self.fs.exists(self.fs.concat_path(self.path, MANIFEST)):
                what = "it was made by a Checkpointer: load it by Checkpointer.resume or Checkpointer.read"
            raise CheckpointError(
                f"there is no checkpoint of torch.distributed.checkpoint in {self.path}: {what}"
            )
        with self.fs.create_stream(path, "rb") as file:
            content = file.read()
        found = metadata_file.loaded(content, str(path))
        found.storage_meta = getattr(found, "storage_meta", None) or StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        if metadata.storage_data is None:
            raise CheckpointError(
                f"the description of the checkpoint {self.path} does not say where its items lie"
            )
        self.storage_data = metadata.storage_data
        self.rank = kwargs.get("rank")
        self.use_collectives = kwargs.get("use_collectives", True)
        self._save_id = metadata.storage_meta.save_id if metadata.storage_meta else None

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        for path, items in self._by_file(plan).items():
            with self._opened(path) as stream:
                self._check(stream, path, items)
        if plan.storage_data is None:
            plan.storage_data = self._save_id
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        for rank, plan in enumerate(plans):
            if self.use_collectives and plan.storage_data != plans[0].storage_data:
                raise CheckpointError(
                    f"rank {rank} sees another checkpoint in {self.path} than rank 0: the folder must be shared"
                )
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for path, items in self._by_file(plan).items():
            with self._opened(path) as stream:
                for stored, alike in _by_place(items, self.storage_data):
                    self._read(stream, stored, alike, planner)
        return finished(None)

    def _read(self, stream: Any, stored: _StorageInfo, items: list[ReadItem], planner: LoadPlanner) -> None:
        """Give the planner what lies at one place, of which `items` want parts."""
        view = _create_file_view(stream, stored.offset, stored.length)
        if items[0].type is LoadItemType.BYTE_IO:
            content = view.read()
            for item in items:
                planner.load_bytes(item, io.BytesIO(content))
            return
        whole = load(view, map_location="cpu", weights_only=True)  # type: ignore[arg-type]
        for item in items:
            tensor = narrow_tensor_by_index(whole, item.storage_offsets, item.lengths)
            fill(planner, item, tensor, stored.relative_path)

    def _by_file(self, plan: LoadPlan) -> dict[str, list[ReadItem]]:
        files: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            if item.storage_index not in self.storage_data:
                raise CheckpointError(f"checkpoint {self.path} does not say where {item.storage_index} lies")
            files.setdefault(self.storage_data[item.storage_index].relative_path, []).append(item)
        return files

    def _opened(self, name: str) -> Any:
        path = self.fs.concat_path(self.path, name)
        if not self.fs.exists(path):
            raise CheckpointError(f"checkpoint {self.path} is damaged: {name} is missing")
        return self.fs.create_stream(path, "rb")

    def _check(self, stream: Any, name: str, items: list[ReadItem]) -> None:
        """CheckpointError where what is there is not what was written."""
        for stored, _ in _by_place(items, self.storage_data):
            if stored.transform_descriptors:
                raise NotImplementedError(
                    f"{name} was written through {list(stored.transform_descriptors)}: save it without _extensions"
                )
            expected = getattr(stored, "sha256", None)
            # Of a file of PyTorch's only the last byte: whether it is as long as it should be.
            digest, left = hashlib.sha256(), stored.length if expected else min(stored.length, 1)
            stream.seek(stored.offset + stored.length - left)
            while left:
                data = stream.read(min(left, 1 << 22))
                if not data:
                    raise CheckpointError(f"checkpoint {self.path} is damaged: {name} is truncated")
                digest.update(data)
                left -= len(data)
            if expected and digest.hexdigest() != expected:
                raise CheckpointError(
                    f"checkpoint {self.path} is damaged: {name} has changed: the SHA-256 of its bytes from {stored.offset} on is "
                    "not the one that was written down"
                )


def _by_place(
    items: list[ReadItem], places: dict[Any, _StorageInfo]
) -> Iterator[tuple[_StorageInfo, list[ReadItem]]]:
    """The places at which `items` lie, in their order in the file, each with its items."""
    found: dict[tuple[int, Any], list[ReadItem]] = {}
    for item in items:
        found.setdefault((places[item.storage_index].offset, item.storage_index), []).append(item)
    for (_, index), alike in sorted(found.items(), key=lambda pair: pair[0][0]):
        yield places[index], alike

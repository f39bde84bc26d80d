"""Checkpoints as safetensors, as the Hugging Face Hub has them."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...backend.dtype import DType
from ...core.errors import CheckpointError
from ...core.size import Size
from ...core.tensor import Tensor
from ...files import tensor_file
from ...files.safetensors import safe_open, save_file
from ...futures import Future, finished
from ...ops.creation.factories import empty
from ..collectives import barrier
from ..process_group import ProcessGroup, get_rank, get_world_size, is_initialized
from . import exchange
from .filesystem import FileSystemReader, FileSystemWriter, SerializationFormat, on_host
from .folder import _StorageInfo
from .metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from .planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner, WriteItem
from .planner_helpers import fill
from .storage import WriteResult

SUFFIX = ".safetensors"
SHARDED_DIR_NAME = "sharded"
_INDEX = "model.safetensors.index.json"
_OFFSETS = "DCP_SHARDING_INFO"


@dataclass
class _HFStorageInfo:
    """Where a block lies."""

    relative_path: str
    shape: Size
    dtype: DType


exchange.register(_HFStorageInfo)


class HuggingFaceStorageWriter(FileSystemWriter):
    """Writes a state dict of tensors as safetensors into the folder `path`.

    fqn_to_index_mapping: by key the number of its file, from 1 on; by default there is one file. save_distributed: each rank
    writes its blocks, else rank 0 has whole tensors. enable_consolidation: the blocks go to `path/sharded`, and whole tensors
    to `path`, both with the index that the Hub's libraries read.
    """

    def __init__(
        self,
        path: str,
        fqn_to_index_mapping: Mapping[str, int] | None = None,
        thread_count: int = 1,
        save_distributed: bool = False,
        enable_consolidation: bool = False,
        thread_count_consolidation: int = 1,
    ) -> None:
        super().__init__(
            path, thread_count=thread_count, serialization_format=SerializationFormat.SAFETENSORS
        )
        self.fqn_to_index_mapping = None if fqn_to_index_mapping is None else dict(fqn_to_index_mapping)
        self.save_distributed, self.enable_consolidation = save_distributed, enable_consolidation
        self.consolidated_output_path: str | None = None
        if enable_consolidation:
            self.consolidated_output_path = str(self.path)
            self.path = self.fs.concat_path(self.path, SHARDED_DIR_NAME)
        self.thread_count_consolidation = thread_count_consolidation

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        given: dict[str, Any] = {}
        if self.fqn_to_index_mapping is not None:
            given["fqn_to_index_mapping"] = self.fqn_to_index_mapping
        numbered = ({"shard_index": i} if self.save_distributed else {} for i in range(1, len(plans) + 1))
        return [
            dataclasses.replace(plan, storage_data=given | n) for plan, n in zip(plans, numbered, strict=True)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        numbers: Mapping[str, int] = plan.storage_data.get("fqn_to_index_mapping") or {}
        buckets: dict[int, list[WriteItem]] = {}
        for item in plan.items:
            if numbers and item.index.fqn not in numbers:
                raise CheckpointError(f"fqn_to_index_mapping has no number for {item.index.fqn!r}")
            buckets.setdefault(numbers.get(item.index.fqn, 1), []).append(item)
        most, shard = max(numbers.values(), default=1), plan.storage_data.get("shard_index")
        return self._write_files(
            planner, [(_gen_file_name(n, most, shard), items) for n, items in buckets.items()]
        )

    def _write_items(
        self, file: Any, name: str, items: Sequence[WriteItem], planner: SavePlanner
    ) -> list[WriteResult]:
        tensors, offsets = {}, {}
        for item in items:
            data = planner.resolve_data(item)
            if not isinstance(data, Tensor) or item.tensor_data is None:
                raise CheckpointError(f"{item.index.fqn!r} is no tensor, and safetensors hold tensors only")
            tensors[item.index.fqn] = on_host(data)
            offsets[item.index.fqn] = {"saved_offsets": list(item.tensor_data.chunk.offsets)}
        described = {_OFFSETS: json.dumps(offsets), "DCP_VERSION": "1.0", "format": "pt"}
        # The format wants every array aligned to its elements: the widest first.
        widest = sorted(tensors.items(), key=lambda pair: -pair[1].itemsize)
        tensor_file.write(file, {key: tensor._array for key, tensor in widest}, described, checksum=False)
        return [
            WriteResult(item.index, size, _StorageInfo(name, 0, size))
            for item, size in ((item, tensors[item.index.fqn].nbytes) for item in items)
        ]

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        if self.consolidated_output_path is not None and self.save_distributed:
            numbers = self.fqn_to_index_mapping or dict.fromkeys(metadata.state_dict_metadata, 1)
            consolidate_safetensors_files(str(self.path), self.consolidated_output_path, numbers)
        elif not self.save_distributed:
            written = [one for each in results for one in each]
            files = {one.index.fqn: one.storage_data.relative_path for one in written}
            _write_index(Path(self.path), files, sum(one.size_in_bytes for one in written))

    @property
    def metadata_path(self) -> str:
        return _INDEX


class HuggingFaceStorageReader(FileSystemReader):
    """Reads the safetensors in the folder `path`: those of the Hub, and blocks that ranks have written."""

    def __init__(self, path: str, thread_count: int = 1) -> None:
        super().__init__(path)
        self.thread_count = thread_count

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        tensors: dict[str, Any] = {}
        places: dict[MetadataIndex, _HFStorageInfo] = {}
        for file in sorted(name for name in self.fs.ls(self.path) if name.endswith(SUFFIX)):
            opened = safe_open(file)
            offsets = json.loads(opened.metadata().get(_OFFSETS, "{}"))
            for key in opened:
                tensor = opened.get_tensor(key)
                begin = offsets[key]["saved_offsets"] if offsets else [0] * tensor.ndim
                block = ChunkStorageMetadata(Size(begin), tensor.size())
                found = tensors.setdefault(
                    key, TensorStorageMetadata(TensorProperties(tensor.dtype), tensor.size(), [])
                )
                found.chunks.append(block)
                ends = [[a + n for a, n in zip(b.offsets, b.sizes, strict=True)] for b in found.chunks]
                found.size = Size([max(dim) for dim in zip(*ends, strict=True)])
                places[MetadataIndex(key, begin)] = _HFStorageInfo(file, tensor.size(), tensor.dtype)
        return Metadata(tensors, storage_data=places, storage_meta=StorageMeta(load_id=self.load_id))

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for file, items in self._by_file(plan).items():
            opened = safe_open(file)
            for item in items:
                spans = zip(item.storage_offsets, item.lengths, strict=True)
                tensor = opened.get_slice(item.storage_index.fqn)[tuple(slice(a, a + n) for a, n in spans)]
                fill(planner, item, tensor, file)
        return finished(None)


def consolidate_safetensors_files(
    input_dir: str, output_dir: str, fqn_to_index_mapping: Mapping[str, int], num_threads: int = 1
) -> None:
    """Join the blocks in the files of `input_dir`: whole tensors go to `output_dir`, into the files with those numbers."""
    _join(input_dir, output_dir, fqn_to_index_mapping, 0, 1)


def consolidate_safetensors_files_on_every_rank(
    input_dir: str,
    output_dir: str,
    fqn_to_index_mapping: Mapping[str, int],
    num_threads: int = 1,
    process_group: ProcessGroup | None = None,
) -> None:
    """As `consolidate_safetensors_files`, of which each rank writes some of the files. Collective."""
    if not is_initialized():
        _join(input_dir, output_dir, fqn_to_index_mapping, 0, 1)
        return
    _join(input_dir, output_dir, fqn_to_index_mapping, get_rank(process_group), get_world_size(process_group))
    barrier(process_group)


def _join(input_dir: str, output_dir: str, numbers: Mapping[str, int], rank: int, ranks: int) -> None:
    """Write the files whose number is `rank`, modulo `ranks`; the index, too, where rank is 0."""
    described = HuggingFaceStorageReader(input_dir).read_metadata()
    most = max(numbers.values(), default=1)
    files = {key: _gen_file_name(number, most) for key, number in numbers.items()}
    held: dict[str, TensorStorageMetadata] = {}
    for key in files:
        stored = described.state_dict_metadata.get(key)
        if not isinstance(stored, TensorStorageMetadata):
            raise CheckpointError(f"{input_dir} has no {key!r}, which fqn_to_index_mapping names")
        held[key] = stored
    for number in sorted(n for n in {*numbers.values()} if n % ranks == rank):
        name, tensors = _gen_file_name(number, most), {}
        for key in (key for key, file in files.items() if file == name):
            stored = held[key]
            whole = tensors[key] = empty(stored.size, dtype=stored.properties.dtype)
            for block in stored.chunks:
                info = described.storage_data[MetadataIndex(key, block.offsets)]
                spans = zip(block.offsets, block.sizes, strict=True)
                whole[tuple(slice(a, a + n) for a, n in spans)] = safe_open(info.relative_path).get_tensor(
                    key
                )
        save_file(tensors, os.path.join(output_dir, name))
    if rank == 0:
        total = sum(stored.size.numel() * stored.properties.dtype.itemsize for stored in held.values())
        _write_index(Path(output_dir), files, total)


def _write_index(folder: Path, files: Mapping[str, str], total: int) -> None:
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": dict(files)}, indent=2)
    (folder / _INDEX).write_text(text)


def _gen_file_name(index: int, largest_index: int, shard_index: int | None = None) -> str:
    shard = "" if shard_index is None else f"shard-{shard_index:05d}-"
    return f"{shard}model-{index:05d}-of-{largest_index:05d}{SUFFIX}"

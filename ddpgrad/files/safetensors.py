"""Safetensors as the Hugging Face Hub has them: one file, or several with an index.

Files are mapped into memory: opening one reads its header, and the system reads a tensor's bytes
when they are used. The mapping is private, so that writing to a loaded tensor leaves the file alone.
Source: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from .. import ops  # noqa: F401 - gives the class Tensor its methods
from ..backend import device as devices
from ..backend import dtype as dtypes
from ..backend.device import CPU
from ..backend.registry import to_device
from ..core.errors import CheckpointError
from ..core.tensor import Tensor, wrap
from . import tensor_file

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_SHARD_BYTES = 5 * 10**9  # the Hub's own default


class safe_open:
    """A file whose tensors are read by name: `with safe_open(path) as f: f.get_tensor("weight")`.

    framework: accepted for the sake of programs that name one. CheckpointError if the file is damaged.
    """

    def __init__(self, filename: str | os.PathLike[str], framework: str = "pt", device: Any = "cpu") -> None:
        self._name = os.fspath(filename)
        self._device = devices.of(device)
        with open(filename, "rb") as file:
            self._layout, self._metadata = tensor_file.read_layout(file, self._name)
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def keys(self) -> list[str]:
        """The names of the tensors, in the order of their bytes."""
        return list(self._layout)

    def metadata(self) -> dict[str, str]:
        """What was stored about the tensors, as text."""
        return dict(self._metadata)

    def get_tensor(self, name: str) -> Tensor:
        """A tensor by name: in mapped memory on the CPU, copied to a GPU."""
        entry = self._layout.get(name)
        if entry is None:
            raise CheckpointError(f"{self._name} has no tensor {name!r}; it has {_some(self._layout)}")
        if entry.dtype not in dtypes.BY_NUMPY:
            raise CheckpointError(
                f"{self._name}: {name!r} has elements of type {entry.dtype}, which tensors cannot have here"
            )
        count = entry.nbytes // entry.dtype.itemsize
        array = np.frombuffer(self._memory, entry.dtype, count, entry.offset).reshape(entry.shape)
        return wrap(to_device(array if entry.nbytes else array.copy(), self._device))

    def get_slice(self, name: str) -> Tensor:
        """The tensor, of which an index takes the part that is wanted; only that part is read."""
        return self.get_tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout)

    def __len__(self) -> int:
        return len(self._layout)

    def __enter__(self) -> safe_open:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Nothing is closed: tensors may still use the mapping, which ends with the last of them."""


def load_file(filename: str | os.PathLike[str], device: Any = "cpu") -> dict[str, Tensor]:
    """All tensors of a safetensors file by name, on `device`."""
    file = safe_open(filename, device=device)
    return {name: file.get_tensor(name) for name in file}


def save_file(
    tensors: Mapping[str, Tensor], filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors by name to a safetensors file, which any reader of the format can read."""
    arrays = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"save_file: {name!r} is a {type(tensor).__name__}, expected a Tensor")
        arrays[name] = to_device(tensor._array, CPU)
        if not tensor_file.is_storable(arrays[name].dtype):
            raise CheckpointError(f"save_file: {name!r}: {tensor.dtype} has no place in the file format")
    # The format wants every array aligned to its elements: the widest first.
    arrays = dict(sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize))
    given = {"format": "pt"} if metadata is None else dict(metadata)
    _replace(filename, lambda file: tensor_file.write(file, arrays, given, checksum=False))


def load_model(folder: str | os.PathLike[str], device: Any = "cpu") -> dict[str, Tensor]:
    """The state_dict in a folder: model.safetensors, or the shards that model.safetensors.index.json lists."""
    folder = Path(folder)
    if not (folder / _INDEX).exists():
        if not (folder / _SINGLE).exists():
            raise CheckpointError(f"{folder} has neither {_SINGLE} nor {_INDEX}")
        return load_file(folder / _SINGLE, device)
    weight_map = _read_index(folder / _INDEX)
    shards = {name: safe_open(folder / name, device=device) for name in dict.fromkeys(weight_map.values())}
    return {name: shards[shard].get_tensor(name) for name, shard in weight_map.items()}


def save_model(
    state_dict: Mapping[str, Tensor], folder: str | os.PathLike[str], max_shard_size: int = _SHARD_BYTES
) -> None:
    """Write a state_dict to `folder` as `load_model` and the Hub's libraries read it.

    max_shard_size: bytes of tensors in one file; a tensor is never divided. Files of an earlier model
    in the folder are removed, after the new ones are there.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    before = {*folder.glob("model-*-of-*.safetensors"), folder / _SINGLE, folder / _INDEX}
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in state_dict.items():
        if shards[-1] and size + tensor.nbytes > max_shard_size:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    if len(shards) == 1:
        save_file(shards[0], folder / _SINGLE)
        written = {folder / _SINGLE}
    else:
        names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
        for name, shard in zip(names, shards, strict=True):
            save_file(shard, folder / name)
        index = {
            "metadata": {"total_size": sum(t.nbytes for t in state_dict.values())},
            "weight_map": {key: name for name, shard in zip(names, shards, strict=True) for key in shard},
        }
        _replace(folder / _INDEX, lambda file: file.write(json.dumps(index, indent=2).encode()))
        written = {folder / _INDEX, *(folder / name for name in names)}
    for path in before - written:
        path.unlink(missing_ok=True)


def _read_index(path: Path) -> dict[str, str]:
    """Tensor name -> file name in the same folder, from an index that may say anything."""
    try:
        weight_map = json.loads(path.read_bytes())["weight_map"]
        pairs = dict(weight_map.items())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {error!r}") from None
    for name, shard in pairs.items():
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise CheckpointError(
                f"{path} is damaged: {name!r} is said to be in {shard!r}, which is no file name"
            )
        if not (path.parent / shard).exists():
            raise CheckpointError(f"{path} lists {shard}, which is not in the folder")
    return pairs


def _replace(filename: str | os.PathLike[str], fill: Any) -> None:
    """Write a file beside its place and rename it: tensors may be mapped from the file that it replaces."""
    path = Path(filename)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            fill(file)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _some(names: Mapping[str, Any]) -> str:
    shown = list(names)[:5]
    return ", ".join(shown) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


__all__ = ["load_file", "load_model", "safe_open", "save_file", "save_model"]

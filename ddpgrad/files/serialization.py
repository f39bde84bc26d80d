"""`save` and `load`, as PyTorch's: the file that one writes, the other's program opens.

`save` writes PyTorch's archive (`torch_file.py`), and to a path that ends in `.safetensors` the form without pickle
that checkpoints have (`plain.py`). `load` tells them apart by their first bytes.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from mmap import MAP_SHARED
from typing import IO, Any

from ..core.storage import UntypedStorage
from ..core.upcalls import load_bytes
from . import archive, torch_file
from .plain import MapLocation, PlainFile, load_plain, placed
from .replacing import replacing
from .safe_globals import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from .settings import (
    LoadEndianness,
    default_restore_location,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    location_tag,
    register_package,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)
from .torch_names import LANGUAGE

MAP_LOCATION = MapLocation

DEFAULT_PROTOCOL = 2
"""The protocol of pickles in PyTorch's files, for programs that hand one to `save`."""

__all__ = [
    "LoadEndianness", "SourceChangeWarning", "add_safe_globals", "check_module_version_greater_or_equal",
    "clear_safe_globals", "default_restore_location", "get_crc32_options", "get_default_load_endianness",
    "get_default_mmap_options", "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load", "location_tag",
    "register_package", "safe_globals", "save", "set_crc32_options", "set_default_load_endianness",
    "set_default_mmap_options", "skip_data",
]  # fmt: skip


class SourceChangeWarning(Warning):
    """What PyTorch says of a class whose source changed since a file was written; this package keeps no source."""


_get_layout = LANGUAGE.names["torch.serialization._get_layout"]


@load_bytes.register
def _load_bytes(data: bytes) -> Any:
    return load(io.BytesIO(data))


File = str | os.PathLike[str] | IO[bytes]


def save(
    obj: Any,
    f: File,
    pickle_module: Any = None,
    pickle_protocol: int | None = None,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write `obj` to a path or to a binary file, as PyTorch does.

    `torch.load` of PyTorch and of ddpgrad read it with weights_only=True where `obj` is plain data: dict, OrderedDict,
    list, tuple, set, int, float, complex, bool, str, bytes, None, dtype, device, Size, Tensor and Parameter, nested
    at will, and a state_dict with its `_metadata`. Tensors that share memory go on sharing it. Other objects, such
    as a whole model, are written by the names of their classes, and are read only where the reader allows
    these (`add_safe_globals`), or with weights_only=False. ddpgrad reads NumPy arrays and frozensets as plain data
    too, PyTorch does not.

    To a path that ends in `.safetensors` goes the form without pickle, with a checksum, whose arrays other programs
    read: plain data as above, NumPy arrays and scalars, frozensets, paths, `argparse.Namespace`,
    dataclasses and Enums.

    CheckpointError names the place of what cannot be written, before the file is touched. A file that is there already is
    replaced when the new one is whole, on file systems that have files without names. The other arguments are
    PyTorch's, and without effect: the protocol is always 2.
    """
    if not isinstance(f, (str, os.PathLike)):
        torch_file.TorchFile(obj).write(f)
        if hasattr(f, "flush"):
            f.flush()
        return
    folder = os.path.dirname(os.path.abspath(os.fspath(f)))
    if not os.path.isdir(folder):
        raise RuntimeError(f"save(): Parent directory {folder} does not exist.")
    packed = PlainFile(obj) if os.fspath(f).endswith(".safetensors") else torch_file.TorchFile(obj)
    with replacing(f) as file:
        packed.write(file)


def load(
    f: File,
    map_location: MapLocation = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read a file of PyTorch's `torch.save`, or one that `save` wrote, from a path or a seekable binary file.

    map_location: the device of all tensors, or a mapping from saved to wanted devices, or a
    function of (storage, saved device) that returns the storage where it should be; by default
    every tensor goes where it was saved from. weights_only: by default nothing but data is read, and nothing from
    the file runs; False, or a pickle_module, lets the file import and call anything, for files that you trust. mmap: map an archive of
    PyTorch's into memory instead of reading it, without a look at its checksums. The other arguments are
    PyTorch's, and without effect. CheckpointError if the file is damaged or of another kind; where it needs a class
    that is not allowed, the error is a `pickle.UnpicklingError` too, and names it.
    """
    if mmap and not isinstance(f, (str, os.PathLike)):
        raise ValueError("load(): f must be a file path in order to use the mmap argument")
    unknown = sorted(pickle_load_args.keys() - {"encoding", "errors", "fix_imports", "buffers"})
    if unknown:
        raise TypeError(f"load() got an unexpected keyword argument {unknown[0]!r}")
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    data_only = pickle_module is None if weights_only is None else bool(weights_only)
    if isinstance(f, (str, os.PathLike)):
        shared = get_default_mmap_options() == MAP_SHARED
        mapped = UntypedStorage.from_file(f, shared)._owner if mmap else None
        with open(f, "rb") as file:
            return _load(file, os.fspath(f), map_location, data_only, mapped, to_end=True)
    return _load(f, str(getattr(f, "name", "the file")), map_location, data_only, None, to_end=False)


def get_unsafe_globals_in_checkpoint(f: File) -> list[str]:
    """The classes and functions that an archive names and `load` refuses: candidates for `add_safe_globals`."""
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return torch_file.unsafe_names(file)
    return torch_file.unsafe_names(f)


def check_module_version_greater_or_equal(
    module: Any, req_version_tuple: tuple[Any, ...], error_if_malformed: bool = True
) -> bool:
    """Whether `module.__version__` is at least the version given, as far as that goes.

    RuntimeError for a version without such fields; without error_if_malformed a warning, and True.
    """
    try:
        fields = module.__version__.split(".")[: len(req_version_tuple)]
        return (
            tuple(type(n)(field) for n, field in zip(req_version_tuple, fields, strict=True))
            >= req_version_tuple
        )
    except (AttributeError, TypeError, ValueError) as error:
        reason = (
            f"'{module.__name__}' module version string is malformed '{getattr(module, '__version__', None)}' and "
            f"cannot be compared with tuple {req_version_tuple}"
        )
        if error_if_malformed:
            raise RuntimeError(reason) from error
        warnings.warn(f"{reason}, but continuing assuming that requirement is met", stacklevel=2)
        return True


def normalize_storage_type(storage_type: type) -> type:
    """The class of `torch` with the name of a storage's class."""
    return getattr(sys.modules[__name__.partition(".")[0]], storage_type.__name__)


def _is_zipfile(f: IO[bytes]) -> bool:
    start = f.tell()
    beginning = f.read(4)
    f.seek(start)
    return beginning == archive.BEGINNING


def _load(
    file: IO[bytes], name: str, map_location: MapLocation, weights_only: bool, mapped: Any, *, to_end: bool
) -> Any:
    if not torch_file.looks_like_one(file):
        return load_plain(file, name, map_location, to_end=to_end)
    return torch_file.read(
        file,
        name,
        lambda memory, saved_on: placed(memory, saved_on, map_location),
        weights_only=weights_only,
        to_end=to_end,
        mapped=mapped,
    )

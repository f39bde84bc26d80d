"""The file `.metadata` of a checkpoint: a pickle that PyTorch reads and writes, too.

Behind the pickle, where PyTorch's reader does not look, ddpgrad writes the SHA-256 of it.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
from typing import Any, NoReturn

from ...core import environment
from ...core.errors import CheckpointError
from ...files import safe_globals
from ...files.pickle_writer import Writer, in_words
from ...files.torch_names import LANGUAGE
from . import metadata, planner, storage
from .metadata import Metadata

NAME = ".metadata"
_ROOM = "torch.distributed.checkpoint"
_SEAL = re.compile(rb"ddpgrad sha256 ([0-9a-f]{64})\n")
_SEAL_SIZE = 80
_PATHS = ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")
_PLAIN = ("set", "frozenset", "complex", "bytearray", "slice", "range")
_classes: dict[tuple[str, str], Any] = {}


def declare(module: str, *classes: type) -> None:
    """Let files have these classes under the name of a module of PyTorch's."""
    safe_globals.declare_places(dict.fromkeys(classes, f"{_ROOM}.{module}"))
    _classes.update({(f"{_ROOM}.{module}", kind.__name__): kind for kind in classes})


for _home in (metadata, planner, storage):
    declare(
        _home.__name__.rpartition(".")[2],
        *(v for v in vars(_home).values() if isinstance(v, type) and v.__module__ == _home.__name__),
    )


def dumped(described: Metadata) -> bytes:
    """The content of the file. CheckpointError for what cannot be pickled."""
    pickled = b"".join(Writer(_no_tensor).write(described))
    return pickled + b"ddpgrad sha256 %b\n" % hashlib.sha256(pickled).hexdigest().encode()


def loaded(content: bytes, name: str) -> Any:
    """What is in the file `name`, which was written by `dumped` or by PyTorch. CheckpointError if it is damaged."""
    seal = _SEAL.fullmatch(content[-_SEAL_SIZE:])
    pickled = content[:-_SEAL_SIZE] if seal else content
    if seal and hashlib.sha256(pickled).hexdigest().encode() != seal[1]:
        raise CheckpointError(f"{name} has changed or is truncated: it does not match its own SHA-256")
    file = io.BytesIO(pickled)
    try:
        found = _Reader(file, name).load()
    except CheckpointError:
        raise
    except Exception as error:  # damaged pickles raise errors of any kind
        raise CheckpointError(
            f"{name} has changed or is truncated: {type(error).__name__}: {error}"
        ) from error
    if file.tell() != len(pickled):
        raise CheckpointError(
            f"{name} has changed or is truncated: what is behind its description is no SHA-256 of it"
        )
    if not isinstance(found, Metadata):
        raise CheckpointError(f"{name} holds a {type(found).__name__}, and is no description of a checkpoint")
    return found


def _no_tensor(tensor: Any, where: Any) -> NoReturn:
    raise CheckpointError(
        f"{in_words(where)} is a tensor: a description of a checkpoint has none; put it into the state dict"
    )


class _Reader(pickle.Unpickler):
    """Makes what descriptions consist of, and what the program declares safe; under `--as-torch`, as PyTorch, anything."""

    def __init__(self, file: Any, name: str) -> None:
        super().__init__(file)
        self._name = name

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        known = _classes.get((module_name, global_name))
        full = f"{module_name}.{global_name}"
        if known is None and not module_name.startswith(("numpy", "builtins")):
            known = LANGUAGE.names.get(full)
        if known is None:
            known = safe_globals.by_name().get(full)
        if known is not None:
            return known
        paths = module_name in ("pathlib", "pathlib._local") and global_name in _PATHS
        if paths or (module_name == "builtins" and global_name in _PLAIN) or environment.as_torch():
            return super().find_class(module_name, global_name)
        raise CheckpointError(
            f"{self._name} has {full}, which is no part of the description of a checkpoint: if you trust its source, call "
            "torch.serialization.add_safe_globals before"
        )

"""`torch._utils_internal`: paths beside the package, and the address at which PyTorch's own tests meet."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

torch_parent = str(Path(__file__).resolve().parents[2])
"""The folder that holds the package."""
TEST_MASTER_ADDR = "127.0.0.1"
TEST_MASTER_PORT = 29500


def get_file_path(*path_components: str) -> str:
    """A path below `torch_parent`."""
    return os.path.join(torch_parent, *path_components)


def get_file_path_2(*path_components: str) -> str:
    """The components, joined."""
    return os.path.join(*path_components)


def get_writable_path(path: str) -> str:
    """`path` if it can be written to; else a new folder, whose name ends as `path` does."""
    return path if os.access(path, os.W_OK) else tempfile.mkdtemp(suffix=os.path.basename(path))


def resolve_library_path(path: str) -> str:
    """The path without links."""
    return os.path.realpath(path)

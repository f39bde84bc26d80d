"""`torch.hub`: refused, since it runs code and unpickles files from the network; only its folder is known."""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import Any, NoReturn
from urllib.parse import urlparse

from ..core.environment import torch_home as _get_torch_home
from ..core.missing import missing as _missing

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
"""What `name-HASH.pth` is searched for to find the start of a file's checksum."""

_chosen: str | None = None


def get_dir() -> str:
    """The folder of downloads: what `set_dir` chose, or `hub` below TORCH_HOME."""
    return _chosen if _chosen is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Make `get_dir` answer `d`."""
    global _chosen
    _chosen = os.path.expanduser(d)


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"torch.hub.{name}: ddpgrad downloads no code and no pickled weights. Download the weights as safetensors, and "
        "read them with ddpgrad.safetensors.load_file into a model built from ddpgrad.nn"
    )


def load(repo_or_dir: str, model: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Refused."""
    _refuse("load")


def load_state_dict_from_url(url: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Refused."""
    _refuse("load_state_dict_from_url")


def list(github: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Refused."""
    _refuse("list")


def download_url_to_file(url: str, dst: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Refused."""
    _refuse("download_url_to_file")


def __getattr__(name: str) -> Any:
    """`tqdm`, which programs import from here, where it is installed."""
    if name == "tqdm":
        return import_module("tqdm").tqdm
    raise _missing(__name__, globals(), name)


__all__ = [
    "download_url_to_file",
    "get_dir",
    "list",
    "load",
    "load_state_dict_from_url",
    "set_dir",
    "urlparse",
]

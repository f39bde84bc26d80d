"""`torch.hub`: what is on this machine. It downloads nothing, neither code to run nor weights."""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from typing import Any, NoReturn
from urllib.parse import urlparse

from ..core.environment import torch_home as _get_torch_home
from ..core.missing import missing as _missing
from ..files.serialization import load as _load_file

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


def _refuse(name: str, more: str = "") -> NoReturn:
    raise NotImplementedError(
        f"torch.hub.{name}: ddpgrad downloads no code and no pickled weights. Download the weights as safetensors, and "
        f"read them with ddpgrad.safetensors.load_file into a model built from ddpgrad.nn{more}"
    )


def load(
    repo_or_dir: str,
    model: Any,
    *args: Any,
    source: str = "github",
    trust_repo: Any = None,
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """What the function `model` of the module `hubconf` in a local folder returns; refused unless source is "local".

    RuntimeError where the file names `dependencies` that are not installed, or has no such function.
    """
    if source == "github":
        _refuse("load")
    if source != "local":
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    folder = os.path.expanduser(repo_or_dir)
    spec = spec_from_file_location("hubconf.py", os.path.join(folder, "hubconf.py"))
    assert spec is not None and spec.loader is not None
    hubconf = module_from_spec(spec)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(hubconf)
        if not isinstance(model, str):
            raise ValueError("Invalid input: model should be a string of function name")
        missing = [name for name in getattr(hubconf, "dependencies", ()) if find_spec(name) is None]
        if missing:
            raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
        function = getattr(hubconf, model, None)
        if not callable(function):
            raise RuntimeError(f"Cannot find callable {model} in hubconf")
        return function(*args, **kwargs)
    finally:
        sys.path.remove(folder)


def load_state_dict_from_url(
    url: str,
    model_dir: str | os.PathLike[str] | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> Any:
    """What lies in the file of that name in `model_dir`, by default `checkpoints` below `get_dir()`; nothing is downloaded.

    The file is read as by `torch.load` with weights_only=True, whatever is asked for.
    """
    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    path = os.path.join(folder, file_name or os.path.basename(urlparse(url).path))
    if not os.path.exists(path):
        _refuse("load_state_dict_from_url", f"; or put the file of {url} at {path}")
    return _load_file(path, map_location)


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
    "download_url_to_file", "get_dir", "list", "load", "load_state_dict_from_url", "set_dir", "urlparse",
]  # fmt: skip

"""Answers a program's imports of `torch` with ddpgrad, so that a PyTorch script runs unchanged.

`ddprun --as-torch` does this in every process before the script starts; a program can do it
itself, before its first import of `torch`:

    from launcher import as_torch
    as_torch.install()

`torch.nn` is then the module `ddpgrad.nn`, not a copy of it, and likewise all others. A name that
ddpgrad does not have raises the ImportError or AttributeError that Python would raise, with the
nearest names that it has. `torch.__version__` says which PyTorch's vocabulary is spoken.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import ddpgrad
from ddpgrad.missing import missing, nearest

SHIMS = str(Path(__file__).with_name("torch_shim"))
"""A folder with a file torch.py: processes that the program starts find it, and install this there too."""

# Modules that have another name here.
_MOVED = {
    "torch": "ddpgrad",
    "torch.autograd.profiler": "ddpgrad.profiler",
    "torch.optim.adamw": "ddpgrad.optim.adam",
    "torch.utils.hooks": "ddpgrad.autograd.nodes",
    "torchvision.transforms": "ddpgrad.transforms",
    "torchvision.datasets": "ddpgrad.datasets",
}


def install() -> None:
    """Make `import torch`, and `import torchvision`, answer with ddpgrad in this process. May be called again.

    Raises RuntimeError when PyTorch itself was imported before.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    before = sys.modules.get("torch")
    if before is not None and before is not ddpgrad and not str(before.__file__).startswith(SHIMS):
        raise RuntimeError(
            f"as_torch.install(): PyTorch itself ({before.__file__}) was imported before; install first"
        )
    sys.meta_path.insert(0, _Finder())
    sys.meta_path.append(_LastFinder())
    sys.path.insert(0, SHIMS)
    sys.modules["torch"] = ddpgrad
    for name, module in list(sys.modules.items()):
        if name.startswith("ddpgrad."):
            _explain_missing(module)
    ddpgrad.__version__ = f"{ddpgrad.version.vocabulary}+ddpgrad.{ddpgrad.version.__version__}"


class _Finder(MetaPathFinder):
    """Finds `torch.x` as ddpgrad's x; raises for what ddpgrad does not have."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = fullname.partition(".")[0]
        if fullname == "torchvision":
            return ModuleSpec(fullname, _Torchvision(), is_package=True)
        if top not in ("torch", "torchvision"):
            return None
        name = _MOVED.get(fullname) or (fullname.replace("torch", "ddpgrad", 1) if top == "torch" else "")
        if name and _exists(name):
            return ModuleSpec(fullname, _Loader(name))
        raise _no_module(fullname)


class _LastFinder(MetaPathFinder):
    """Says what `from torch.x import y` lacks: for a y that is no attribute Python tries a module of that name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        parent, _, name = fullname.rpartition(".")
        if fullname.partition(".")[0] != "ddpgrad" or parent not in sys.modules:
            return None
        called = parent.replace("ddpgrad", "torch", 1)
        hint = nearest(name, dir(sys.modules[parent]))
        raise ModuleNotFoundError(
            f"cannot import name '{name}' from '{called}', which is {parent}{hint}", name=f"{called}.{name}"
        )


class _Loader(Loader):
    """Loads a module under a second name: the same object, whose own spec stays as it was."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
        _explain_missing(module)


class _Torchvision(Loader):
    """Makes the package `torchvision`, which has only what ddpgrad has of it."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        known = sorted(n.partition(".")[2] for n in _MOVED if n.startswith("torchvision."))

        def look_up(name: str) -> Any:
            if name in known:
                return importlib.import_module(f"torchvision.{name}")
            raise AttributeError(
                f"module 'torchvision' has no attribute '{name}'; ddpgrad has {', '.join(known)} of it"
            )

        vars(module)["__getattr__"] = look_up


def _explain_missing(module: ModuleType) -> None:
    """Give a module without one a `__getattr__` that names what is nearest to what it lacks."""
    if "__getattr__" in vars(module):
        return

    def look_up(name: str) -> Any:
        raise missing(vars(module), name)

    vars(module)["__getattr__"] = look_up


def _exists(name: str) -> bool:
    """Whether ddpgrad has a module of that name."""
    parent = name.rpartition(".")[0]
    if name in sys.modules or not parent:
        return name in sys.modules
    return _exists(parent) and PathFinder.find_spec(name, _places(parent)) is not None


def _places(name: str) -> list[str]:
    """The folders where modules below module `name` lie."""
    return list(getattr(importlib.import_module(name), "__path__", ()))


def _no_module(fullname: str) -> ModuleNotFoundError:
    parent, _, name = fullname.rpartition(".")
    package = _MOVED.get(parent) or parent.replace("torch", "ddpgrad", 1)
    places = _places(package) if parent in sys.modules and parent != "torchvision" else []
    hint = nearest(name, (m.name for m in iter_modules(places)))
    return ModuleNotFoundError(
        f"No module named '{fullname}': ddpgrad, which answers for torch, has none{hint}", name=fullname
    )

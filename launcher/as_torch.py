"""Serves a program's imports of `torch` with ddpgrad, so that a PyTorch script runs unchanged.

`ddprun --as-torch` does this in every process before the script starts; a program can do it
itself, before its first import of `torch`:

    from ddpgrad.launcher import as_torch
    as_torch.install()

`torch.nn` is then the module `ddpgrad.nn`, not a copy of it, and likewise all others. A name that
ddpgrad does not have raises the ImportError or AttributeError that Python would raise, with the nearest
names. Parts of PyTorch that libraries import without using them can be imported (`ddpgrad.compat.absent`).
`torch.__version__`, and the version in `importlib.metadata`, is that of the PyTorch whose vocabulary ddpgrad
has. If torchvision is installed, its Python modules run on ddpgrad, and its ops in C++ are those of
`ddpgrad.extras.torchvision_ops`; if not, ddpgrad serves the parts of torchvision that it has itself.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import Distribution
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import ddpgrad
from ddpgrad.compat import absent
from ddpgrad.compat.finder import AliasLoader, MadeLoader
from ddpgrad.core.face import exists, explain_missing
from ddpgrad.core.missing import nearest
from ddpgrad.version import TorchVersion

from . import torch_classes

SHIMS = str(Path(__file__).with_name("torch_shim"))
"""A folder with a file torch.py. Processes that the program starts import it, and so call `install`, too."""

# Modules that have another name here, and those below them.
_MOVED = {
    "torch": "ddpgrad",
    "functorch": "ddpgrad.func",
    "torchvision.transforms": "ddpgrad.transforms",
    "torchvision.datasets": "ddpgrad.datasets",
    "torchvision.utils": "ddpgrad.transforms.pictures",
}

# What libraries import as soon as they find a torchvision, and only an installed one has.
_INSTALLED_ONLY = ("torchvision.models", "torchvision.ops")


def install() -> None:
    """Let `import torch` and `import torchvision` load ddpgrad in this process. May be called again.

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
    setattr(ddpgrad, "torch", ddpgrad)  # noqa: B010 - as in PyTorch; no attribute of the type
    for name, module in list(sys.modules.items()):
        if name.startswith("ddpgrad."):
            explain_missing(module)
    ddpgrad.__name__ = "torch"  # which libraries compare with the first part of a name that they look up
    for kind in (ddpgrad.Tensor, ddpgrad.Generator):
        kind.__module__ = "torch"  # by which they tell whose an array or a generator is
    torch_classes.install()
    ddpgrad.__version__ = TorchVersion(f"{ddpgrad.version.vocabulary}+ddpgrad.{ddpgrad.version.__version__}")


class _Metadata(Distribution):
    """The metadata of torch for `importlib.metadata`, where libraries look up its version."""

    def read_text(self, filename: str) -> str | None:
        files = {
            "METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {ddpgrad.__version__}\n",
            "top_level.txt": "torch\n",
        }
        return files.get(filename)

    def locate_file(self, path: Any) -> Any:
        return Path(str(ddpgrad.__file__)).parent / path


class _Finder(MetaPathFinder):
    """Finds `torch.x` as ddpgrad's x; raises for what ddpgrad does not have."""

    def find_distributions(self, context: Any) -> Iterable[Distribution]:
        return [_Metadata()] if context.name in (None, "torch") else []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = fullname.partition(".")[0]
        if top not in ("torch", "torchvision", "functorch"):
            return None
        installed = _installed(fullname) if top == "torchvision" else None
        if installed is not None:
            return installed
        if fullname == "torchvision":
            return ModuleSpec(fullname, _Torchvision(), is_package=True)
        if fullname in _INSTALLED_ONLY:
            module = absent.Blank(fullname, "install torchvision (pip install --no-deps torchvision)")
            return ModuleSpec(fullname, MadeLoader(module), is_package=True)
        name = _home(fullname)
        if name and exists(name):
            return ModuleSpec(fullname, _Loader(name))
        raise _no_module(fullname)


class _LastFinder(MetaPathFinder):
    """Reports a missing y of `from torch.x import y`: if y is no attribute, Python looks for a module of that name."""

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


class _Loader(AliasLoader):
    """Loads a module of ddpgrad as one of torch's."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        explain_missing(module)


class _Torchvision(Loader):
    """Makes the package `torchvision`, where none is installed, from the parts that ddpgrad has."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        known = sorted(
            n.partition(".")[2] for n in _MOVED if n.startswith("torchvision.") and n.count(".") == 1
        )

        def look_up(name: str) -> Any:
            full = f"torchvision.{name}"
            if name in known or full in _INSTALLED_ONLY:
                return importlib.import_module(full)
            raise AttributeError(
                f"module 'torchvision' has no attribute '{name}'; ddpgrad has {', '.join(known)} of it"
            )

        vars(module)["__getattr__"] = look_up
        vars(module)["get_image_backend"] = lambda: "PIL"


def _installed(fullname: str) -> ModuleSpec | None:
    """Where an installed torchvision has the module `fullname`, written in Python."""
    places = [str(Path(p, *fullname.split(".")[:-1])) for p in sys.path if p != SHIMS]
    spec = PathFinder.find_spec(fullname, places)
    return spec if spec is not None and isinstance(spec.loader, SourceFileLoader) else None


def _home(fullname: str) -> str:
    """The name here of the module `fullname`, which need not exist; '' if ddpgrad serves no such package."""
    above = fullname
    while above and above not in _MOVED:
        above = above.rpartition(".")[0]
    return above and _MOVED[above] + fullname[len(above) :]


def _places(name: str) -> list[str]:
    """The folders where modules below module `name` lie."""
    return list(getattr(importlib.import_module(name), "__path__", ()))


def _no_module(fullname: str) -> ModuleNotFoundError:
    parent, _, name = fullname.rpartition(".")
    if parent == "torch":
        # The name that the error has is another than `fullname`, since Python passes over an error about that in
        # `from torch import name`, and raises one without a hint.
        hint = nearest(name, dir(ddpgrad))
        return ModuleNotFoundError(
            f"cannot import name '{name}' from 'torch', which is ddpgrad, nor a module '{fullname}'{hint}",
            name=f"ddpgrad.{name}",
        )
    package = _home(parent)
    places = _places(package) if package and parent in sys.modules else []
    hint = nearest(name, (m.name for m in iter_modules(places)))
    return ModuleNotFoundError(
        f"No module named '{fullname}': ddpgrad, which answers for torch, has none{hint}", name=fullname
    )

"""The import finder of this package: aliases of modules, and absent modules.

`ddpgrad.onnx` is the module `ddpgrad.extras.onnx` itself, not a copy of it. Which name stands for which module is
the table of `aliases.py`; which modules are absent, that of `absent.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ..core.face import exists
from . import absent, aliases
from .aliases import ROOT


class AliasLoader(Loader):
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

    def get_code(self, fullname: str) -> Any:
        """What `python -m` runs."""
        spec = importlib.util.find_spec(self._name)
        loader: Any = spec and spec.loader
        return loader.get_code(self._name)


class MadeLoader(Loader):
    """Hands out a module that has no file."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """It is whole already."""


def _switches(name: str) -> ModuleType | None:
    if not name.endswith(".config"):
        return None
    from . import switches  # here, as few programs have any

    return switches.find(name)


class Finder(MetaPathFinder):
    """Finds modules below this package that have no file under the name that they are asked for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{ROOT}."):
            return None
        name = fullname.partition(".")[2]
        known = aliases.called(name)
        made = aliases.page(known) or _switches(known) or absent.find(known)
        if made is not None:
            return ModuleSpec(fullname, MadeLoader(made), is_package=True)
        # `from ddpgrad.transforms import x` asks below the module's own name, which is another.
        home = aliases.home(name) or aliases.home(aliases.called(name))
        found = home not in (None, name) and exists(f"{ROOT}.{home}")
        return ModuleSpec(fullname, AliasLoader(f"{ROOT}.{home}")) if found else None


def install() -> None:
    """Let imports below this package be found by their other names too.

    It is asked first: where Python found a module by a second name itself, that would be a second module.
    """
    sys.meta_path.insert(0, Finder())

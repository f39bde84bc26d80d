"""Classes that programs tell by the module that they say they are of: layers, optimizers, datasets, distributions.

Libraries ask whether `type(layer).__module__` begins with "torch.nn", and write classes to files by their modules. `install`
lets those of ddpgrad, which are loaded when they are first used, name torch's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

_ROOMS = {
    "ddpgrad.nn.": "torch.nn.",
    "ddpgrad.optim.": "torch.optim.",
    "ddpgrad.utils.data.": "torch.utils.data.",
    "ddpgrad.extras.distributions.": "torch.distributions.",
}


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _name_classes(module)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(tuple(_ROOMS)):
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def _name_classes(module: ModuleType) -> None:
    """Let the classes that `module` defines say that they are of torch's module, which it is as well."""
    room = next((room for room in _ROOMS if module.__name__.startswith(room)), None)
    if room is None:
        return
    name = _ROOMS[room] + module.__name__[len(room) :]
    sys.modules.setdefault(name, module)
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            value.__module__ = name


def install() -> None:
    """Name the classes that are loaded, and those to come."""
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            _name_classes(module)
    sys.meta_path.insert(0, _Finder())

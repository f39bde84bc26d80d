"""The subclasses of classes whose packages are loaded name by name: for programs that look through them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_LIBRARY = {__name__.partition(".")[0], "torch"}  # whose place it may take


def _shown(base: type, public: set[str]) -> list[type]:
    """The subclasses of `base`, with those of a class that only the library itself knows in the place of that class."""
    found: list[type] = []
    for cls in type.__subclasses__(base):
        inner = cls.__module__.partition(".")[0] in _LIBRARY and cls.__name__ not in public
        found += (_shown(cls, public) if inner else None) or [cls]
    return found


def all_in(*modules: str) -> Any:
    """A `__subclasses__` that loads all names of `modules` first, which PyTorch has loaded when its class can be asked."""

    def __subclasses__(cls: type) -> list[type]:
        # vars() of a package loads what is loaded name by name.
        return _shown(cls, {name for module in modules for name in vars(import_module(module))})

    return classmethod(__subclasses__)
